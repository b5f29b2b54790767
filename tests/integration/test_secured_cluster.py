"""`SecuredCluster`: stock clients come in by each login with the settings that it gives, and by no other way."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from odradek.cli import errors
from odradek.testing import AsyncSecuredCluster, SecuredCluster
from odradek.testing.secured import LOGINS, Login
from tests.support.clients.cli import odradek, odradek_process
from tests.support.clients.confluent import produce_all, read_all
from tests.support.clients.signing import signing
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def cluster() -> Iterator[SecuredCluster]:
    with SecuredCluster() as cluster:
        yield cluster


@pytest.mark.parametrize("login", LOGINS)
def test_clients_come_in_by_each_login(cluster: SecuredCluster, login: Login) -> None:
    settings = cluster.client(login, "bob")
    address = settings.pop("bootstrap.servers")
    produce_all(address, login, [(None, b"1"), (None, b"2")], **settings)
    assert [each.value() for each in read_all(address, login, **settings)] == [b"1", b"2"]


@pytest.mark.parametrize("login", [each for each in LOGINS if each != "OAUTHBEARER"])
def test_our_commands_take_the_settings_of_java(cluster: SecuredCluster, login: Login, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    settings = cluster.java_client(login)
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    odradek(settings["bootstrap.servers"], "cluster", "id", "--command-config", config)


def test_our_commands_sign_for_their_tokens(cluster: SecuredCluster, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    settings = signing(cluster, "robot", tmp_path)
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    where = settings["bootstrap.servers"]
    odradek(where, "topics", "create", "signed", "--command-config", config)
    odradek_process(where, "produce", "signed", "--command-config", config, stdin=b"one\n")
    words = ("signed", "--command-config", config, "--from-beginning", "--max-messages", 1)
    assert odradek_process(where, "consume", *words).stdout == b"one\n"
    config.write_text(config.read_text().replace("claim.sub=robot", "claim.sub=alice"))
    refused = odradek(where, "topics", "list", "--command-config", config, code=errors.BAD_CONFIG)
    assert f"{cluster.issuer.token_url} answered 401" in refused.err and refused.err.count("\n") == 1


@pytest.mark.parametrize("login", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused(cluster: SecuredCluster, login: Login) -> None:
    heard: list[int] = []
    settings = cluster.client(login) | {"sasl.password": "wrong", "log_level": 0}
    client = AdminClient(settings | {"error_cb": lambda error: heard.append(error.code())})
    eventually(lambda: client.poll(0.1) is not None and KafkaError._AUTHENTICATION in heard)


def test_a_client_without_a_certificate_or_trust_is_refused(cluster: SecuredCluster) -> None:
    with contextlib.suppress(ssl.SSLError, ConnectionError):  # or just the end of the connection
        assert read_byte(cluster.servers("MUTUAL-TLS"), cluster.ssl_context()) == b""
    with pytest.raises(ssl.SSLCertVerificationError):
        read_byte(cluster.servers("TLS"), ssl.create_default_context())


def read_byte(address: str, context: ssl.SSLContext) -> bytes:
    """Read one byte; with TLS 1.3 a client learns only from a read that the server has refused it."""
    host, _, port = address.partition(":")
    with (
        socket.create_connection((host, int(port)), 60) as raw,
        context.wrap_socket(raw, server_hostname=host) as secured,
    ):
        return secured.recv(1)


def test_a_client_of_python_takes_a_context_and_a_token(cluster: SecuredCluster) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
        def __init__(self, text: str) -> None:
            self.text = text

        async def token(self) -> str:
            return self.text

    async def send(text: str) -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_SSL",
            ssl_context=cluster.ssl_context(),
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(text),
        )
        try:
            await producer.start()
            return int((await producer.send_and_wait("aio", b"1")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(send(cluster.issuer.token("alice"))) == 0
    for refused in (cluster.issuer.token("alice", exp=0), cluster.issuer.token("alice", aud="other")):
        with pytest.raises(Exception, match="Unable to bootstrap"):
            asyncio.run(send(refused))


def test_coroutines_have_a_secured_cluster_too() -> None:
    from aiokafka import AIOKafkaProducer

    async def send() -> int:
        async with AsyncSecuredCluster({"carol": "s3cret"}) as cluster:
            assert cluster.client("PLAIN")["sasl.username"] == "carol"
            assert cluster.java_client("PLAIN")["security.protocol"] == "SASL_SSL"
            assert cluster.servers("PLAIN") == cluster.bootstrap_servers
            assert cluster.issuer.token("carol")
            producer = AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers,
                security_protocol="SASL_SSL",
                ssl_context=cluster.ssl_context(),
                sasl_mechanism="SCRAM-SHA-512",
                sasl_plain_username="carol",
                sasl_plain_password="s3cret",
            )
            await producer.start()
            try:
                return int((await producer.send_and_wait("aio", b"1")).offset)
            finally:
                await producer.stop()

    assert asyncio.run(send()) == 0


def test_brokers_read_the_keys_of_an_issuer_that_rotates(cluster: SecuredCluster) -> None:
    old = cluster.issuer.token("alice")
    cluster.issuer.rotate()
    client = AdminClient(cluster.client("OAUTHBEARER") | {"log_level": 0})
    assert client.list_topics(timeout=60).brokers
    assert cluster.issuer.token("alice").split(".")[0] != old.split(".")[0]


def answer(context: ssl.SSLContext, url: str, **form: str) -> tuple[int, dict[str, Any]]:
    data = urllib.parse.urlencode(form).encode()
    try:
        with urllib.request.urlopen(url, data=data, context=context, timeout=60) as found:
            return found.status, json.loads(found.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_issuer_gives_tokens_to_those_that_it_knows(cluster: SecuredCluster) -> None:
    url, context = cluster.issuer.token_url, cluster.ssl_context()
    asked = {"grant_type": "client_credentials", "client_id": "bob", "client_secret": "bob-secret"}
    code, given = answer(context, url, **asked)
    assert (code, given["token_type"], given["expires_in"]) == (200, "Bearer", 3600)
    assert len(given["access_token"].split(".")) == 3
    for wrong in ({"client_secret": "wrong"}, {"client_id": "eve"}):
        assert answer(context, url, **asked | wrong) == (401, {"error": "invalid_client"})
    assert answer(context, url, **asked | {"grant_type": "password"}) == (400, {"error": "unsupported_grant_type"})
    assert answer(context, cluster.issuer.keys_url, **asked)[0] == 400


def test_three_brokers_replicate_and_come_back() -> None:
    with SecuredCluster({"carol": "s3cret"}, brokers=3) as cluster:
        settings = cluster.client("SCRAM-SHA-512")
        address = settings.pop("bootstrap.servers")
        assert address.split(",") == [cluster.address(node_id) for node_id in (1, 2, 3)]
        produce_all(address, "t", [(None, b"1")], acks="all", **settings)
        admin = AdminClient(cluster.client("SCRAM-SHA-512"))
        admin.create_topics([NewTopic("ended", 3, 3)])["ended"].result(60)
        writer = Producer({"bootstrap.servers": address, "transactional.id": "writer", **settings})
        writer.init_transactions(60)
        writer.begin_transaction()
        for partition in range(3):  # of each broker one: the coordinator's markers go over TLS, too
            writer.produce("ended", b"%d" % partition, partition=partition)
        writer.commit_transaction(60)
        committed = settings | {"isolation.level": "read_committed"}
        eventually(lambda: len(read_all(address, "ended", 3, **committed)) == 3)
        cluster.kill(eventually(lambda: max(cluster.leader("t"), 0)))
        assert [each.value() for each in read_all(address, "t", **settings)] == [b"1"]
        cluster.restore()


def test_settings_go_through_a_controller_elsewhere(tmp_path: Path) -> None:
    """The broker checks them, the controller seals the secret, and the broker opens it."""
    keys = tmp_path / "secret.keys"
    keys.write_text(base64.b64encode(bytes(range(32))).decode())
    with SecuredCluster(brokers=1, controllers=1, settings={"odradek.secret.key.file": keys}) as cluster:
        admin = AdminClient(cluster.client("MUTUAL-TLS"))
        of_sasl = "listener.name.sasl."

        def change(key: str, value: str) -> None:
            entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
            for future in admin.incremental_alter_configs([resource]).values():
                future.result(60)

        users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_eve="apple";'
        change(f"{of_sasl}plain.sasl.jaas.config", users)
        eve = cluster.client("PLAIN") | {"sasl.username": "eve", "sasl.password": "apple"}
        assert AdminClient(eve).list_topics(timeout=60).brokers
        with pytest.raises(KafkaException, match="DIGEST-MD5 is not served"):
            change(f"{of_sasl}sasl.enabled.mechanisms", "DIGEST-MD5")
        with pytest.raises(KafkaException, match="No such file or directory"):
            change(f"{of_sasl}ssl.keystore.location", "/nowhere.pem")
