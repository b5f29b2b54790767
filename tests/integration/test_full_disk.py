"""A full disk, for real: producers get an error, consumers read on; with space again all works, with no restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.record.batch import crc_is_valid
from odradek.record.reader import read_batches
from tests.support.clients.api_calls import Calls, batch, bytes_of, name_of, values_in
from tests.support.disks.file_system import Ballast, small_tmpfs
from tests.support.nodes.node import Node
from tests.support.waiting import eventually

MIB = 1 << 20
FULL = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Node, Ballast]]:
    """A node all of whose files are on a file system of 16 MB."""
    with small_tmpfs(tmp_path / "disk", 16 * MIB) as mounted:
        node = Node(
            tmp_path / "node",
            {
                "log.dirs": mounted / "data",
                "log.retention.check.interval.ms": 500,
                "log.flush.offset.checkpoint.interval.ms": 200,
                "log.index.interval.bytes": 100,
                "metadata.log.max.record.bytes.between.snapshots": 500,
            },
        )
        with node:
            yield node, Ballast(mounted)


def create(calls: Calls, name: str, **configs: object) -> int:
    """Ask for a topic; returns the error code."""
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()]
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=settings)], timeout_ms=30_000
    )
    code: int = calls.request(ApiKey.CREATE_TOPICS, 5, request).topics[0].error_code
    return code


def read_all(calls: Calls, topic: str) -> list[bytes | None]:
    """Every value; each batch's checksum is looked at."""
    found: list[bytes | None] = []
    end = calls.list_end(topic)
    offset = 0
    while offset < end:
        data = bytes_of(calls.read(topic, offset, max_bytes=MIB).records)
        for position, header in read_batches(data):
            assert crc_is_valid(memoryview(data)[position : position + header.size_bytes], header)
            assert header.base_offset >= offset, "in order, once"
            offset = header.last_offset + 1
        found += values_in(data)
    return found


@pytest.mark.parametrize(("value_bytes", "count"), [(3000, 20), (250_000, 8)], ids=["one segment", "at a roll"])
def test_a_full_disk_refuses_producers_and_serves_consumers(
    small: tuple[Node, Ballast], value_bytes: int, count: int
) -> None:
    node, ballast = small
    with Calls(node.port) as calls:
        topic = calls.create_topic(segment_bytes=MIB)
        producer_id = calls.producer()
        kept: list[bytes | None] = []

        def produce() -> int:
            value = b"%06d" % len(kept) + bytes(value_bytes)
            data = batch(value, producer_id=producer_id, producer_epoch=0, sequence=len(kept))
            answer = calls.produce(topic, data)
            if not answer.error_code:
                assert answer.base_offset == len(kept)
                kept.append(value)
            return int(answer.error_code)

        for _ in range(count):
            assert produce() == 0
        for leave_bytes in (0, 10 * value_bytes // 4):
            ballast.fill(leave_bytes=leave_bytes)
            refused = 0
            while refused < 30:
                code = produce()
                assert code in (0, FULL), name_of(code)
                refused += code == FULL
                time.sleep(0.01)
            assert read_all(calls, topic) == kept, "reads go on"
            time.sleep(1)  # checkpoints, retention and flushes have their turn without space
            assert read_all(calls, topic) == kept
            ballast.release()
            eventually(lambda: produce() == 0)
            for _ in range(count - 1):
                assert produce() == 0
            assert read_all(calls, topic) == kept
    node.kill()
    node.start()
    with Calls(node.port) as calls:
        calls.wait_for_leaders(topic, 1)
        assert read_all(calls, topic) == kept, "no torn log"
    text = node.log_text()
    assert 1 <= text.count("log directory is full") <= 2, "once each time, or once where it was full again at once"
    assert "Traceback" not in text
    assert "offline" not in text


@pytest.mark.parametrize("known", [True, False], ids=["known producer", "new producer"])
def test_batches_behind_one_without_space_get_the_same_error(small: tuple[Node, Ballast], *, known: bool) -> None:
    node, ballast = small
    with Calls(node.port) as calls:
        topic, producer_id = calls.create_topic(), calls.producer()

        def produce(sequence: int) -> ErrorCode:
            # The first request needs more space than the next one.
            data = batch(
                bytes(100_000 if sequence == first else 10),
                producer_id=producer_id,
                producer_epoch=0,
                sequence=sequence,
            )
            return ErrorCode(calls.produce(topic, data).error_code)

        first = -1
        if known:
            assert produce(0) is ErrorCode.NONE
        first = int(known)
        ballast.fill(leave_bytes=8 * 1024)
        for _ in range(2):
            assert [produce(first + behind) for behind in range(4)] == [FULL] * 4, "and not out of order"
        ballast.release()
        assert [produce(first + behind) for behind in range(4)] == [ErrorCode.NONE] * 4


def test_metadata_changes_fail_on_a_full_disk_and_succeed_on_retry(small: tuple[Node, Ballast]) -> None:
    node, ballast = small
    with Calls(node.port) as calls:
        created = []
        assert create(calls, "before") == 0
        created.append("before")
        ballast.fill()
        failures = 0
        for number in range(60):
            code = create(calls, f"t{number}")
            assert code in (0, FULL), name_of(code)
            if code == 0:
                created.append(f"t{number}")
            failures += code == FULL
        assert failures > 10
        ballast.release()
        eventually(lambda: create(calls, "after") == 0)
        created.append("after")
        for name in created:
            # A topic that the metadata took, though there was no space for its log, gets it by itself.
            eventually(lambda name=name: calls.produce(name, batch(b"x")).error_code == 0)
    node.kill()
    node.start()
    with Calls(node.port) as calls:
        for name in created:
            calls.wait_for_leaders(name, 1)
            assert read_all(calls, name) == [b"x"] * len(read_all(calls, name)) != []
    assert node.log_text().count("Traceback") == 0


def test_a_full_disk_at_the_stop_and_at_the_start_loses_nothing(small: tuple[Node, Ballast]) -> None:
    node, ballast = small
    with Calls(node.port) as calls:
        topic = calls.create_topic()
        values = [bytes([number]) * 3000 for number in range(20)]
        for value in values:
            assert not calls.produce(topic, batch(value)).error_code
        ballast.fill()
    node.stop()
    ballast.release()
    node.start()
    with Calls(node.port) as calls:
        calls.wait_for_leaders(topic, 1)
        assert read_all(calls, topic) == values
    assert node.log_text().count("Traceback") == 0


def test_a_controller_that_cannot_write_its_vote_stops_as_kafkas_does(
    small: tuple[Node, Ballast],
) -> None:
    node, ballast = small
    with Calls(node.port) as calls:
        topic = calls.create_topic()
        value = bytes(3000)
        assert not calls.produce(topic, batch(value)).error_code
    # The process ends first: files that it had open and removed are free space only then.
    node.kill()
    ballast.fill()
    node.launch()
    assert node.process is not None
    assert node.process.wait(timeout=60) == 1, "who cannot remember a vote must not vote"
    node.process = None
    last = node.log_text().splitlines()[-2:]
    assert any("__cluster_metadata-0" in line and "No space left on device" in line for line in last), last
    assert node.log_text().count("Traceback") == 0
    ballast.release()
    node.start()
    with Calls(node.port) as calls:
        calls.wait_for_leaders(topic, 1)
        assert read_all(calls, topic) == [value]


@pytest.fixture
def separate_disks(tmp_path: Path) -> Iterator[tuple[Node, Ballast, Path]]:
    """A node whose topics are on a file system of 16 MB, and its metadata elsewhere; the directory of its topics."""
    with small_tmpfs(tmp_path / "disk", 16 * MIB) as mounted:
        node = Node(
            tmp_path / "node",
            {
                "log.dirs": mounted / "data",
                "metadata.log.dir": tmp_path / "metadata",
                "log.index.interval.bytes": 100,
            },
        )
        with node:
            yield node, Ballast(mounted), mounted / "data"


# An hour ago, so that retention keeps all.
TIME_MS = time.time_ns() // 1_000_000 - 3_600_000
SEGMENT_MS = 60_000
# With an entry for each of so many batches neither index of a segment fits a page of 4 KB.
BATCHES = 560
VALUE_BYTES = 1000


def time_of(number: int) -> int:
    """The time of a record; behind the first `BATCHES` it jumps by more than `SEGMENT_MS`, so that a segment rolls."""
    return TIME_MS + number + (number >= BATCHES) * 2 * SEGMENT_MS


def numbered(number: int) -> bytes:
    return batch(b"%06d" % number + bytes(VALUE_BYTES), timestamp_ms=time_of(number))


def found_by_offset_and_time(calls: Calls, topic: str, count: int) -> None:
    """Check that both indexes find each fiftieth record, and the last one."""
    assert calls.list_end(topic) == count
    for number in [*range(0, count, 50), count - 1]:
        value = values_in(calls.read(topic, number, max_bytes=1).records)[0]
        assert value is not None and value[:6] == b"%06d" % number
        assert calls.list_end(topic, timestamp=time_of(number)) == number


@pytest.mark.parametrize("left_bytes", [0, 4096, 8192, 12288])
def test_no_space_for_an_index_at_a_roll_refuses_the_batch(
    separate_disks: tuple[Node, Ballast, Path], left_bytes: int
) -> None:
    node, ballast, directory = separate_disks
    with Calls(node.port) as calls:
        topic = calls.create_topic(segment_bytes=MIB, segment_ms=SEGMENT_MS)
        for number in range(BATCHES):
            assert not calls.produce(topic, numbered(number)).error_code
        ballast.fill(leave_bytes=left_bytes)
        count = BATCHES
        for _ in range(5):
            code = calls.produce(topic, numbered(count)).error_code
            assert code in (0, FULL), name_of(code)
            count += code == 0
        found_by_offset_and_time(calls, topic, count)
        assert left_bytes or count == BATCHES
        ballast.release()
        eventually(lambda: calls.produce(topic, numbered(count)).error_code == 0)
        count += 1
        found_by_offset_and_time(calls, topic, count)
        assert len(list((directory / f"{topic}-0").glob("*.log"))) > 1
    node.kill()
    node.start()
    with Calls(node.port) as calls:
        calls.wait_for_leaders(topic, 1)
        found_by_offset_and_time(calls, topic, count)
    assert "Traceback" not in node.log_text()
    assert "offline" not in node.log_text()


@pytest.mark.parametrize("stopped", [True, False], ids=["after a stop", "after a kill"])
def test_no_space_for_an_index_at_the_start_and_all_is_served(
    separate_disks: tuple[Node, Ballast, Path], stopped: bool
) -> None:
    node, ballast, directory = separate_disks
    with Calls(node.port) as calls:
        topic = calls.create_topic(segment_bytes=MIB)
        count = 3 * BATCHES
        for number in range(count):
            assert not calls.produce(topic, numbered(number)).error_code
    node.stop() if stopped else node.kill()
    files = directory / f"{topic}-0"
    assert len(list(files.glob("*.log"))) > 1
    for index in (*files.glob("*.index"), *files.glob("*.timeindex")):
        index.unlink()
    ballast.fill()
    node.start()
    with Calls(node.port) as calls:
        calls.wait_for_leaders(topic, 1)
        found_by_offset_and_time(calls, topic, count)
        refused = 0
        while refused < 5:
            code = calls.produce(topic, numbered(count)).error_code
            assert code in (0, FULL), name_of(code)
            refused += code == FULL
            count += code == 0
        ballast.release()
        eventually(lambda: calls.produce(topic, numbered(count)).error_code == 0)
        count += 1
        found_by_offset_and_time(calls, topic, count)
    node.stop()
    segments = {each.stem for each in files.glob("*.log")}
    assert {each.stem for each in files.glob("*.timeindex")} == segments, "they are there again after a stop"
    node.start()
    with Calls(node.port) as calls:
        calls.wait_for_leaders(topic, 1)
        found_by_offset_and_time(calls, topic, count)
    assert "Traceback" not in node.log_text()
