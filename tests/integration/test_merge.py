"""`odradek merge` on a real broker: each record once, with its origin, and errors that a person must act on."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from odradek.merge.merge import ORIGIN_HEADER, Gap, Merge, MergeError, Options
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import admin, commit_alone, create_topic, produce_all, read_committed
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

Record = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("node")) as running:
        yield running


class Topics:
    """Two sources, `here` and `there`, and the merge topic, under names of the test's own."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.here, self.there, self.into = f"{name}.here", f"{name}.there", f"{name}.all"
        self.options = Options(self.into, self.into, {self.here: "east", self.there: "west"})
        self.gaps: list[Gap] = []

    def create(self, here: int = 1, there: int = 1) -> None:
        create_topic(self.node.bootstrap, self.here, here)
        create_topic(self.node.bootstrap, self.there, there)

    def start(self, options: Options | None = None) -> Any:
        """A merge in this process; the caller steps it. Used with `with`."""
        clients = {"bootstrap.servers": self.node.bootstrap}
        return closing(Merge(clients, options or self.options, self.gaps.append))

    def catch_up(self, options: Options | None = None) -> int:
        """Merge all that there is; returns the number of records."""
        with self.start(options) as merge:
            return step_to_the_end(merge)

    def run(self, *arguments: str, code: int = 0) -> Any:
        """`odradek merge --until-idle`, and its output."""
        sources = [f"{origin}={topic}" for topic, origin in self.options.origins.items()]
        words = ["merge", *sources, "--into", self.into, "--until-idle", *arguments]
        return odradek(self.node.bootstrap, *words, code=code)

    def send(self, topic: str, *values: bytes) -> None:
        produce_all(self.node.bootstrap, topic, [(b"k", value) for value in values])

    def delete_before(self, offset: int) -> None:
        """Delete the records of `here` before an offset."""
        where = TopicPartition(self.here, 0, offset)
        client = admin(self.node.bootstrap)
        client.delete_records([where])[where].result(PATIENCE_S)

    def end(self) -> int:
        """The sum of the end offsets of two partitions of the merge topic; 0 if there is none."""
        client = admin(self.node.bootstrap)
        if self.into not in client.list_topics(timeout=PATIENCE_S).topics:
            return 0
        wanted = {TopicPartition(self.into, partition): OffsetSpec.latest() for partition in range(2)}
        return sum(each.result(PATIENCE_S).offset for each in client.list_offsets(wanted).values())

    def merged(self, partitions: int = 1) -> list[Message]:
        return read_committed(self.node.bootstrap, self.into, partitions)

    def values(self, partitions: int = 1) -> Counter[Any]:
        return Counter((origin_of(each), each.value()) for each in self.merged(partitions))


def step_to_the_end(merge: Merge) -> int:
    records = 0
    while (merged := merge.step()) or not merge.is_at_end:
        records += merged
    return records


def origin_of(message: Message) -> str:
    headers = message.headers() or []
    assert isinstance(headers, list)
    found = [value for name, value in headers if name == ORIGIN_HEADER]
    assert len(found) == 1 and isinstance(found[0], bytes)
    return found[0].decode()


@pytest.fixture
def topics(node: Node, request: pytest.FixtureRequest) -> Topics:
    return Topics(node, f"t{abs(hash(request.node.name))}")


def test_records_keep_all_but_their_offset(topics: Topics) -> None:
    topics.create(here=2)
    producer = Producer({"bootstrap.servers": topics.node.bootstrap})
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", None), ("b", b"\xff")]
    producer.produce(topics.here, b"v", b"k", partition=1, timestamp=1234, headers=headers)
    producer.produce(topics.here, None, b"gone", partition=0, timestamp=1235)
    producer.produce(topics.there, b"w", None, partition=0, timestamp=1236)
    assert producer.flush(PATIENCE_S) == 0
    ran = topics.run()
    assert "3 records merged" in ran.out
    assert f"merging {topics.here} of east, {topics.there} of west into {topics.into}" in ran.err
    found = {
        each.value(): (each.key(), each.partition(), each.timestamp()[1], each.headers()) for each in topics.merged(2)
    }
    assert found == {
        b"v": (b"k", 1, 1234, [*headers, (ORIGIN_HEADER, b"east")]),
        None: (b"gone", 0, 1235, [(ORIGIN_HEADER, b"east")]),
        b"w": (None, 0, 1236, [(ORIGIN_HEADER, b"west")]),
    }


def test_aborted_records_are_left_out(topics: Topics) -> None:
    topics.create()
    producer = Producer({"bootstrap.servers": topics.node.bootstrap, "transactional.id": topics.into})
    producer.init_transactions(PATIENCE_S)
    for value, end in ((b"never", producer.abort_transaction), (b"once", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topics.here, value)
        assert producer.flush(PATIENCE_S) == 0
        end(PATIENCE_S)
    eventually(lambda: topics.catch_up() == 1)
    assert topics.values() == {("east", b"once"): 1}


@pytest.mark.slow
def test_a_start_goes_on_behind_what_is_merged(topics: Topics) -> None:
    topics.create()
    topics.send(topics.here, b"1", b"2")
    assert topics.catch_up() == 2
    topics.send(topics.there, b"3")
    assert topics.catch_up() == 1
    assert topics.catch_up() == 0
    assert topics.values() == {("east", b"1"): 1, ("east", b"2"): 1, ("west", b"3"): 1}


def test_each_record_once_over_kills(topics: Topics) -> None:
    topics.create(here=2, there=2)
    sent: set[tuple[str, bytes]] = set()
    is_over = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": topics.node.bootstrap, "linger.ms": 1})
        while not is_over.wait(0.002):
            for topic, origin in topics.options.origins.items():
                value = str(len(sent)).encode()
                producer.produce(topic, value, value)
                sent.add((origin, value))
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0

    writer = threading.Thread(target=write)
    writer.start()
    sources = [f"{origin}={topic}" for topic, origin in topics.options.origins.items()]
    words = [*sources, "--into", topics.into, "--bootstrap-server", topics.node.bootstrap]
    try:
        for _ in range(3):
            with subprocess.Popen([sys.executable, "-m", "odradek", "merge", *words]) as process:
                aim = topics.end() + 50
                try:
                    eventually(lambda aim=aim: topics.end() > aim)
                finally:
                    process.kill()
    finally:
        is_over.set()
        writer.join()
    topics.run()
    assert topics.values(2) == dict.fromkeys(sent, 1)


@pytest.mark.slow
def test_a_record_that_comes_back_is_left_out(topics: Topics) -> None:
    """The merge topic is mirrored to another cluster, and its merge topic comes back as a source."""
    topics.create()
    topics.send(topics.here, b"1")
    topics.catch_up()
    there = Options(f"{topics.into}.there", f"{topics.into}.there", {topics.into: "west", topics.there: "east"})
    topics.send(topics.there, b"2")
    assert topics.catch_up(there) == 2
    found = Counter(each.value() for each in read_committed(topics.node.bootstrap, there.into))
    assert found == {b"2": 1}


def test_deleted_records_are_reported(topics: Topics) -> None:
    topics.create()
    topics.send(topics.here, b"1", b"2", b"3")
    topics.delete_before(2)
    topics.catch_up()
    assert topics.gaps == [], "nothing of it was merged"
    topics.send(topics.here, *(str(number).encode() for number in range(4, 9)))
    topics.delete_before(7)
    topics.catch_up()
    assert topics.gaps == [Gap(topics.here, 0, 3, 7)]
    assert str(topics.gaps[0]) == f"{topics.here}-0: 4 offsets were deleted before they were merged"
    assert topics.values() == {("east", b"3"): 1, ("east", b"8"): 1}


def test_a_source_that_was_cut_ends_the_merge(topics: Topics) -> None:
    topics.create()
    topics.send(topics.here, b"1")
    commit_alone(topics.node.bootstrap, f"odradek-merge-{topics.into}", {(topics.here, 0): 2})
    error = topics.run(code=1).err
    assert f"{topics.here}-0 ends at offset 1, and was merged up to 2" in error
    reset = f"groups reset --group odradek-merge-{topics.into}"
    assert f"odradek {reset}" in error
    odradek(topics.node.bootstrap, *reset.split(), "--topic", topics.here, "--to-earliest", "--execute")
    assert "1 records merged" in topics.run().out


@pytest.mark.slow
def test_a_source_that_was_created_again_is_read_from_its_start(topics: Topics) -> None:
    topics.create()
    topics.send(topics.here, b"1", b"2")
    topics.catch_up()
    odradek(topics.node.bootstrap, "topics", "delete", topics.here)
    create_topic(topics.node.bootstrap, topics.here)
    topics.send(topics.here, b"3")
    assert topics.catch_up() == 1


def test_partitions_that_are_added_are_read(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.merge.merge.LOOK_FOR_PARTITIONS_S", 0.0)
    topics.create()
    with topics.start() as merge:
        step_to_the_end(merge)
        odradek(topics.node.bootstrap, "topics", "alter", topics.here, "--partitions", 2)
        with pytest.raises(MergeError, match=f"{topics.into} has 1 partitions, and a source has 2"):
            eventually(lambda: merge.step() > 0)
        odradek(topics.node.bootstrap, "topics", "alter", topics.into, "--partitions", 2)
    with topics.start() as merge:
        step_to_the_end(merge)
        for topic in (topics.there, topics.into):
            odradek(topics.node.bootstrap, "topics", "alter", topic, "--partitions", 3)
        producer = Producer({"bootstrap.servers": topics.node.bootstrap})
        producer.produce(topics.there, b"new", partition=2)
        assert producer.flush(PATIENCE_S) == 0
        eventually(lambda: merge.step() > 0)
    assert topics.values(3) == {("west", b"new"): 1}


@pytest.mark.slow
def test_a_second_merge_fences_the_first(topics: Topics) -> None:
    topics.create()
    with topics.start() as first:
        topics.send(topics.here, b"1")
        assert topics.catch_up() == 1
        with pytest.raises(KafkaException, match=r"(?i)fenced"):
            eventually(lambda: first.step() > 0)
    assert topics.values() == {("east", b"1"): 1}


def test_a_record_that_is_too_large_is_named(topics: Topics) -> None:
    topics.create()
    create_topic(topics.node.bootstrap, topics.into, max_message_bytes=1000)
    topics.send(topics.here, b"small")
    assert topics.catch_up() == 1
    topics.send(topics.there, b"x" * 2000)
    error = topics.run(code=1).err
    assert f"{topics.into} does not take a record, {topics.there}-0 offset 0" in error
    assert "max.message.bytes" in error
    assert topics.values() == {("east", b"small"): 1}


def test_a_wrong_topic_gets_one_line_that_says_what_to_do(topics: Topics) -> None:
    topics.create(here=2)
    create_topic(topics.node.bootstrap, topics.into)
    assert f"run `odradek topics alter {topics.into} --partitions 2`" in topics.run(code=1).err
    missing = ["merge", f"east={topics.here}", "west=nothing.there", "--into", topics.into, "--until-idle"]
    assert "topic nothing.there does not exist" in odradek(topics.node.bootstrap, *missing, code=1).err


@pytest.mark.slow
def test_a_merge_goes_on_when_its_broker_comes_back(tmp_path: Path) -> None:
    with Node(tmp_path / "node") as node:
        topics = Topics(node, "again")
        topics.create()
        create_topic(node.bootstrap, topics.into)
        sources = [f"{origin}={topic}" for topic, origin in topics.options.origins.items()]
        words = [*sources, "--into", topics.into, "--bootstrap-server", node.bootstrap]
        with subprocess.Popen([sys.executable, "-m", "odradek", "merge", *words], stderr=subprocess.PIPE) as process:
            try:
                topics.send(topics.here, b"1")
                eventually(lambda: topics.values() == {("east", b"1"): 1})
                node.kill()
                node.start()
                topics.send(topics.there, b"2")
                eventually(lambda: topics.values() == {("east", b"1"): 1, ("west", b"2"): 1})
            finally:
                process.terminate()
                _, errors = process.communicate()
        assert b"stopped; the next start continues here" in errors and b"Traceback" not in errors
