"""MirrorMaker 2 between clusters of Odradek: patterns, translated offsets, both directions, exactly once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions

from tests.interop.brokers import start_broker
from tests.interop.mirror_maker import ONE_BROKER_EACH, MirrorMaker, libraries
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import admin, commit_alone, create_topic, produce_all, read_all, read_committed
from tests.support.nodes.apache_kafka import ApacheKafka, KafkaUnavailableError
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "orders"
GROUP = "billing"
READ = 700  # what the group has read at the active cluster
Cluster = Node | ApacheKafka


@pytest.fixture(autouse=True, scope="module")
def mirror_maker_is_here() -> None:
    try:
        libraries()
    except KafkaUnavailableError as error:
        pytest.skip(f"no MirrorMaker: {error}")


@contextmanager
def clusters(folder: Path, *aliases: str) -> Iterator[dict[str, Cluster]]:
    """One running broker for each alias."""
    with ExitStack() as stack:
        running = {alias: start_broker(folder / alias) for alias in aliases}
        for broker in running.values():
            stack.enter_context(broker)
        yield running


def mirror_maker(
    folder: Path, running: Mapping[str, Cluster], flows: Mapping[tuple[str, str], str], **settings: object
) -> MirrorMaker:
    servers = {alias: broker.bootstrap for alias, broker in running.items()}
    lines = {name.replace("__", "->").replace("_", "."): value for name, value in settings.items()}
    return MirrorMaker(folder / "mirror-maker", servers, flows, {**ONE_BROKER_EACH, **lines})


def topics_of(broker: Cluster) -> set[str]:
    return set(admin(broker.bootstrap).list_topics(timeout=PATIENCE_S).topics)


def values_of(broker: Cluster, topic: str) -> list[bytes]:
    """All committed values of a topic of one partition; none if the topic does not exist."""
    if topic not in topics_of(broker):
        return []
    return [message.value() or b"" for message in read_all(broker.bootstrap, topic, isolation_level="read_committed")]


def numbered(name: str, count: int, first: int = 0) -> list[tuple[bytes, bytes]]:
    return [(b"k", f"{name}-{number}".encode()) for number in range(first, first + count)]


def test_edges_are_mirrored_to_a_centre_by_a_pattern(tmp_path: Path) -> None:
    with clusters(tmp_path, "berlin", "paris", "central") as running:
        for edge in ("berlin", "paris"):
            create_topic(running[edge].bootstrap, "metrics-cpu", retention_ms=86_400_000)
            create_topic(running[edge].bootstrap, "private")
            produce_all(running[edge].bootstrap, "metrics-cpu", numbered(edge, 500))
            produce_all(running[edge].bootstrap, "private", numbered("secret", 10))
        flows = {(edge, "central"): "metrics-.*" for edge in ("berlin", "paris")}
        central = running["central"]
        with mirror_maker(tmp_path, running, flows):
            for edge in ("berlin", "paris"):
                wanted = [value for _, value in numbered(edge, 500)]
                eventually(lambda edge=edge, wanted=wanted: values_of(central, f"{edge}.metrics-cpu") == wanted)
            produce_all(running["paris"].bootstrap, "metrics-cpu", numbered("paris", 100, 500))
            wanted = [value for _, value in numbered("paris", 600)]
            eventually(lambda: values_of(central, "paris.metrics-cpu") == wanted, "later records follow")
        assert not {topic for topic in topics_of(central) if "private" in topic}


def committed(broker: Cluster, topic: str) -> int | None:
    """The committed offset of the group in partition 0; None if there is none."""
    client = admin(broker.bootstrap)
    asked = ConsumerGroupTopicPartitions(GROUP)
    offsets = client.list_consumer_group_offsets([asked])[GROUP].result(PATIENCE_S)
    found = [each.offset for each in offsets.topic_partitions or [] if each.topic == topic]
    return found[0] if found and found[0] >= 0 else None


def values_read_on(broker: Cluster, topic: str, count: int) -> list[bytes]:
    """The values that a member of the group reads from its committed offset up to record `count - 1`."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "auto.offset.reset": "error"})
    values: list[bytes] = []
    try:
        consumer.subscribe([topic])

        def at_the_end() -> bool:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
            return bool(values) and values[-1].endswith(b"-%d" % (count - 1))

        eventually(at_the_end, lambda: f"{len(values)} read", pause_s=0)
    finally:
        consumer.close()
    return values


@pytest.mark.only_ours  # a link has Odradek at its destination
def test_a_group_goes_on_at_the_passive_cluster(tmp_path: Path) -> None:
    """A group with translated offsets reads every record and some again; the same group of a link reads none again."""
    with clusters(tmp_path, "active", "passive") as running:
        active, passive = running["active"], running["passive"]
        create_topic(active.bootstrap, TOPIC)
        produce_all(active.bootstrap, TOPIC, numbered("order", 1000))
        commit_alone(active.bootstrap, GROUP, {(TOPIC, 0): READ})
        mirrored = f"active.{TOPIC}"
        with mirror_maker(
            tmp_path, running, {("active", "passive"): TOPIC}, active__passive_sync_group_offsets_enabled="true"
        ):
            eventually(lambda: len(values_of(passive, mirrored)) == 1000)
            # An offset is translated by the last synchronized record at or below it: none is, until more records come.
            produce_all(active.bootstrap, TOPIC, numbered("order", 500, 1000))
            commit_alone(active.bootstrap, GROUP, {(TOPIC, 0): READ + 500})
            eventually(lambda: committed(passive, mirrored) is not None, "the group's offset is translated")
            eventually(lambda: len(values_of(passive, mirrored)) == 1500)
        translated = committed(passive, mirrored)
        values = values_read_on(passive, mirrored, 1500)
        missed = {value for _, value in numbered("order", 1000 - READ, READ + 500)} - set(values)
        assert translated is not None and translated <= READ + 500
        assert not missed
        again = READ + 500 - translated

        odradek(passive.bootstrap, "links", "create", "active", "--source", active.bootstrap)
        filters = json.dumps({"groupFilters": [{"name": "*"}]})
        settings = (f"consumer.offset.group.filters={filters}", "consumer.offset.sync.ms=1000")
        for setting in ("consumer.offset.sync.enable=true", *settings):
            odradek(passive.bootstrap, "links", "alter", "active", "--set", setting)
        odradek(passive.bootstrap, "links", "mirror", "active", TOPIC)
        eventually(lambda: committed(passive, TOPIC) == READ + 500, "the link has the very offset")
        odradek(passive.bootstrap, "links", "failover", "active", "--yes")
        values = values_read_on(passive, TOPIC, 1500)
        assert values == [value for _, value in numbered("order", 1000 - READ, READ + 500)]
        print(f"read again after MirrorMaker's translation: {again} records; after a link: 0")


def test_both_directions_do_not_loop(tmp_path: Path) -> None:
    with clusters(tmp_path, "east", "west") as running:
        for alias, broker in running.items():
            create_topic(broker.bootstrap, TOPIC)
            produce_all(broker.bootstrap, TOPIC, numbered(alias, 200))
        flows = {("east", "west"): ".*orders", ("west", "east"): ".*orders"}
        with mirror_maker(tmp_path, running, flows):
            for alias, other in (("east", "west"), ("west", "east")):
                wanted = [value for _, value in numbered(alias, 200)]
                eventually(lambda a=alias, o=other, w=wanted: values_of(running[o], f"{a}.{TOPIC}") == w)
            produce_all(running["east"].bootstrap, TOPIC, numbered("east", 200, 200))
            wanted = [value for _, value in numbered("east", 400)]
            eventually(lambda: values_of(running["west"], f"east.{TOPIC}") == wanted)
        for alias, other in (("east", "west"), ("west", "east")):
            assert {topic for topic in topics_of(running[alias]) if topic.endswith(TOPIC)} == {
                TOPIC,
                f"{other}.{TOPIC}",
            }
            assert len(values_of(running[alias], TOPIC)) == (400 if alias == "east" else 200)


def test_exactly_once_mirroring_survives_kills(tmp_path: Path) -> None:
    """With `exactly.once.source.support` (KIP-618, KIP-710) each record is at the target once."""
    count = 4000
    with clusters(tmp_path, "source", "target") as running:
        source, target = running["source"], running["target"]
        create_topic(source.bootstrap, TOPIC)
        maker = mirror_maker(
            tmp_path,
            running,
            {("source", "target"): TOPIC},
            dedicated_mode_enable_internal_rest="true",
            listeners="http://127.0.0.1:0",
            target_exactly_once_source_support="enabled",
            emit_checkpoints_enabled="false",
            emit_heartbeats_enabled="false",
        )
        mirrored = f"source.{TOPIC}"
        for first in range(0, count, count // 4):
            with maker:
                produce_all(source.bootstrap, TOPIC, numbered("order", count // 4, first))
                eventually(lambda first=first: len(values_of(target, mirrored)) > first, maker.log_tail)
                maker.kill()
        with maker:
            eventually(lambda: len(values_of(target, mirrored)) >= count, maker.log_tail)
        found = [message.value() for message in read_committed(target.bootstrap, mirrored)]
        assert [value for value, times in Counter(found).items() if times > 1] == []
        assert found == [value for _, value in numbered("order", count)]
