"""Apache Kafka's tools that move replicas and leaders, against a cluster of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.testing.processes import ProcessCluster
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import produce_all, read_all
from tests.support.nodes.apache_kafka import require_kafka, run_tool
from tests.support.nodes.cluster import await_in_sync
from tests.support.nodes.node import Node
from tests.support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.timeout(300)]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    require_kafka()
    # Leaders go back to where they belong when a test says so, and not by themselves after five minutes.
    settings = {"auto.leader.rebalance.enable": "false"}
    folder = tmp_path_factory.mktemp("cluster")
    with ProcessCluster(folder, brokers=4, racks=["a", "b"], settings=settings) as running:
        yield running


def tool(cluster: ProcessCluster, main: str, *arguments: object) -> str:
    return run_tool(main, ["--bootstrap-server", cluster.bootstrap_servers, *arguments]).stdout


def partitions(cluster: ProcessCluster, topic: str) -> dict[int, dict[str, Any]]:
    (shown,) = odradek(cluster.bootstrap_servers, "topics", "describe", "--topic", topic, "--json").json
    return {each["partition"]: each for each in shown["partitions"]}


def create(cluster: ProcessCluster, topic: str, assignment: str) -> None:
    """Create a topic of two replicas, and wait until every broker knows it: a tool may ask any of them."""
    odradek(cluster.bootstrap_servers, "topics", "create", "--topic", topic, "--replica-assignment", assignment)
    await_in_sync(cluster.brokers, topic, partitions=assignment.count(",") + 1, copies=2, timeout_s=120)


def test_kafka_reassign_partitions(cluster: ProcessCluster, tmp_path: Path) -> None:
    create(cluster, "moved", "1:2,2:1")
    produce_all(cluster.bootstrap_servers, "moved", [(b"%d" % number, b"v") for number in range(100)], acks="all")
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    generated = tool(cluster, REASSIGN, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "3,4")
    proposal = generated.strip().splitlines()[-1]
    assert {broker for entry in json.loads(proposal)["partitions"] for broker in entry["replicas"]} == {3, 4}
    plan = tmp_path / "plan.json"
    plan.write_text(proposal)
    begun = tool(cluster, REASSIGN, "--execute", "--reassignment-json-file", plan, "--throttle", 50_000_000)
    assert "Successfully started partition reassignments for moved-0,moved-1" in begun

    def verified() -> bool:
        reported = tool(cluster, REASSIGN, "--verify", "--reassignment-json-file", plan)
        return all(f"Reassignment of partition moved-{number} is completed." in reported for number in range(2))

    eventually(verified, "both partitions have moved")

    def moved() -> bool:
        shown = partitions(cluster, "moved").values()
        return all(sorted(each["replicas"]) == sorted(each["isr"]) == [3, 4] for each in shown)

    eventually(moved, "the broker that is asked knows it, too")
    assert len(read_all(cluster.bootstrap_servers, "moved", 2)) == 100
    # Their tool executes the plan that our planner wrote.
    ours = tmp_path / "ours.json"
    odradek(cluster.bootstrap_servers, "partitions", "plan", "--topic", "moved", "--brokers", "1,2", "--out", ours)
    tool(cluster, REASSIGN, "--execute", "--reassignment-json-file", ours)
    eventually(lambda: all(set(each["replicas"]) == {1, 2} for each in partitions(cluster, "moved").values()), "back")
    assert "No partition reassignments found." in tool(cluster, REASSIGN, "--list")


def test_a_move_is_listed_and_cancelled(cluster: ProcessCluster, tmp_path: Path) -> None:
    create(cluster, "stuck", "1:2")
    cluster[4].kill()
    try:
        plan = tmp_path / "plan.json"
        plan.write_text(
            json.dumps({"version": 1, "partitions": [{"topic": "stuck", "partition": 0, "replicas": [4, 1]}]})
        )
        odradek(cluster.bootstrap_servers, "partitions", "move", "--plan", plan, "--yes")
        listed = tool(cluster, REASSIGN, "--list")
        assert "stuck-0: replicas: 4,1,2. adding: 4. removing: 2." in listed
        cancelled = tool(cluster, REASSIGN, "--cancel", "--reassignment-json-file", plan, "--preserve-throttles")
        assert "Successfully cancelled partition reassignment for: stuck-0" in cancelled
        eventually(lambda: partitions(cluster, "stuck")[0]["replicas"] == [1, 2], "as it was")
    finally:
        cluster[4].start()


@pytest.mark.slow
def test_kafka_leader_election(cluster: ProcessCluster) -> None:
    create(cluster, "led", "4:1")
    cluster[4].stop()
    eventually(lambda: partitions(cluster, "led")[0]["isr"] == [1], "it is gone")
    cluster[4].start()
    eventually(lambda: sorted(partitions(cluster, "led")[0]["isr"]) == [1, 4], "in sync again")
    one = ("--topic", "led", "--partition", 0)
    reported = tool(cluster, ELECT, "--election-type", "preferred", *one)
    assert "Successfully completed leader election (PREFERRED) for partitions led-0" in reported
    eventually(lambda: partitions(cluster, "led")[0]["leader"] == 4, "it leads")
    reported = tool(cluster, ELECT, "--election-type", "preferred", *one)
    assert "Valid replica already elected for partitions led-0" in reported
    tool(cluster, ELECT, "--election-type", "preferred", "--all-topic-partitions")
    reported = tool(cluster, ELECT, "--election-type", "unclean", *one)
    assert "Valid replica already elected for partitions led-0" in reported


def test_kafka_leader_election_elects_a_replica_out_of_sync(cluster: ProcessCluster) -> None:
    """Broker 4, the last replica in sync, is dead; broker 3 lacks its last record, and leads on request alone."""
    create(cluster, "unclean", "4:3")
    cluster[3].stop()
    eventually(lambda: partitions(cluster, "unclean")[0]["isr"] == [4], "broker 3 is out of sync")
    produce_all(cluster.bootstrap_servers, "unclean", [(None, b"lost")])
    cluster[4].kill()
    try:
        cluster[3].start()
        eventually(lambda: partitions(cluster, "unclean")[0]["leader"] is None, "no leader")
        one = ("--topic", "unclean", "--partition", 0)
        reported = tool(cluster, ELECT, "--election-type", "unclean", *one)
        assert "Successfully completed leader election (UNCLEAN) for partitions unclean-0" in reported
        eventually(lambda: partitions(cluster, "unclean")[0]["leader"] == 3, "broker 3 leads")
        assert read_all(cluster.bootstrap_servers, "unclean") == []
    finally:
        cluster[4].start()


def test_kafka_cluster_unregister(cluster: ProcessCluster) -> None:
    create(cluster, "left", "4:1")
    cluster[4].stop()
    eventually(lambda: partitions(cluster, "left")[0]["isr"] == [1], "it is gone")
    reported = run_tool(CLUSTER, ["unregister", "--bootstrap-server", cluster.bootstrap_servers, "--id", 4]).stdout
    assert "Broker 4 is no longer registered." in reported
    cluster[4].start()
    eventually(lambda: sorted(partitions(cluster, "left")[0]["isr"]) == [1, 4], "it registers again, and catches up")


@pytest.mark.slow  # test_log_dir_moves has the short form
def test_kafka_reassign_partitions_moves_between_log_directories(tmp_path: Path) -> None:
    require_kafka()
    one, two = tmp_path / "one", tmp_path / "two"
    with Node(tmp_path / "node", {"log.dirs": f"{one},{two}"}) as node:
        odradek(node.bootstrap, "topics", "create", "--topic", "housed", "--partitions", "2")
        produce_all(node.bootstrap, "housed", [(b"%d" % number, bytes(1000)) for number in range(200)])
        before = {number: one if (one / f"housed-{number}").is_dir() else two for number in (0, 1)}
        after = {number: two if place == one else one for number, place in before.items()}
        plan = tmp_path / "plan.json"
        entries = [
            {"topic": "housed", "partition": number, "replicas": [1], "log_dirs": [str(place)]}
            for number, place in after.items()
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": entries}))
        server = ["--bootstrap-server", node.bootstrap]
        throttle = ["--replica-alter-log-dirs-throttle", 10_000_000]
        begun = run_tool(REASSIGN, [*server, "--execute", "--reassignment-json-file", plan, *throttle]).stdout
        assert begun.count("Successfully started moving log directory") == 2, begun

        def verified() -> bool:
            reported = run_tool(REASSIGN, [*server, "--verify", "--reassignment-json-file", plan]).stdout
            return reported.count("is now complete") + reported.count("completed successfully") >= 2

        eventually(verified, "both replicas are in the other directory")
        for number, place in after.items():
            assert (place / f"housed-{number}").is_dir() and not (before[number] / f"housed-{number}").exists()
        assert len(read_all(node.bootstrap, "housed", 2)) == 200
