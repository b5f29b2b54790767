"""A link to a source with TLS, logins and permissions: it reports a missing permission, and shows no password."""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from odradek.testing import SecuredCluster
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import produce_all, read_all
from tests.support.clients.links import describe, rows_of
from tests.support.nodes.node import Node
from tests.support.nodes.scrapes import ANY_PORT, metrics_address, scrape
from tests.support.waiting import PATIENCE_S, eventually

WITH_PERMISSIONS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice;User:node",
}
JAAS = "sasl.jaas.config"


@pytest.fixture
def source() -> Iterator[SecuredCluster]:
    with SecuredCluster(settings=WITH_PERMISSIONS) as cluster:
        yield cluster


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Node]:
    keys = tmp_path / "secrets.keys"
    keys.write_text(base64.b64encode(os.urandom(32)).decode())
    with Node(tmp_path / "here", {**ANY_PORT, "odradek.secret.key.file": keys}) as node:
        yield node


def as_alice(source: SecuredCluster) -> tuple[str, dict[str, Any]]:
    settings = source.client("SCRAM-SHA-512", "alice")
    return settings.pop("bootstrap.servers"), settings


def create_topic(source: SecuredCluster, topic: str) -> None:
    client = AdminClient(source.client("SCRAM-SHA-512", "alice"))
    client.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)


def allow(source: SecuredCluster, topic: str, operation: AclOperation) -> None:
    """Let bob do it to a topic."""
    rule = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:bob", "*", operation, AclPermissionType.ALLOW
    )
    client = AdminClient(source.client("SCRAM-SHA-512", "alice"))
    client.create_acls([rule])[rule].result(PATIENCE_S)


def files_with(directory: Path, text: str) -> list[str]:
    found = []
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # the node renames its checkpoints
            if text.encode() in path.read_bytes():
                found.append(path.name)
    return found


def down(node: Node) -> dict[str, float]:
    """The seconds since the link's source stopped answering, by the reason."""
    found = scrape(metrics_address(node)).get("odradek_link_down_seconds", {})
    return {dict(at)["reason"]: value for at, value in found.items()}


def test_a_link_logs_in_and_reads_what_it_may(source: SecuredCluster, here: Node, tmp_path: Path) -> None:
    bootstrap, login = as_alice(source)
    for topic in ("orders", "payments"):
        create_topic(source, topic)
        produce_all(bootstrap, topic, [(b"k", b"v")] * 5, **login)
    password = source.users["bob"]
    settings = source.java_client("SCRAM-SHA-512", "bob")
    address, right = settings.pop("bootstrap.servers"), settings[JAAS]
    file = tmp_path / "link.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()).replace(password, "wr0ngWord"))
    odradek(here.bootstrap, "links", "create", "west", "--source", address, "--settings", file)
    odradek(here.bootstrap, "links", "mirror", "west", "orders", "payments")

    eventually(lambda: describe(here.bootstrap)["why"] == "unauthorized", lambda: describe(here.bootstrap))
    found = describe(here.bootstrap)
    assert "refused bob" in found["reason"] and "wr0ngWord" not in str(found)
    assert [row["why"] for row in found["partitions"]] == ["unauthorized"] * 2
    assert list(down(here)) == ["unauthorized"]

    odradek(here.bootstrap, "links", "alter", "west", "--set", f"{JAAS}={right}")
    eventually(lambda: list(down(here)) == [""], "it is let in")
    eventually(lambda: "TOPIC_AUTHORIZATION_FAILED" in rows_of(here.bootstrap, "orders")[0]["reason"])
    allow(source, "orders", AclOperation.READ)
    allow(source, "payments", AclOperation.DESCRIBE)
    eventually(lambda: [row["end"] for row in rows_of(here.bootstrap, "orders")] == [5])
    assert [each.value() for each in read_all(here.bootstrap, "orders")] == [b"v"] * 5
    # A topic that the link may describe and not read has a mirror without records.
    wanted = [(0, "waiting", "unauthorized")]
    eventually(
        lambda: [(row["end"], row["state"], row["why"]) for row in rows_of(here.bootstrap, "payments")] == wanted,
        lambda: rows_of(here.bootstrap, "payments"),
    )

    assert describe(here.bootstrap)["settings"][JAAS] is None
    assert "sasl.jaas.config=(hidden)" in odradek(here.bootstrap, "links", "describe", "west").out
    entity = ("--entity-type", "brokers", "--entity-default")
    (described,) = odradek(here.bootstrap, "configs", "describe", *entity, "--json").json
    values = {each["name"]: each["value"] for each in described["configs"]}
    assert values[f"odradek.link.west.{JAAS}"] is None
    assert values["odradek.link.west.sasl.mechanism"] == "SCRAM-SHA-512"
    for word in (password, "wr0ngWord"):
        assert files_with(here.data_dir, word) == [] and word not in here.log_text()


def test_a_failback_asks_a_source_with_a_login_of_its_own(source: SecuredCluster, here: Node, tmp_path: Path) -> None:
    """The link's login reads records; the user of the command must be allowed to describe promoted topics."""

    def properties(user: str) -> Path:
        file = tmp_path / f"{user}.properties"
        settings = {**source.java_client("SCRAM-SHA-512", user)}
        del settings["bootstrap.servers"]
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return file

    address, as_admin = source.java_client("SCRAM-SHA-512", "alice")["bootstrap.servers"], properties("alice")

    def there(*arguments: object) -> Any:
        return odradek(address, "links", *arguments, "--command-config", as_admin)

    odradek(here.bootstrap, "topics", "create", "--topic", "orders")
    produce_all(here.bootstrap, "orders", [(b"k", b"shared")] * 5)
    there("create", "east", "--source", here.bootstrap)
    there("mirror", "east", "orders")
    eventually(lambda: there("describe", "east", "--json").json["partitions"][0]["end"] == 5, "it is mirrored")
    there("promote", "east", "--yes")
    produce_all(here.bootstrap, "orders", [(b"k", b"lost")] * 2)
    allow(source, "orders", AclOperation.READ)
    odradek(here.bootstrap, "links", "create", "back", "--source", address, "--settings", properties("bob"))
    failback = "links", "failback", "back", "orders", "--yes"
    assert "--source-config" in odradek(here.bootstrap, *failback, code=None).err
    refused = odradek(here.bootstrap, *failback, "--source-config", properties("bob"), code=None).err
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused
    assert describe(here.bootstrap, "back")["partitions"] == []
    done = odradek(here.bootstrap, *failback, "--source-config", as_admin, "--json").json
    assert [each["offset"] for each in done["partitions"]] == [5]
    eventually(lambda: [row["end"] for row in rows_of(here.bootstrap, "orders", "back")] == [6], "it is a mirror")


def test_settings_of_a_login_are_checked(here: Node) -> None:
    odradek(here.bootstrap, "links", "create", "west", "--source", "127.0.0.1:9")

    def refused(*settings: str) -> str:
        given = [part for setting in settings for part in ("--set", setting)]
        result = odradek(here.bootstrap, "links", "alter", "west", *given, code=None)
        assert result.code
        return result.err

    assert "must be one of PLAINTEXT, SSL" in refused("security.protocol=TLS")
    assert "needs sasl.mechanism and sasl.jaas.config" in refused("security.protocol=SASL_SSL")
    said = refused("sasl.jaas.config=x.PlainLoginModule required username=a word=hunter2;")
    assert "must hold username and password" in said and "hunter2" not in said
    assert "must be one of PLAIN, SCRAM" in refused("sasl.mechanism=GSSAPI")
    odradek(here.bootstrap, "links", "alter", "west", "--set", "security.protocol=SSL")
    odradek(here.bootstrap, "links", "alter", "west", "--set", "ssl.truststore.location=/none.pem")
    odradek(here.bootstrap, "links", "mirror", "west", "t")
    eventually(lambda: "/none.pem" in describe(here.bootstrap)["reason"], lambda: describe(here.bootstrap))
    assert describe(here.bootstrap)["why"] == "refused"
