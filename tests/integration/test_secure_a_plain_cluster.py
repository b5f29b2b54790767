"""A plain cluster becomes a secured one by the steps of docs/security.md, while clients write and read."""

from __future__ import annotations

import re
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

from odradek.settings.properties import format_properties
from odradek.testing.processes import NodeProcess
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import read_all
from tests.support.clients.steady_producer import Steady
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.cluster import Cluster, await_in_sync
from tests.support.nodes.node import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text()
SECTION = PAGE[PAGE.index("## From a plain cluster to a secured one") :]
TOPIC = "t"
# The records that each client must produce and consume in a step.
WRITTEN = 20


def step(number: int) -> dict[str, str]:
    """The settings of a step, as the page has them."""
    block = re.search(rf"```properties\n# step {number}: .*?\n(.*?)```", SECTION, re.DOTALL)
    assert block is not None, number
    return dict(line.split("=", 1) for line in block[1].splitlines())


class Secured:
    """The cluster on its way."""

    def __init__(self, cluster: Cluster, certificates: Certificates) -> None:
        self.cluster = cluster
        self.ports = {node.node_id: free_port() for node in cluster.brokers}
        self._settings: dict[str, str] = {}
        self._stores = {key: str(value) for key, value in certificates.server("listener.name.secure.").items()}
        self._ca = str(certificates.ca)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def client(self, user: str, password: str) -> dict[str, str | int | float | bool]:
        return {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": self._ca,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        }

    def take_step(self, number: int) -> None:
        """Restart one node after the other with the settings of a step."""
        self._settings |= step(number)
        for node in self.cluster.brokers:
            ports = {"PLAINTEXT": node.plan.port, "SECURE": self.ports[node.node_id]}
            ports["CONTROLLER"] = node.plan.controller_port
            listeners = ",".join(
                f"{name}://127.0.0.1:{ports[name]}" for name in re.findall(r"(\w+)://", self._settings["listeners"])
            )
            properties = {**node.plan.properties, **self._settings, **self._stores, "listeners": listeners}
            node.plan.config.write_text(format_properties(properties))
            node.stop()
            node.launch()
            eventually(lambda node=node: self._is_in_sync(node))

    def _is_in_sync(self, node: NodeProcess) -> bool:
        security = {} if "PLAINTEXT" in self._settings["listeners"] else self.client("admin", "of admin")
        bootstrap = f"127.0.0.1:{self.ports[node.node_id] if security else node.plan.port}"
        client = AdminClient({"bootstrap.servers": bootstrap, **security})
        found = client.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
        return len(found) == 3 and all(len(each.isrs) == 3 for each in found.values())


def test_a_plain_cluster_is_secured_without_downtime(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    passwords = {"node": "between", "admin": "of admin", "alice": "of alice"}
    with Cluster(tmp_path / "cluster") as cluster:
        plain = cluster.bootstrap_servers
        secured = Secured(cluster, certificates)
        client = AdminClient({"bootstrap.servers": plain})
        client.create_topics([NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "2"})])[TOPIC].result(60)
        await_in_sync(cluster.brokers, TOPIC, partitions=3, copies=3)
        for name, password in passwords.items():
            (tmp_path / name).write_text(password)
            odradek(plain, "users", "add", name, "--password-file", tmp_path / name)
        with Steady(plain, TOPIC, 0) as before:
            eventually(lambda: len(before.acknowledged) > WRITTEN)
            secured.take_step(1)
        alice = secured.client("alice", passwords["alice"])
        with Steady(secured.bootstrap, TOPIC, 1, alice) as after:
            eventually(lambda: len(after.acknowledged) > WRITTEN)
            secured.take_step(2)
            admin = AdminClient({"bootstrap.servers": secured.bootstrap, **secured.client("admin", passwords["admin"])})
            allowed = [
                (AclOperation.ALL, ResourceType.TOPIC, TOPIC),
                (AclOperation.READ, ResourceType.GROUP, "reader-without-a-group"),
            ]
            for operation, kind, name in allowed:
                rule = AclBinding(
                    kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
                )
                admin.create_acls([rule])[rule].result(60)
            secured.take_step(3)
            so_far = len(after.acknowledged)
            eventually(lambda: len(after.acknowledged) > so_far + WRITTEN)
        assert not before.errors and not after.errors
        written = {value for value, _ in before.acknowledged}, {value for value, _ in after.acknowledged}
        given: dict[str, Any] = {key.replace(".", "_"): value for key, value in alice.items()}
        found = read_all(secured.bootstrap, TOPIC, 3, **given)
        for partition, values in enumerate(written):
            assert {message.value() for message in found if message.partition() == partition} == values
        mallory = AdminClient({"bootstrap.servers": secured.bootstrap, **secured.client("node", "wrong")})
        with pytest.raises(Exception, match=r"transport|timed out|Local"):
            mallory.list_topics(timeout=5)
