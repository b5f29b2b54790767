"""Bugs that other brokers had to find in production, as tests of one log; docs/durability.md has the table."""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.real_io import RealClock, RealDisk
from odradek.log.config import LogConfig
from odradek.log.follower_append import append_as_follower
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.opening import close_log
from odradek.log.retention import delete_old_segments
from odradek.log.rolling import roll
from odradek.log.truncation import truncate_fully_and_start_at, truncate_to
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.record.batch import patch_base_offset, patch_leader_epoch
from odradek.replica.manager import ReplicaManager
from tests.support.models.batches import NOW_MS, batch
from tests.unit.log.test_log import Home, append, everything, values

LAST_SEQUENCE = 2**31 - 1
PRODUCER = 7


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def replicated(log: Log, offset: int, value: bytes, epoch: int = 0) -> None:
    data = bytearray(batch(value))
    patch_base_offset(data, offset)
    patch_leader_epoch(data, epoch)
    append_as_follower(log, bytes(data), now_ms=NOW_MS)


def test_the_high_watermark_stays_valid_after_a_full_cut_and_a_roll(home: Home) -> None:
    """KAFKA-9491, KAFKA-9196."""
    log = home.open(segment_bytes=200)
    for number in range(6):
        append(log, batch(b"%d" % number + bytes(60)))
        assert log.high_watermark == log.log_end_offset
    truncate_fully_and_start_at(log, 100)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (100, 100, 100)
    assert log.last_stable_offset == 100
    append(log, batch(b"a" * 60))
    roll(log, NOW_MS)
    assert log.high_watermark == 101 and log.read(101, max_bytes=10).size_bytes == 0
    truncate_to(log, 100)
    assert log.high_watermark == 100


def test_gaps_in_offsets_end_no_load_and_no_read(home: Home) -> None:
    """KAFKA-9065, KAFKA-8764, KAFKA-5413: compaction leaves gaps in the offsets of a log."""
    log = home.open(cleanup_policy=("compact",), segment_bytes=300)
    for offset in (0, 3, 1_000, 5_000_000, 5_000_001):
        replicated(log, offset, b"%d" % offset + bytes(80))
    log.update_high_watermark(log.log_end_offset)
    log.flush()
    for clean in (True, False):
        close_log(log, clean=clean)
        log = home.open(clean=clean, cleanup_policy=("compact",), segment_bytes=300)
        assert log.log_end_offset == 5_000_002
        log.update_high_watermark(log.log_end_offset)
        assert [value[:7].rstrip(b"\0") for value in everything(log) if value] == [
            b"0",
            b"3",
            b"1000",
            b"5000000",
            b"5000001",
        ]
        assert values(log.read(17, max_bytes=1))[0] == b"1000" + bytes(80), "the next one there is"


def test_offsets_that_32_bits_cannot_count_begin_a_new_segment(home: Home) -> None:
    """KAFKA-6264: an index counts from its segment's first offset."""
    log = home.open(cleanup_policy=("compact",))
    far = 2**31
    for offset in (0, far - 1, far, 2 * far + 7):
        replicated(log, offset, b"%d" % offset)
    assert log.segments.bases == [0, far, 2 * far + 7]
    log.update_high_watermark(log.log_end_offset)
    close_log(log)
    log = home.open(cleanup_policy=("compact",))
    log.update_high_watermark(log.log_end_offset)
    assert everything(log) == [b"%d" % offset for offset in (0, far - 1, far, 2 * far + 7)]
    assert log.end_offset_for_epoch(0) == (0, 2 * far + 8)


def test_one_answer_of_a_leader_may_span_more_than_a_segment_can_count(home: Home) -> None:
    log, answer = home.open(cleanup_policy=("compact",)), b""
    for offset in (5, 2**31 + 9, 2**31 + 10):
        data = bytearray(batch(b"%d" % offset))
        patch_base_offset(data, offset)
        patch_leader_epoch(data, 0)
        answer += data
    append_as_follower(log, answer, now_ms=NOW_MS)
    assert log.segments.bases == [0, 2**31 + 9]
    log.update_high_watermark(log.log_end_offset)
    assert everything(log) == [b"5", b"2147483657", b"2147483658"]


def test_a_change_of_the_brokers_defaults_leaves_a_topics_own_settings(tmp_path: Path) -> None:
    """KAFKA-9254: a compacted topic that turned into one that deletes lost its data."""
    disk = RealDisk(workers=1)
    logs = LogManager(disk, RealClock(), [tmp_path], LogConfig(), Random(1))
    logs.lock_dirs()
    logs.load()
    replicas = ReplicaManager(1, logs, fetch_max_bytes=2**20)
    publisher = MetadataPublisher()
    publisher.subscribe(replicas.on_metadata)
    own = ConfigRecord(resource_type=2, resource_name="t", name="cleanup.policy", value="compact")
    placed = PartitionRecord(partition_id=0, topic_id=UUID(int=1), replicas=[1], isr=[1], leader=1)
    publisher.committed(list(enumerate([TopicRecord(name="t", topic_id=UUID(int=1)), own, placed], 1)), 1)
    log = logs.get(("t", 0))
    assert log is not None and log.config.compacted
    replicas.base_config_changed(LogConfig(cleanup_policy=("delete",), retention_ms=1, segment_ms=5), publisher.image)
    assert log.config.cleanup_policy == ("compact",), "its own"
    assert (log.config.retention_ms, log.config.segment_ms) == (1, 5), "the broker's"
    logs.close()
    disk.close()


def test_sequences_go_on_with_0_behind_the_last(home: Home) -> None:
    """KAFKA-7692 and its like: a sequence has 31 bits."""
    log = home.open()

    def send(sequence: int, *parts: bytes) -> int:
        data = batch(*parts, producer_id=PRODUCER, producer_epoch=0, sequence=sequence)
        return append(log, data).base_offset

    assert send(LAST_SEQUENCE - 1, b"a", b"b") == 0
    assert send(0, b"c") == 2
    assert send(LAST_SEQUENCE - 1, b"a", b"b") == 0, "sent again, it is known"
    close_log(log)
    log = home.open(clean=True)
    assert send(0, b"c") == 2, "and after a start"
    with pytest.raises(ApiError) as caught:
        send(2, b"e")
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(1, b"d") == 3


def test_a_producer_expires_only_when_it_is_silent(home: Home) -> None:
    """KAFKA-7190: not because retention took its records, nor while it writes."""
    log = home.open(segment_bytes=200, retention_ms=0)
    for sequence in range(4):
        append(log, batch(bytes(100), producer_id=PRODUCER, producer_epoch=0, sequence=sequence))
    assert delete_old_segments(log, NOW_MS + 10) > 0
    assert [entry.producer_id for entry in log.producers.producers.values()] == [PRODUCER]
    assert log.producers.expire(0, 1000) == 0
    assert log.producers.expire(999, 1000) == 0
    assert log.producers.expire(1000, 1000) == 1
