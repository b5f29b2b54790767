"""A node on its machine: its advertised address, Ctrl-C, snapshots by time, and a read-only disk."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.support.clients.confluent import produce_all
from tests.support.clients.wire import Wire
from tests.support.disks.file_system import read_only
from tests.support.nodes.cluster import Cluster, metadata
from tests.support.nodes.node import Node, accepts
from tests.support.waiting import eventually

WAIT_S = 90
LESS_THAN_IT_ASKED_ON_S = 45


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9"])
@pytest.mark.parametrize("bound", ["", "0.0.0.0"])
def test_a_client_gets_the_address_that_it_dialled(tmp_path: Path, bound: str, host: str) -> None:
    node = Node(tmp_path / "node")
    node.overrides["listeners"] = str(node.overrides["listeners"]).replace(
        f"127.0.0.1:{node.port}", f"{bound}:{node.port}"
    )
    with node, Wire(node.port, host=host) as wire:
        brokers = wire.request(ApiKey.METADATA, 12, MetadataRequest(topics=[])).brokers
        assert [(each.host, each.port) for each in brokers] == [(host, node.port)]
        request = FindCoordinatorRequest(key="g", key_type=0)
        found = eventually(
            lambda: None if (answer := wire.request(ApiKey.FIND_COORDINATOR, 3, request)).error_code else answer
        )
        assert (found.host, found.port) == (host, node.port)


@pytest.mark.parametrize("chosen", [None, "1500"])
def test_the_initial_rebalance_delay_is_zero_without_a_configuration_file(tmp_path: Path, chosen: str | None) -> None:
    key = "group.initial.rebalance.delay.ms"
    node = Node(tmp_path / "node", {key: chosen})
    if chosen is None:
        del node.overrides[key]
    with node:
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        served = admin.describe_configs([resource])[resource].result(WAIT_S)
        assert served[key].value == (chosen or "0")


def test_ctrl_c_stops_in_good_order(tmp_path: Path) -> None:
    node = Node(tmp_path / "node").start()
    produce_all(node.bootstrap, "kept", [(None, b"v")])
    process, node.process = node.process, None
    assert process is not None
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) == 0, node.log_text()[-2000:]
    assert "stopped" in node.log_text()
    assert "Traceback" not in node.log_text()
    assert (node.data_dir / ".kafka_cleanshutdown").exists()


def test_a_stop_waits_for_no_topic_that_somebody_asked_for(tmp_path: Path) -> None:
    """Without a controller no one creates the topic, and a stopping broker once repeated its request for a minute."""
    with Cluster(tmp_path, brokers=1, controllers=1) as cluster:
        (broker,), (controller,) = cluster.brokers, cluster.controllers
        metadata(broker)
        controller.kill()
        request = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
        with Wire(broker.plan.port) as wire:
            wire.send(ApiKey.METADATA, 12, request)
            time.sleep(0.5)
            # The second ends the wait; those that arrive while the process is paused count as one.
            deadline = time.monotonic() + LESS_THAN_IT_ASKED_ON_S
            while broker.running and time.monotonic() < deadline:
                os.kill(broker.pid, signal.SIGTERM)
                time.sleep(0.2)
            assert broker.process is not None and broker.process.poll() == 0
        assert "Traceback" not in broker.log_text()


def test_a_start_that_waits_for_the_quorum_is_stopped_in_good_order(tmp_path: Path) -> None:
    """Kept waiting, it would end after a minute with an error; a container runtime kills it after ten seconds."""
    with Cluster(tmp_path, brokers=1, controllers=1) as cluster:
        (broker,), (controller,) = cluster.brokers, cluster.controllers
        broker.stop()
        controller.kill()
        broker.launch()
        assert broker.process is not None
        eventually(lambda: accepts(broker.plan.port))
        broker.process.send_signal(signal.SIGTERM)
        assert broker.process.wait(WAIT_S) == 0, broker.log_text()[-2000:]
        assert "stopped before the start was complete" in broker.log_text()
        assert "Traceback" not in broker.log_text()
        broker.process = None
        controller.start()
        broker.start()
        metadata(broker)


def test_time_alone_makes_a_snapshot(tmp_path: Path) -> None:
    settings = {
        "metadata.log.max.snapshot.interval.ms": 200,
        "metadata.log.max.record.bytes.between.snapshots": 1 << 30,
    }
    with Node(tmp_path / "node", settings) as node:
        directory = node.data_dir / "__cluster_metadata-0"
        eventually(
            lambda: [path for path in directory.glob("*.checkpoint") if int(path.name.partition("-")[0])],
            lambda: sorted(path.name for path in directory.iterdir()),
        )


def test_a_data_directory_that_may_only_be_read(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    with node:
        produce_all(node.bootstrap, "kept", [(None, b"v")])
    before = {path: path.read_bytes() for path in node.data_dir.rglob("*") if path.is_file()}
    with read_only(node.data_dir):
        done = subprocess.run(node.command(), capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode not in (0, -9)
    assert "Traceback" not in done.stderr
    assert str(node.data_dir) in done.stderr
    assert "Read-only file system" in done.stderr
    assert {path: path.read_bytes() for path in node.data_dir.rglob("*") if path.is_file()} == before
    with node:
        pass
