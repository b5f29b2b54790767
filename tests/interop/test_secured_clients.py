"""Clients of every language over TLS, mutual TLS and each login: the table of docs/sasl.md, a test for each cell.

librdkafka's row is `tests/integration/test_secured_cluster.py`.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.testing import SecuredCluster
from odradek.testing.secured import LOGINS, Login
from tests.interop.packages import MissingError
from tests.interop.test_other_languages import HERE, build_go_program, install_node_program, run_program
from tests.support.clients.signing import signing
from tests.support.nodes.apache_kafka import TOOL_JVM_OPTIONS, java_command, require_kafka

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

every_login = pytest.mark.parametrize("login", LOGINS)
COUNT = 20
PAGE = HERE.parents[1] / "docs" / "sasl.md"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SecuredCluster]:
    with SecuredCluster() as cluster:
        yield cluster


def described(cluster: SecuredCluster, login: Login, topic: str, password: str = "alice-secret") -> str:
    """The JSON argument of our programs in other languages: servers, topic, login and credentials."""
    return json.dumps(
        {
            "servers": cluster.servers(login),
            "topic": topic,
            "login": login,
            "ca": str(cluster.ca),
            "certificate": str(cluster.certificate("alice")),
            "user": "alice",
            "password": password,
            "tokenUrl": cluster.issuer.token_url,
            "token": cluster.issuer.token("alice"),
        }
    )


@pytest.mark.slow
@pytest.mark.java
@every_login
def test_java(cluster: SecuredCluster, login: Login, tmp_path: Path) -> None:
    require_kafka()
    done = run_java(cluster, login, cluster.java_client(login), tmp_path)
    assert done.stdout.split()[-2:] == ["ok", str(COUNT)], done.stdout[-2000:] + done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.java
def test_java_is_refused_with_a_wrong_password(cluster: SecuredCluster, tmp_path: Path) -> None:
    require_kafka()
    settings = cluster.java_client("SCRAM-SHA-512")
    settings["sasl.jaas.config"] = settings["sasl.jaas.config"].replace("alice-secret", "wrong")
    done = run_java(cluster, "refused", settings, tmp_path)
    assert done.returncode != 0
    assert "SaslAuthenticationException" in done.stderr


@pytest.mark.slow
@pytest.mark.java
def test_java_signs_for_its_tokens(cluster: SecuredCluster, tmp_path: Path) -> None:
    """KIP-1139, by the settings with which our own clients do so."""
    require_kafka()
    done = run_java(cluster, "signed", signing(cluster, "java", tmp_path), tmp_path)
    assert done.stdout.split()[-2:] == ["ok", str(COUNT)], done.stdout[-2000:] + done.stderr[-3000:]


def run_java(
    cluster: SecuredCluster, topic: str, settings: dict[str, str], directory: Path
) -> subprocess.CompletedProcess[str]:
    file = directory / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    allowed = {"urls": cluster.issuer.token_url, "files": str(directory / "key")}
    options = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{kind}={text}" for kind, text in allowed.items()]
    command = java_command(str(HERE / "java" / "Secured.java"), [file, f"java-{topic}"], [*TOOL_JVM_OPTIONS, *options])
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def go() -> str:
    try:
        return str(build_go_program("secured"))
    except MissingError as error:
        pytest.skip(f"no franz-go: {error}")


@pytest.mark.slow
@every_login
def test_go(cluster: SecuredCluster, login: Login, go: str) -> None:
    assert run_program([go, described(cluster, login, f"go-{login}")]).split() == ["ok", str(COUNT)]


@pytest.mark.slow
def test_go_is_refused_with_a_wrong_password(cluster: SecuredCluster, go: str) -> None:
    asked = described(cluster, "SCRAM-SHA-512", "go-refused", "wrong")
    done = subprocess.run([go, asked], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "SASL_AUTHENTICATION_FAILED" in done.stderr


@pytest.fixture(scope="module")
def node() -> list[str]:
    try:
        return ["node", str(install_node_program() / "secured.js")]
    except MissingError as error:
        pytest.skip(f"no kafkajs: {error}")


@pytest.mark.slow
@every_login
def test_node(cluster: SecuredCluster, login: Login, node: list[str]) -> None:
    printed = run_program(
        [*node, described(cluster, login, f"node-{login}")], KAFKAJS_NO_PARTITIONER_WARNING="1", NODE_NO_WARNINGS="1"
    )
    assert printed.split() == ["ok", str(COUNT)]


@pytest.mark.slow
def test_node_is_refused_with_a_wrong_password(cluster: SecuredCluster, node: list[str]) -> None:
    asked = described(cluster, "SCRAM-SHA-512", "node-refused", "wrong")
    done = subprocess.run([*node, asked], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "SASLAuthenticationError" in done.stderr


@every_login
def test_kafka_python(cluster: SecuredCluster, login: Login) -> None:
    program = [sys.executable, "-W", "ignore", "-m", "tests.interop.secured_kafka_python"]
    assert run_program([*program, described(cluster, login, f"kafka-python-{login}")]).split() == ["ok", str(COUNT)]


@every_login
def test_aiokafka(cluster: SecuredCluster, login: Login) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
        async def token(self) -> str:
            return cluster.issuer.token("alice")

    async def round_trip() -> list[bytes]:
        settings, topic = of_aiokafka(cluster, login, Tokens()), f"aiokafka-{login}"
        async with AIOKafkaProducer(**settings) as producer:
            for number in range(COUNT):
                await producer.send_and_wait(topic, str(number).encode())
        async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), 60)).value for _ in range(COUNT)]

    assert asyncio.run(round_trip()) == [str(number).encode() for number in range(COUNT)]


def of_aiokafka(cluster: SecuredCluster, login: Login, tokens: object) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.servers(login),
        "security_protocol": "SSL" if login.endswith("TLS") else "SASL_SSL",
        "ssl_context": cluster.ssl_context("alice" if login == "MUTUAL-TLS" else None),
    }
    if login == "OAUTHBEARER":
        settings |= {"sasl_mechanism": login, "sasl_oauth_token_provider": tokens}
    elif not login.endswith("TLS"):
        settings |= {"sasl_mechanism": login, "sasl_plain_username": "alice", "sasl_plain_password": "alice-secret"}
    return settings


def test_the_table_of_the_page_names_tests() -> None:
    head, _, *rows = re.findall(r"^\|.*\|$", PAGE.read_text().partition("## Clients")[2].partition("\n#")[0], re.M)
    assert tuple(each.strip() for each in head.split("|")[2:-2]) == LOGINS
    assert len(rows) == 6
    for row in rows:
        file, test = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", row)[0]
        text = (HERE.parents[1] / file).read_text()
        marked = r"(?:@every_login|@pytest\.mark\.parametrize\(\"login\", LOGINS\))"
        assert re.search(rf"^{marked}\ndef {test}\(", text, re.MULTILINE), row
