"""A mirror with followers: its leader dies amid records, another goes on, and all replicas have the source's bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from odradek.testing.processes import NodeProcess, ProcessCluster
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.clients.links import TOPIC, log_of, records
from tests.support.nodes.cluster import topic_at
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually


def leader_of(cluster: ProcessCluster, *, other_than: int = -1) -> int:
    """The leader, as a running node knows it."""

    def found() -> int:
        node = next(each for each in cluster.brokers if each.running)
        partitions = topic_at(node, TOPIC).partitions
        leader = partitions[0].leader_id if partitions else -1
        return leader if leader not in (-1, other_than) else 0

    return eventually(found, "somebody leads")


def test_leaders_of_a_mirror_die_and_every_replica_is_the_source(tmp_path: Path) -> None:
    with Node(tmp_path / "source") as source, ProcessCluster(tmp_path / "here", brokers=3) as here:

        def all_alike(nodes: list[NodeProcess]) -> None:
            wanted = log_of(source.data_dir)
            eventually(
                lambda: all(log_of(node.plan.data_dir) == wanted for node in nodes),
                lambda: f"{len(wanted)} bytes, here {[len(log_of(node.plan.data_dir)) for node in nodes]}",
            )

        create_topic(source.bootstrap, TOPIC, 1)
        produce_all(source.bootstrap, TOPIC, records("a", 200))
        odradek(here.bootstrap_servers, "links", "create", "west", "--source", source.bootstrap)
        odradek(here.bootstrap_servers, "links", "mirror", "west", TOPIC)
        all_alike(here.brokers)
        for part in range(2):
            # New leader epochs at the source, by which batches have another epoch than the mirror's own.
            source.stop()
            source.start()
            leader = leader_of(here)
            produce_all(source.bootstrap, TOPIC, records(f"b{part}", 100))
            here[leader].kill()
            produce_all(source.bootstrap, TOPIC, records(f"c{part}", 100))
            leader_of(here, other_than=leader)
            all_alike([node for node in here.brokers if node.running])
            here[leader].start()
            all_alike(here.brokers)


def test_partitions_and_deletions_of_the_source_reach_every_replica(tmp_path: Path) -> None:
    """The controller is no broker: the link sends its requests over the network, as clients do."""
    with (
        Node(tmp_path / "source") as source,
        ProcessCluster(tmp_path / "here", brokers=2, controllers=1, settings={"default.replication.factor": 2}) as here,
    ):
        create_topic(source.bootstrap, TOPIC, 1)
        produce_all(source.bootstrap, TOPIC, records("a", 20))
        client = AdminClient({"bootstrap.servers": source.bootstrap})
        partition = TopicPartition(TOPIC, 0, 20)
        client.delete_records([partition])[partition].result(PATIENCE_S)
        follows = ("--set", "topic.config.sync.enable=true", "--set", "topic.config.sync.ms=1000")
        odradek(here.bootstrap_servers, "links", "create", "west", "--source", source.bootstrap, *follows)
        odradek(here.bootstrap_servers, "links", "mirror", "west", TOPIC)
        eventually(lambda: isr(here) == [{1, 2}], lambda: f"in sync are {isr(here)}")
        client.create_partitions([NewPartitions(TOPIC, 2)])[TOPIC].result(PATIENCE_S)
        eventually(lambda: isr(here) == [{1, 2}, {1, 2}], lambda: f"in sync are {isr(here)}")
        produce_all(source.bootstrap, TOPIC, records("b", 20))
        wanted = everything(source.bootstrap)
        for node in here.brokers:
            eventually(lambda: everything(here.bootstrap_servers) == wanted, "the mirror has what the source has")
            node.kill()
            eventually(lambda: everything(here.bootstrap_servers) == wanted, "so has the other replica")
            # Settings follow by one broker alone: another does it in the place of the first one.
            change_a_setting(source.bootstrap, here.bootstrap_servers, f"retention.ms={1_000_000 + node.node_id}")
            node.start()
            eventually(lambda: isr(here) == [{1, 2}, {1, 2}], lambda: f"in sync are {isr(here)}")


def isr(cluster: ProcessCluster) -> list[set[int]]:
    return [set(each.isr_nodes) for each in topic_at(cluster.brokers[0], TOPIC).partitions]


def change_a_setting(source: str, here: str, change: str) -> None:
    """Change a setting at the source; return when the link has copied it."""

    def settings() -> list[str]:
        (found,) = odradek(here, "configs", "describe", "--topic", TOPIC, "--json").json
        return [f"{each['name']}={each['value']}" for each in found["configs"]]

    odradek(source, "configs", "alter", "--topic", TOPIC, "--add-config", change)
    eventually(lambda: change in settings(), settings)


def everything(bootstrap: str) -> list[tuple[int | None, int | None, bytes | None]]:
    found = read_all(bootstrap, TOPIC, 2)
    return sorted((each.partition() or 0, each.offset() or 0, each.value()) for each in found)


@pytest.mark.slow
def test_mirrors_are_made_while_the_first_broker_hangs_unfenced(tmp_path: Path) -> None:
    settings = {"broker.session.timeout.ms": 600_000, "default.replication.factor": 1}
    with Node(tmp_path / "source") as source, ProcessCluster(tmp_path / "here", brokers=3, settings=settings) as here:
        create_topic(source.bootstrap, TOPIC, 6)
        odradek(here.bootstrap_servers, "links", "create", "west", "--source", source.bootstrap)
        here[1].pause()
        odradek(here[2].bootstrap, "links", "mirror", "west", TOPIC)
        eventually(lambda: len(topic_at(here[2], TOPIC).partitions) == 6, "another broker makes the topic")
        here[1].kill()
