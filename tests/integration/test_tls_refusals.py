"""A wrong authority, an expired certificate and a wrong name: refused, with the reason in the logs of both ends.

The client is librdkafka, our own commands, or another node. Clients' certificates are in `test_tls.py`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from odradek.cli import errors
from tests.support.clients.cli import odradek
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.node import Node, free_port
from tests.support.waiting import eventually

UNVERIFIED = "broker certificate could not be verified"
EXPIRED = datetime.timedelta(days=-1)


@dataclass(frozen=True)
class Refusal:
    """The reasons that both ends give for a failed handshake.

    Attributes:
        of_client: the reason of our own client; librdkafka has one reason for all faults.
        of_node: the reasons of the node.
    """

    of_client: str
    of_node: tuple[str, ...]


REFUSALS = {
    "authority": Refusal(
        "self-signed certificate in certificate chain",
        ("the client does not trust the authority of this node's certificate",),
    ),
    "expired": Refusal(
        "certificate has expired",
        ("the client says that this node's certificate has expired",),
    ),
    "name": Refusal(
        "IP address mismatch, certificate is not valid for '127.0.0.1'",
        ("the client refuses this node's certificate",),
    ),
}
each_fault = pytest.mark.parametrize("fault", REFUSALS)


class FaultyNode(Node):
    """A node with listeners of TLS whose certificates have one fault each, by the fault, and one without."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.trusted = Certificates(directory / "certificates")
        other = Certificates(directory / "other", "Another authority")
        keystores = {
            "authority": other.issue("node"),
            "expired": self.trusted.issue("expired", valid=EXPIRED),
            "name": self.trusted.issue("elsewhere", ["kafka.example"]),
            # This one has no fault, and asks clients for theirs.
            "mutual": self.trusted.issue("whole"),
        }
        self.keystores = keystores
        self.ports = {fault: free_port() for fault in keystores}
        self.overrides |= {
            "listeners": ",".join(
                [f"{fault.upper()}://127.0.0.1:{port}" for fault, port in self.ports.items()]
                + [f"CONTROLLER://127.0.0.1:{self.controller_port}", f"PLAINTEXT://127.0.0.1:{self.port}"]
            ),
            "listener.security.protocol.map": ",".join(
                ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *(f"{fault.upper()}:SSL" for fault in keystores)]
            ),
            "inter.broker.listener.name": "PLAINTEXT",
        }
        for fault, keystore in keystores.items():
            self.overrides |= {
                f"listener.name.{fault}.ssl.keystore.type": "PEM",
                f"listener.name.{fault}.ssl.keystore.location": keystore,
            }
        self.overrides |= {
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.truststore.type": "PEM",
            "listener.name.mutual.ssl.truststore.location": self.trusted.ca,
        }

    def address(self, fault: str) -> str:
        return f"127.0.0.1:{self.ports[fault]}"

    def said_why(self, fault: str, after: int) -> bool:
        """Whether a handshake on the listener failed for the reason, in the log from a place on."""
        lines = [each for each in self.log_text()[after:].splitlines() if f"listener={fault.upper()}" in each]
        return any(reason in each for reason in REFUSALS[fault].of_node for each in lines)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyNode]:
    with FaultyNode(tmp_path_factory.mktemp("node")) as node:
        yield node


@each_fault
def test_librdkafka_refuses_a_node(node: FaultyNode, fault: str) -> None:
    begin, said = len(node.log_text()), []
    client = AdminClient(
        {
            "bootstrap.servers": node.address(fault),
            **node.trusted.client(),
            "log_level": 0,
            "error_cb": lambda error: said.append(str(error)),  # type: ignore[dict-item]  # what it returns does not matter
        }
    )
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    eventually(lambda: client.poll(0.1) is not None and UNVERIFIED in " ".join(said), said)
    eventually(lambda: node.said_why(fault, begin))


@each_fault
def test_our_commands_refuse_a_node(node: FaultyNode, fault: str, tmp_path: Path) -> None:
    begin, config = len(node.log_text()), tmp_path / "client.properties"
    config.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={node.trusted.ca}\n")
    ran = odradek(node.address(fault), "topics", "list", "--command-config", config, code=errors.UNREACHABLE)
    assert REFUSALS[fault].of_client in ran.err
    assert ran.err.count("\n") == 1
    eventually(lambda: node.said_why(fault, begin))


@each_fault
def test_a_node_refuses_another_node(node: FaultyNode, fault: str, tmp_path: Path) -> None:
    """A broker that takes a listener of the faulty node for the controllers': it says at once what is wrong."""
    begin, other = len(node.log_text()), Node(tmp_path)
    other.overrides |= {
        "node.id": 2,
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://127.0.0.1:{other.port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
        "controller.quorum.voters": f"1@{node.address(fault)}",
        "listener.name.controller.ssl.truststore.type": "PEM",
        "listener.name.controller.ssl.truststore.location": node.trusted.ca,
    }
    other.launch()
    try:
        eventually(lambda: REFUSALS[fault].of_client in other.log_text(), "the reason in the log of the broker")
        eventually(lambda: node.said_why(fault, begin), "the reason in the log of the node")
    finally:
        other.kill()


@pytest.mark.parametrize(
    ("fault", "said"),
    [("", "certificate required"), ("expired", "certificate expired"), ("authority", "unknown ca")],
)
def test_our_commands_hear_why_a_node_refuses_them(node: FaultyNode, fault: str, said: str, tmp_path: Path) -> None:
    config, keystore = tmp_path / "client.properties", node.keystores.get(fault)
    own = "" if keystore is None else f"ssl.keystore.type=PEM\nssl.keystore.location={keystore}\n"
    config.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={node.trusted.ca}\n{own}"
    )
    ran = odradek(node.address("mutual"), "topics", "list", "--command-config", config, code=errors.UNREACHABLE)
    assert "ended TLS: " in ran.err and f"alert {said}; " in ran.err, ran.err
    assert "is ssl.keystore.location in --command-config a certificate that the listener trusts?" in ran.err
