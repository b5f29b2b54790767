"""Listeners that are added, removed and moved while a broker runs, for stock clients (KIP-226)."""

from __future__ import annotations

import base64
import re
import shlex
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.clients.api_calls import Calls
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.cluster import Cluster, await_in_sync, topic_at
from tests.support.nodes.node import Node, accepts, free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.only_ours

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "a"}
MAP = "listener.security.protocol.map"
OF_SECURE = "listener.name.secure."


def change(
    bootstrap: str,
    changes: Mapping[str, str | None],
    broker: int = 1,
    operation: AlterConfigOpType = AlterConfigOpType.SET,
) -> str:
    """Change settings of a broker; the error, or "". None deletes a setting."""
    entries = [
        ConfigEntry(key, text, incremental_operation=AlterConfigOpType.DELETE if text is None else operation)
        for key, text in changes.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=entries)
    client = AdminClient({"bootstrap.servers": bootstrap})
    try:
        client.incremental_alter_configs([resource])[resource].result(60)
    except KafkaException as error:
        return str(error.args[0].str())
    return ""


def at(port: int) -> str:
    return f"127.0.0.1:{port}"


class Changed:
    """A broker, and the value of `listeners` with more of them."""

    def __init__(self, directory: Path) -> None:
        self.node = Node(directory)
        self.bootstrap = at(self.node.port)

    def listeners(self, *more: str) -> str:
        return ",".join([str(self.node.overrides["listeners"]), *more])

    def change(self, **changes: str | None) -> str:
        return change(self.bootstrap, changes)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changed]:
    changed = Changed(tmp_path_factory.mktemp("node"))
    protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT,OTHER:PLAINTEXT,SECURE:SASL_SSL"
    keys = tmp_path_factory.mktemp("keys") / "secret.keys"
    keys.write_text(base64.b64encode(bytes(range(32))).decode())
    changed.node.overrides |= {MAP: protocols, "odradek.secret.key.file": keys}
    with changed.node:
        yield changed


def test_the_commands_of_the_page_on_tls(changed: Changed, tmp_path: Path) -> None:
    port = free_port()
    add, delete = _commands_of_the_page()
    controller, plain = str(changed.node.overrides["listeners"]).split(",")
    # The page's inter-broker listener has another name than this node's.
    add[-1] = re.sub(r"INTERNAL://[^,]*", plain, add[-1]).replace("INTERNAL:", "PLAINTEXT:")
    add[-1] = re.sub(r"CONTROLLER://[^\]]*", controller, add[-1]).replace("://:9093", f"://127.0.0.1:{port}")
    certificates = Certificates(tmp_path)
    add[-1] = add[-1].replace("/etc/odradek/kafka-1.pem", str(certificates.issue("node")))
    odradek(changed.bootstrap, *add)
    client = AdminClient({"bootstrap.servers": at(port), **certificates.client()})
    eventually(lambda: accepts(port) and client.list_topics(timeout=60).brokers)
    odradek(changed.bootstrap, *delete)
    eventually(lambda: not accepts(port))
    assert change(changed.bootstrap, dict.fromkeys([MAP, f"{OF_SECURE}ssl.keystore.type"])) == ""
    assert change(changed.bootstrap, {f"{OF_SECURE}ssl.keystore.location": None}) == ""


def _commands_of_the_page() -> list[list[str]]:
    page = (Path(__file__).resolve().parents[2] / "docs" / "tls.md").read_text()
    section = page[page.index("## Listeners that change while a broker runs") :]
    return [shlex.split(line)[1:] for line in re.findall(r"^odradek configs alter .*$", section, re.MULTILINE)]


def test_an_added_listener_serves_survives_a_restart_and_is_removed(changed: Changed) -> None:
    port = free_port()
    assert changed.change(listeners=changed.listeners(f"EXTRA://127.0.0.1:{port}")) == ""
    eventually(lambda: accepts(port))
    create_topic(changed.bootstrap, "added")
    eventually(lambda: _brokers(port) == [at(port)])
    produce_all(at(port), "added", [(None, b"one")])
    changed.node.stop()
    changed.node.start()
    eventually(lambda: accepts(port) and _brokers(port) == [at(port)])
    assert [each.value() for each in read_all(at(port), "added")] == [b"one"]
    assert _brokers(changed.node.port) == [changed.bootstrap]
    with socket.create_connection(("127.0.0.1", port), 10) as idle:
        assert changed.change(listeners=None) == ""
        idle.settimeout(60)
        assert idle.recv(1) == b"", "the connections of a removed listener end"
    eventually(lambda: not accepts(port))
    assert [each.value() for each in read_all(changed.bootstrap, "added")] == [b"one"]


def _brokers(port: int) -> list[str]:
    """The addresses of all brokers, as a client of this listener gets them."""
    client = AdminClient({"bootstrap.servers": at(port)})
    return [f"{each.host}:{each.port}" for each in client.list_topics(timeout=60).brokers.values()]


def test_a_listener_is_moved(changed: Changed) -> None:
    first, second = free_port(), free_port()
    assert changed.change(listeners=changed.listeners(f"EXTRA://127.0.0.1:{first}")) == ""
    eventually(lambda: accepts(first) and _brokers(first) == [at(first)])
    with socket.create_connection(("127.0.0.1", first), 10) as idle:
        assert changed.change(listeners=changed.listeners(f"EXTRA://127.0.0.1:{second}")) == ""
        eventually(lambda: accepts(second) and not accepts(first) and _brokers(second) == [at(second)])
        idle.settimeout(60)
        assert idle.recv(1) == b"", "its client would go on with the old address"
    text = changed.change(listeners=changed.listeners(f"EXTRA://192.0.2.1:{second}"))
    assert f"listeners: EXTRA://192.0.2.1:{second}: the address is not of this machine" in text
    assert changed.change(listeners=changed.listeners(f"EXTRA://:{second}")) == "", "all interfaces, on the same port"
    eventually(lambda: "listener=EXTRA address=:" in changed.node.log_text())
    eventually(lambda: accepts(second))
    assert changed.change(listeners=None) == ""
    eventually(lambda: not accepts(second))


def test_a_secured_listener_is_added_with_its_settings(changed: Changed, tmp_path: Path) -> None:
    certificates, port = Certificates(tmp_path), free_port()
    prefix = OF_SECURE
    login = f"{prefix}plain.sasl.jaas.config"
    settings = {
        **{key: str(text) for key, text in certificates.server(prefix).items()},
        "listeners": changed.listeners(f"SECURE://127.0.0.1:{port}"),
        f"{prefix}sasl.enabled.mechanisms": "PLAIN",
        # Read when a listener is bound: a running one refuses it, a new one has it.
        f"{prefix}connections.max.reauth.ms": "3600000",
    }
    assert "listener SECURE: plain.sasl.jaas.config: PLAIN needs it" in change(changed.bootstrap, settings)
    assert not accepts(port)
    settings[login] = f'{PLAIN} user_alice="a";'
    assert change(changed.bootstrap, settings) == ""
    eventually(lambda: accepts(port))
    create_topic(changed.bootstrap, "secured")
    client = {**certificates.client(), **LOGIN, "security.protocol": "sasl_ssl"}
    eventually(lambda: AdminClient({"bootstrap.servers": at(port), **client}).list_topics(timeout=60).brokers)
    produce_all(at(port), "secured", [(None, b"one")], **{key.replace(".", "_"): text for key, text in client.items()})
    text = change(changed.bootstrap, {f"{prefix}connections.max.reauth.ms": "1"})
    assert "cannot be updated dynamically for existing listener SECURE" in text
    other = certificates.issue("other")
    assert "is of CN=other" in change(changed.bootstrap, {f"{prefix}ssl.keystore.location": str(other)})
    assert change(changed.bootstrap, dict.fromkeys(settings)) == ""
    eventually(lambda: not accepts(port))
    assert "invalid" not in changed.node.log_text()


def test_changes_that_would_cut_the_broker_off_are_refused(changed: Changed) -> None:
    node = changed.node
    controller, plain = str(node.overrides["listeners"]).split(",")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = {
            f"{controller},{plain},EXTRA://127.0.0.1:{taken.getsockname()[1]}": "address already in use",
            f"{controller},{plain},EXTRA://192.0.2.1:{free_port()}": "the address is not of this machine",
            f"{controller},{plain},UNKNOWN://127.0.0.1:{free_port()}": "listener UNKNOWN has no entry in " + MAP,
            f"{controller},{plain},EXTRA": "'EXTRA' must be NAME://host:port",
            f"{controller},{plain},EXTRA://127.0.0.1:{node.port}": f"{node.port} stands twice",
            f"{controller},EXTRA://127.0.0.1:{free_port()}": "brokers connect to each other by PLAINTEXT",
            f"{plain}": "a controller needs one of controller.listener.names",
            f"CONTROLLER://127.0.0.1:{free_port()},{plain}": "CONTROLLER is a controller's listener",
            f"{controller},{plain},SECURE://127.0.0.1:{free_port()}": "SECURE",
        }
        for listeners, reason in refused.items():
            text = changed.change(listeners=listeners)
            assert reason in text, (listeners, text)
    text = change(changed.bootstrap, {MAP: "CONTROLLER:PLAINTEXT,PLAINTEXT:SSL"})
    assert "Security protocol cannot be updated for existing listener PLAINTEXT" in text
    assert read_all(changed.bootstrap, "added")


def test_only_a_broker_adds_to_the_listeners_of_its_file(changed: Changed) -> None:
    more = AlterableConfig(name="listeners", config_operation=2, value="EXTRA://127.0.0.1:1")
    resource = AlterConfigsResource(resource_type=4, resource_name="2", configs=[more])
    with Calls(changed.node.controller_port) as calls:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = calls.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_REQUEST
    assert answer.error_message == "only broker 2 knows the listeners of its file: send it this change"


def test_clients_use_a_listener_that_was_added_to_every_broker(tmp_path: Path) -> None:
    """Each broker registers the address again, and no partition changes its leader for that."""
    settings = {MAP: "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT"}
    with Cluster(tmp_path, brokers=2, settings=settings) as cluster:
        create_topic(cluster.bootstrap_servers, "everywhere", 4, copies=2)
        await_in_sync(cluster.brokers, "everywhere", partitions=4, copies=2)
        epochs = _leader_epochs(cluster)
        added = []
        for node in cluster.brokers:
            port = free_port()
            added_one = {"listeners": f"EXTRA://127.0.0.1:{port}"}
            assert change(cluster.bootstrap_servers, added_one, node.plan.node_id, AlterConfigOpType.APPEND) == ""
            eventually(partial(accepts, port))
            added.append(port)
        eventually(lambda: sorted(_brokers(added[0])) == sorted(map(at, added)))
        produce_all(at(added[0]), "everywhere", [(str(number).encode(), b"value") for number in range(100)])
        assert len(read_all(at(added[1]), "everywhere", 4)) == 100
        assert _leader_epochs(cluster) == epochs
        _move_the_inter_broker_listener(cluster, added[1])
        produce_all(at(added[1]), "everywhere", [(str(number).encode(), b"value") for number in range(100)])
        await_in_sync(cluster.brokers[1:], "everywhere", partitions=4, copies=2)
        assert _leader_epochs(cluster) == epochs


def _move_the_inter_broker_listener(cluster: Cluster, port_of_other: int) -> None:
    """Move it on the first broker; clients are served by another one meanwhile."""
    moved = cluster.brokers[0]
    resource = ConfigResource(ResourceType.BROKER, str(moved.plan.node_id))
    client = AdminClient({"bootstrap.servers": at(port_of_other)})
    listeners = client.describe_configs([resource])[resource].result(60)["listeners"].value
    present, port = f"PLAINTEXT://127.0.0.1:{moved.plan.port}", free_port()
    assert present in listeners
    wanted = {"listeners": listeners.replace(present, f"PLAINTEXT://127.0.0.1:{port}")}
    assert change(at(port_of_other), wanted, moved.plan.node_id) == ""
    eventually(lambda: accepts(port) and not accepts(moved.plan.port))
    eventually(lambda: at(port) in _brokers(cluster.brokers[1].plan.port))


def _leader_epochs(cluster: Cluster) -> list[int]:
    return [each.leader_epoch for each in topic_at(cluster.brokers[1], "everywhere").partitions]
