"""Apache Kafka's tools that talk to controllers directly (KIP-919), and through brokers that are none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing.processes import ProcessCluster
from tests.support.nodes.apache_kafka import require_kafka, run_tool
from tests.support.nodes.node import free_port
from tests.support.nodes.quorum_processes import QuorumProcess
from tests.support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.timeout(300)]

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
CONFIGS = "kafka.admin.ConfigCommand"
CONTROLLER = 1001


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    require_kafka()
    with ProcessCluster(tmp_path_factory.mktemp("cluster"), brokers=2, controllers=1) as running:
        yield running


def at_controller(cluster: ProcessCluster, main: str, *arguments: object) -> str:
    address = f"127.0.0.1:{cluster[CONTROLLER].plan.controller_port}"
    return run_tool(main, _with(main, "--bootstrap-controller", address, arguments)).stdout


def at_broker(cluster: ProcessCluster, main: str, *arguments: object) -> str:
    return run_tool(main, _with(main, "--bootstrap-server", cluster[2].bootstrap, arguments)).stdout


def _with(main: str, flag: str, address: str, arguments: tuple[object, ...]) -> list[object]:
    """kafka-cluster wants its command first, the other tools their bootstrap."""
    return [*arguments, flag, address] if main == CLUSTER else [flag, address, *arguments]


def same_features(cluster: ProcessCluster) -> bool:
    return at_controller(cluster, FEATURES, "describe") == at_broker(cluster, FEATURES, "describe")


def test_the_quorum_is_the_same_seen_from_both_sides(cluster: ProcessCluster) -> None:
    for ask in (at_controller, at_broker):
        status = ask(cluster, QUORUM, "describe", "--status")
        assert cluster.cluster_id in status and re.search(rf"LeaderId:\s+{CONTROLLER}\b", status)
        rows = [line.split() for line in ask(cluster, QUORUM, "describe", "--replication").splitlines()[1:]]
        assert {(row[0], row[-1]) for row in rows if row} == {
            (str(CONTROLLER), "Leader"),
            ("1", "Observer"),
            ("2", "Observer"),
        }


def test_features(cluster: ProcessCluster) -> None:
    eventually(lambda: same_features(cluster))


def test_the_cluster_id_and_the_endpoints(cluster: ProcessCluster) -> None:
    assert cluster.cluster_id in at_controller(cluster, CLUSTER, "cluster-id")
    endpoints = at_controller(cluster, CLUSTER, "list-endpoints")
    assert str(cluster[CONTROLLER].plan.controller_port) in endpoints


@pytest.mark.slow
def test_settings_are_changed_at_the_controller_and_hold_at_brokers(cluster: ProcessCluster) -> None:
    of_brokers = ("--entity-type", "brokers", "--entity-default")
    at_controller(cluster, CONFIGS, "--alter", *of_brokers, "--add-config", "log.retention.ms=777000")
    eventually(lambda: "log.retention.ms=777000" in at_broker(cluster, CONFIGS, "--describe", *of_brokers))


def test_a_broker_that_is_gone_for_good_is_unregistered(cluster: ProcessCluster) -> None:
    cluster[1].stop()
    try:
        at_controller(cluster, CLUSTER, "unregister", "--id", 1)
        listing = (CLUSTER, "list-endpoints", "--include-fenced-brokers")
        eventually(lambda: str(cluster[1].plan.port) not in at_broker(cluster, *listing))
    finally:
        cluster[1].start()


@pytest.mark.slow  # test_a_static_quorum_is_made_dynamic raises a feature, too
def test_metadata_version_is_raised_by_the_command_of_the_page(tmp_path: Path) -> None:
    """The command of docs/operations.md; tests/integration/test_operations_page.py compares their words."""
    require_kafka()
    port, voting = free_port(), free_port()
    properties: dict[str, object] = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{voting}",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{voting}",
    }
    node = QuorumProcess(tmp_path, 1, "broker,controller", properties, port)
    where = ["--bootstrap-server", f"127.0.0.1:{port}"]
    level = re.compile(r"Feature: metadata.version\s.*FinalizedVersionLevel: (\S+)")
    with node.format("--standalone", "--release-version", "4.2"):
        assert level.findall(run_tool(FEATURES, [*where, "describe"]).stdout) == ["4.2-IV1"]
        with pytest.raises(AssertionError, match=r"share\.version|streams\.version"):
            run_tool(FEATURES, [*where, "upgrade", "--release-version", "4.3"])
        assert level.findall(run_tool(FEATURES, [*where, "describe"]).stdout) == ["4.2-IV1"]
        raised = run_tool(FEATURES, [*where, "upgrade", "--feature", "metadata.version=30"]).stdout
        assert "was upgraded to 30" in raised
        eventually(lambda: level.findall(run_tool(FEATURES, [*where, "describe"]).stdout) == ["4.3-IV0"])


@pytest.mark.slow
def test_a_static_quorum_is_made_dynamic(cluster: ProcessCluster) -> None:
    """Last: the quorum of these tests is another one from here on."""
    assert re.search(r"Feature: kraft.version\s.*FinalizedVersionLevel: 0", at_broker(cluster, FEATURES, "describe"))
    assert "was upgraded to 1" in at_broker(cluster, FEATURES, "upgrade", "--feature", "kraft.version=1")
    level = re.compile(r"Feature: kraft.version\s.*FinalizedVersionLevel: 1")
    eventually(lambda: level.search(at_broker(cluster, FEATURES, "describe")) is not None)
    eventually(lambda: same_features(cluster))
    voters = re.search(r"CurrentVoters:\s+(.*)", at_broker(cluster, QUORUM, "describe", "--status"))
    assert voters is not None and re.search(r'"directoryId": "(?!AAAAAAAAAAAAAAAAAAAAAA)[\w-]{22}"', voters[1])
    cluster[CONTROLLER].restart()
    with pytest.raises(AssertionError, match="downgrade"):
        at_broker(cluster, FEATURES, "downgrade", "--feature", "kraft.version=0")
