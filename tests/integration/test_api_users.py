"""SCRAM credentials of users: by a stock client, by `odradek users`, and those that a cluster is formatted with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from odradek.cli import errors
from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.support.clients.api_calls import Calls
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import admin
from tests.support.nodes.node import Node

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def test_a_stock_client_sets_describes_and_removes_credentials(node: Node) -> None:
    client = admin(node.bootstrap)
    wanted: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion("alice", ScramCredentialInfo(SHA_256, 8192), b"secret", b"salt"),
        UserScramCredentialUpsertion("alice", ScramCredentialInfo(SHA_512, 4096), b"secret"),
        UserScramCredentialUpsertion("bob", ScramCredentialInfo(SHA_512, 4096), b"other"),
    ]
    for future in client.alter_user_scram_credentials(wanted).values():
        future.result(60)
    # The broker that has answered knows the new users at once.
    found: Any = client.describe_user_scram_credentials(["alice", "bob"])
    described = {name: future.result(60).scram_credential_infos for name, future in found.items()}
    assert [(each.mechanism, each.iterations) for each in described["alice"]] == [(SHA_256, 8192), (SHA_512, 4096)]
    assert [(each.mechanism, each.iterations) for each in described["bob"]] == [(SHA_512, 4096)]

    client.alter_user_scram_credentials([UserScramCredentialDeletion("bob", SHA_512)])["bob"].result(60)
    for change in (UserScramCredentialDeletion("bob", SHA_512), UserScramCredentialDeletion("unknown", SHA_256)):
        with pytest.raises(KafkaException) as error:
            client.alter_user_scram_credentials([change])[change.user].result(60)
        assert error.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_users_that_are_not_there_or_named_twice(node: Node) -> None:
    with Calls(node.port) as calls:
        asked = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in ("none", "two", "two")])
        answer = calls.request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, asked)
    assert {each.user: each.error_code for each in answer.results} == {
        "none": ErrorCode.RESOURCE_NOT_FOUND,
        "two": ErrorCode.DUPLICATE_RESOURCE,
    }


def test_the_command_adds_changes_and_removes_users(node: Node, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    for name, text in (("empty", "\n"), ("two-forms", "\u2168\n")):
        (tmp_path / name).write_text(text)
        odradek(node.bootstrap, "users", "add", "carol", "--password-file", tmp_path / name, code=errors.USAGE)
    odradek(node.bootstrap, "users", "add", "User:carol", "--password-file", password, code=errors.USAGE)
    odradek(node.bootstrap, "users", "add", "carol", "--password-file", password)
    assert odradek(node.bootstrap, "users", "list", "--json").json["carol"] == {
        "SCRAM-SHA-256": 4096,
        "SCRAM-SHA-512": 4096,
    }
    odradek(node.bootstrap, "users", "add", "carol", "--password-file", password, code=errors.FAILED)
    odradek(node.bootstrap, "users", "remove", "carol", "--mechanism", "scram-sha-256")
    odradek(node.bootstrap, "users", "password", "carol", "--password-file", password, "--iterations", 8192)
    assert ["carol", "SCRAM-SHA-512", "8192"] in odradek(node.bootstrap, "users", "list").rows
    odradek(node.bootstrap, "users", "remove", "carol")
    assert "carol" not in odradek(node.bootstrap, "users", "list").out
    odradek(node.bootstrap, "users", "remove", "carol", code=errors.NOT_FOUND)
    odradek(node.bootstrap, "users", "password", "carol", "--password-file", password, code=errors.NOT_FOUND)


def test_a_cluster_begins_with_the_users_that_it_is_formatted_with(tmp_path: Path) -> None:
    node = Node(tmp_path)
    settings = {"node.id": 1, "process.roles": "broker,controller", "controller.listener.names": "CONTROLLER"}
    config = tmp_path / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in (node.overrides | settings).items()))
    command = [sys.executable, "-m", "odradek", "storage", "format", "-t", "a-cluster", "-c", str(config)]

    def formatted(*users: str) -> subprocess.CompletedProcess[str]:
        words = [word for user in users for word in ("--add-scram", user)]
        return subprocess.run([*command, *words], capture_output=True, text=True, timeout=120)

    for wrong in ("SCRAM-MD5=[name=a,password=b]", "SCRAM-SHA-256=[name=a]", "SCRAM-SHA-256=[name=a,password=geheim"):
        refused = formatted(wrong)
        assert refused.returncode == errors.BAD_CONFIG, refused.stderr
        assert "--add-scram" in refused.stderr
        assert "geheim" not in refused.stderr
    done = formatted(
        'SCRAM-SHA-256=[name="admin",password="secret, long"]', "SCRAM-SHA-512=[name=bob,iterations=8192,password=p]"
    )
    assert done.returncode == 0, done.stderr
    with node.start():
        users = odradek(node.bootstrap, "users", "list", "--json").json
    assert users == {"admin": {"SCRAM-SHA-256": 4096}, "bob": {"SCRAM-SHA-512": 8192}}
