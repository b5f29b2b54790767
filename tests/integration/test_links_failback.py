"""Old sources become mirrors of the topics promoted from them: records that only they have are written into files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.admin.link_failbacks import FailbackPlan
from odradek.cli import link_failback
from odradek.client.cluster import Cluster
from odradek.testing.processes import ProcessCluster
from tests.support.clients.cli import odradek, run_here
from tests.support.clients.confluent import create_topic, produce_all, read_all, read_committed
from tests.support.clients.links import (
    TOPIC,
    await_end,
    describe,
    linked_node,
    log_of,
    mirror_to,
    records,
    rows_of,
    transactional,
    values,
    write,
)
from tests.support.nodes.cluster import topic_at
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

EMPTY = "empty"


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "old") as node:
        yield node


@pytest.fixture
def new(tmp_path: Path, old: Node) -> Iterator[Node]:
    with linked_node(tmp_path / "new", old) as node:
        yield node


def promote_shared(old: Node, new: Node, count: int) -> None:
    """Create the topic, mirror so many records, and promote the mirror."""
    create_topic(old.bootstrap, TOPIC)
    produce_all(old.bootstrap, TOPIC, records("shared", count))
    mirror_to(new.bootstrap, count)
    odradek(new.bootstrap, "links", "promote", "west", "--yes")


def alike(first: Path, second: Path, partition: str = f"{TOPIC}-0") -> None:
    def logs() -> list[bytes]:
        return [log_of(folder, partition) for folder in (first, second)]

    eventually(lambda: len(set(logs())) == 1, lambda: f"{partition}: {[len(each) for each in logs()]} bytes")


def records_in(path: str) -> list[tuple[int, str]]:
    """Offsets and values of the records in a file, as the command prints them."""
    lines = run_here("dump-log", "--print-data-log", "--json", path).json_lines
    return [(each["offset"], each["value"]) for each in lines if each["kind"] == "record" and "value" in each]


def commit(bootstrap: str, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=PATIENCE_S)
    consumer.close()
    return int(found.offset)


MEMBER = {
    "group.id": "member",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "isolation.level": "read_uncommitted",
}


def read_until(consumer: Consumer, last: bytes) -> list[bytes]:
    found: list[bytes] = []

    def take() -> bool:
        found.extend(bytes(each.value() or b"") for each in consumer.consume(100, timeout=0.2) if not each.error())
        return last in found

    eventually(take, lambda: f"{len(found)} records")
    return found


def new_values(count: int) -> list[bytes]:
    return [value or b"" for _, value in records("new", count)]


def fail_back(bootstrap: str, link: str, *more: str) -> dict[str, Any]:
    done: dict[str, Any] = odradek(bootstrap, "links", "failback", link, TOPIC, *more, "--yes", "--json").json
    return done


def test_records_that_only_the_old_source_has_go_into_a_file(old: Node, new: Node) -> None:
    create_topic(old.bootstrap, TOPIC)
    there = transactional(old, "writer")
    write(there, "shared", 5)
    there.commit_transaction(PATIENCE_S)
    write(there, "open", 2)
    mirror_to(new.bootstrap, 8)
    odradek(new.bootstrap, "links", "failover", "west", "--yes")
    # Both go on: the old source's records are at offsets, and under epochs, that the new one has too.
    there.commit_transaction(PATIENCE_S)
    write(there, "lost", 4)
    there.commit_transaction(PATIENCE_S)
    write(there, "unfinished", 1)
    old.stop()
    old.start()
    produce_all(old.bootstrap, TOPIC, records("late", 2))
    produce_all(new.bootstrap, TOPIC, records("new", 30))
    commit(old.bootstrap, "beyond", 15)
    commit(old.bootstrap, "before", 3)
    member = Consumer({**MEMBER, "bootstrap.servers": old.bootstrap})
    member.subscribe([TOPIC])
    read_until(member, b"late-1")
    member.commit(asynchronous=False)
    odradek(old.bootstrap, "links", "create", "back", "--source", new.bootstrap)
    asked = odradek(old.bootstrap, "links", "failback", "back", TOPIC, code=2)
    assert "9 offsets that only this cluster has" in asked.err
    assert describe(old.bootstrap, "back")["partitions"] == []
    done = fail_back(old.bootstrap, "back")
    (cut,) = done["partitions"]
    assert cut["offset"] == 8
    lost = [(9 + number, f"lost-{number}") for number in range(4)]
    # A transaction that was open there was committed here: the file has it from its first record on.
    straddling = [(6, "open-0"), (7, "open-1")]
    assert records_in(cut["file"]) == [*straddling, *lost, (14, "unfinished-0"), (15, "late-0"), (16, "late-1")]
    groups = [(each["group"], each["to"], each["moved"]) for each in done["groups"]]
    assert groups == [("beyond", 8, True), ("member", 8, False)]
    # It was behind the cut, and is reset: else it would go on at 17, and miss what the new source has below.
    assert [each for each in read_until(member, b"new-29") if each.startswith(b"new")] == new_values(30)
    member.close()
    assert (committed(old.bootstrap, "beyond"), committed(old.bootstrap, "before")) == (8, 3)
    alike(old.data_dir, new.data_dir)
    assert fail_back(old.bootstrap, "back")["partitions"] == [cut], "its answer may have been lost"
    # Its coordinator ends what it knows to be open, and nothing of it comes into the mirror.
    there.abort_transaction(PATIENCE_S)
    create_topic(old.bootstrap, "other")
    there.begin_transaction()
    there.produce("other", b"x")
    there.commit_transaction(PATIENCE_S)
    produce_all(new.bootstrap, TOPIC, records("more", 3))
    alike(old.data_dir, new.data_dir)
    assert values(read_committed(old.bootstrap, TOPIC)) == values(read_committed(new.bootstrap, TOPIC))
    assert values(read_all(old.bootstrap, TOPIC))[-1][1] == b"more-2"
    old.stop()
    old.start()
    eventually(lambda: rows_of(old.bootstrap, TOPIC, "back")[0]["cut"]["file"] == cut["file"], "it is still named")


def test_topics_without_a_common_history_are_refused(old: Node, new: Node) -> None:
    create_topic(old.bootstrap, TOPIC)
    create_topic(new.bootstrap, TOPIC)
    odradek(old.bootstrap, "links", "create", "back", "--source", new.bootstrap)
    refused = odradek(old.bootstrap, "links", "failback", "back", TOPIC, "--yes", code=2)
    assert "no history in common" in refused.err
    assert "Apache Kafka" in odradek(old.bootstrap, "links", "failback", "none", TOPIC, "--yes", code=4).err
    # A topic that was promoted, but from another topic of that name.
    odradek(new.bootstrap, "topics", "delete", "--topic", TOPIC)
    eventually(
        lambda: odradek(new.bootstrap, "links", "mirror", "west", TOPIC, code=None).code == 0, "the name is free again"
    )
    await_end(new.bootstrap, 0)
    odradek(new.bootstrap, "links", "promote", "west", "--yes")
    odradek(old.bootstrap, "topics", "delete", "--topic", TOPIC)
    create_topic(old.bootstrap, TOPIC)
    again = odradek(old.bootstrap, "links", "failback", "back", TOPIC, "--yes", code=2)
    assert "no history in common" in again.err
    produce_all(old.bootstrap, TOPIC, records("own", 1))


def test_a_log_without_common_records_starts_over(old: Node, new: Node) -> None:
    promote_shared(old, new, 10)
    produce_all(old.bootstrap, TOPIC, records("lost", 3))
    produce_all(new.bootstrap, TOPIC, records("new", 9))
    # 10 ends the mirror; no common record is left there, and its log starts behind all of ours.
    partition = TopicPartition(TOPIC, 0, 15)
    client = AdminClient({"bootstrap.servers": new.bootstrap})
    client.delete_records([partition])[partition].result(PATIENCE_S)
    odradek(old.bootstrap, "links", "create", "back", "--source", new.bootstrap)
    assert "starts over" in odradek(old.bootstrap, "links", "failback", "back", TOPIC, code=2).out
    (cut,) = fail_back(old.bootstrap, "back")["partitions"]
    assert cut["offset"] == 15
    expected = [*records("shared", 10), *records("lost", 3)]
    assert records_in(cut["file"]) == [(number, (value or b"").decode()) for number, (_, value) in enumerate(expected)]
    await_end(old.bootstrap, 20, "back")
    assert values(read_all(old.bootstrap, TOPIC)) == [
        (15 + number, f"new-{4 + number}".encode()) for number in range(5)
    ]


def impatient(folder: Path) -> Path:
    """Settings of a command that waits for seconds only."""
    file = folder / "command.properties"
    file.write_text("default.api.timeout.ms=3000\n")
    return file


def test_a_failback_whose_source_is_gone_ends_with_what_is_here(
    old: Node, new: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promote_shared(old, new, 5)
    produce_all(old.bootstrap, TOPIC, records("lost", 2))
    writer = transactional(old, "writer")
    write(writer, "kept", 2)
    odradek(old.bootstrap, "links", "create", "back", "--source", new.bootstrap)
    begin = link_failback._begin

    async def begin_without_source(cluster: Cluster, plan: FailbackPlan, properties: dict[str, str]) -> None:
        await begin(cluster, plan, properties)
        new.stop()

    with monkeypatch.context() as patch:
        patch.setattr(link_failback, "_begin", begin_without_source)
        command = "links", "failback", "back", TOPIC, "--yes", "--command-config", impatient(tmp_path)
        assert "once more" in odradek(old.bootstrap, *command, code=1).err
    writer.commit_transaction(PATIENCE_S)  # which its coordinator decides; the marker waits
    assert "links failback" in odradek(old.bootstrap, "links", "resume", "back", TOPIC, code=2).err
    refused = odradek(old.bootstrap, "links", "promote", "back", TOPIC, "--yes", code=2).err
    assert "is being failed back" in refused
    odradek(old.bootstrap, "links", "failover", "back", "--yes")  # of all mirrors, of which there is none yet
    odradek(old.bootstrap, "links", "failover", "back", TOPIC, "--yes")
    produce_all(old.bootstrap, TOPIC, records("own", 1))
    own = [*records("lost", 2), *records("kept", 2), *records("own", 1)]
    everything = [value for _, value in (*records("shared", 5), *own)]
    eventually(
        lambda: [each.value() for each in read_committed(old.bootstrap, TOPIC)] == everything,
        "what was committed is so",
    )
    new.start()
    (cut,) = fail_back(old.bootstrap, "back")["partitions"]
    assert [value for _, value in records_in(cut["file"])] == [(value or b"").decode() for _, value in own]
    alike(old.data_dir, new.data_dir)


def leader_of(cluster: ProcessCluster, *other_than: int) -> int:
    def found() -> int:
        node = next(each for each in cluster.brokers if each.running)
        (partition,) = topic_at(node, TOPIC).partitions
        return partition.leader_id if partition.leader_id not in (-1, *other_than) else 0

    return eventually(found, "somebody leads")


def in_sync(cluster: ProcessCluster, count: int) -> None:
    def all_are() -> bool:
        partitions = topic_at(next(each for each in cluster.brokers if each.running), TOPIC).partitions
        return bool(partitions) and len(partitions[0].isr_nodes) == count

    eventually(all_are, f"{count} are in sync")


def test_brokers_die_amid_a_failback_and_it_goes_there_and_back(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path / "old", brokers=3) as old, Node(tmp_path / "new") as new:
        here = old.bootstrap_servers
        odradek(new.bootstrap, "links", "create", "west", "--source", here)
        odradek(here, "links", "create", "back", "--source", new.bootstrap)
        create_topic(here, TOPIC, copies=3)
        create_topic(here, EMPTY, 2, copies=3)
        produce_all(here, TOPIC, records("shared", 50))
        odradek(new.bootstrap, "links", "mirror", "west", TOPIC, EMPTY)
        await_end(new.bootstrap, 50)
        odradek(new.bootstrap, "links", "failover", "west", "--yes")
        # Leader epochs of the old source get the numbers that those of the new one have.
        in_sync(old, 3)
        first = leader_of(old)
        old[first].kill()
        produce_all(here, TOPIC, records("lost", 20), acks="all")
        old[first].start()
        in_sync(old, 3)
        produce_all(new.bootstrap, TOPIC, records("new", 200))
        # One replica is away with what is to be cut, and then its leader dies.
        second = leader_of(old)
        away = next(each for each in (1, 2, 3) if each not in (first, second))
        old[away].kill()
        waits = odradek(
            here, "links", "failback", "back", TOPIC, EMPTY, "--yes", "--command-config", impatient(tmp_path), code=1
        )
        assert f"[{away}]" in waits.err
        (row,) = rows_of(here, TOPIC, "back")
        assert (row["state"], row["end"], row["cut"]["offset"]) == ("failback", 50, 50)
        assert records_in(row["cut"]["file"]) == [(50 + number, f"lost-{number}") for number in range(20)]
        old[second].kill()
        old[away].start()
        leader_of(old, second)
        old[second].start()
        done = fail_back(here, "back", EMPTY)
        cuts = {f"{each['topic']}-{each['partition']}": each["offset"] for each in done["partitions"]}
        assert cuts == {f"{TOPIC}-0": 50, f"{EMPTY}-0": 0, f"{EMPTY}-1": 0}
        # Leaders of the empty ones noted epochs as well, above those that come now.
        produce_all(new.bootstrap, EMPTY, [(f"{number}".encode(), b"x") for number in range(20)])
        for node in old.brokers:
            for partition in cuts:
                alike(node.plan.data_dir, new.data_dir, partition)
        # There and back again: each time what one side wrote alone goes.
        odradek(here, "links", "promote", "back", TOPIC, "--yes")
        produce_all(here, TOPIC, records("again", 10))
        produce_all(new.bootstrap, TOPIC, records("gone", 5))
        (cut,) = fail_back(new.bootstrap, "west")["partitions"]
        assert records_in(cut["file"]) == [(251 + number, f"gone-{number}") for number in range(5)]
        for node in old.brokers:
            alike(node.plan.data_dir, new.data_dir)
        assert [each.value() for each in read_all(new.bootstrap, TOPIC)][-10:] == [
            value for _, value in records("again", 10)
        ]
