"""A node that is to guard its cluster in a way that it does not serve does not start, and never serves everybody."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from odradek.cli import errors
from odradek.cli.app import run
from tests.integration.test_bad_start import overrides, start_and_fail
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.node import Node

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("authorizer.class.name", "com.example.Authorizer", f"must be {AUTHORIZER}, or empty"),
        (
            "super.users",
            "User:admin;bob",
            "'bob' is not a principal: must be User:name, several separated by semicolons",
        ),
        ("principal.builder.class", "com.example.Principals", "ACLs would meet other principals"),
        ("create.topic.policy.class.name", "com.example.Policy", "topics would be created without this policy"),
        ("security.inter.broker.protocol", "SASL_SSL", "no listener has that protocol"),
    ],
)
@pytest.mark.parametrize("in_file", [True, False])
def test_a_node_with_unsupported_security_settings_does_not_start(
    key: str, value: str, said: str, in_file: bool, tmp_path: Path
) -> None:
    node = Node(tmp_path / "node")
    settings = {**node.overrides, key: value}
    if in_file:
        settings |= {"node.id": 1, "process.roles": "broker,controller", "controller.listener.names": "CONTROLLER"}
        config = tmp_path / "server.properties"
        config.write_text("".join(f"{name}={each}\n" for name, each in settings.items()))
        printed = start_and_fail("--config", str(config), cwd=tmp_path, code=5)
    else:
        printed = start_and_fail(*overrides(node, **{key.replace(".", "__"): value}), cwd=tmp_path, code=5)
    (line,) = printed.splitlines()
    assert line.startswith(f"odradek: {key}={value}: ")
    assert said in line
    assert not node.data_dir.exists()


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
def test_a_node_with_a_listener_without_a_mechanism_does_not_start(
    protocol: str, listener: str, tmp_path: Path
) -> None:
    node = Node(tmp_path / "node")
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | {listener: protocol}
    given = ",".join(f"{name}:{each}" for name, each in protocols.items())
    settings: dict[str, object] = {"listener__security__protocol__map": given, "sasl__enabled__mechanisms": "PLAIN"}
    if protocol == "SASL_SSL":
        settings |= Certificates(tmp_path / "certificates").server()
    printed = start_and_fail(*overrides(node, **settings), cwd=tmp_path, code=5)
    assert f"odradek: listener {listener}: plain.sasl.jaas.config: PLAIN needs it" in printed
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", node.port)), "it is served"


def test_a_directory_that_an_authorizer_guards_can_still_be_formatted(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    settings = {**Node(tmp_path / "node").overrides, "node.id": 1, "process.roles": "broker,controller"}
    settings |= {"controller.listener.names": "CONTROLLER", "authorizer.class.name": AUTHORIZER}
    config.write_text("".join(f"{name}={each}\n" for name, each in settings.items()))
    assert run(["storage", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(config)]) == errors.OK


def test_security_settings_without_effect_keep_no_node_from_starting(tmp_path: Path) -> None:
    """Settings of TLS and SASL without such a listener, which Kafka reads past as well; and those of ZooKeeper."""
    settings = {
        "authorizer.class.name": "",
        "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "security.inter.broker.protocol": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.client.auth": "required",
        "zookeeper.connect": "localhost:2181",
    }
    with Node(tmp_path / "node", dict(settings)) as node:
        log = node.log_text()
    assert "not honoured yet" not in log
    assert "unknown setting zookeeper.connect is ignored" in log
    assert "authorizer" not in log
