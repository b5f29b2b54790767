"""A follower appends whole responses or nothing, and nothing that its leader's log cannot contain."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.real_io import RealDisk
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.follower_append import append_as_follower
from odradek.log.log import Log
from odradek.log.opening import close_log, open_log
from odradek.log.replicated import in_portions, read_replicated
from odradek.log.search import aborted_transactions
from odradek.log.truncation import truncate_fully_and_start_at
from odradek.record.batch import BatchHeader, patch_leader_epoch, seal
from odradek.record.builder import build_batch
from odradek.record.control import ControlType, control_key, transaction_marker
from odradek.record.record import Record
from tests.support.models.batches import NOW_MS

OpenLog = Callable[..., Log]


@pytest.fixture
def make_log(tmp_path: Path) -> Iterator[OpenLog]:
    disk = RealDisk(workers=1)
    files = FileCache(disk)
    logs: list[Log] = []

    def make(**config: Any) -> Log:
        directory = tmp_path / f"t-{len(logs)}"
        directory.mkdir()
        logs.append(open_log(files, directory, ("t", len(logs)), LogConfig(**config), now_ms=NOW_MS))
        return logs[-1]

    yield make
    for log in logs:
        close_log(log, clean=False)
    disk.close()


def sent(base_offset: int, *values: bytes, epoch: int = 0, **fields: Any) -> bytes:
    """A batch with the bytes of the leader's log."""
    records = [Record(None, value, timestamp_ms=NOW_MS) for value in values]
    return build_batch(records, base_offset=base_offset, leader_epoch=epoch, **fields)


def resealed(batch: bytes, position: int, layout: str, value: int) -> bytes:
    """The batch with another value in it, and a checksum that fits."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    seal(changed)
    return bytes(changed)


def file_bytes(log: Log) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(log.directory.glob("*.log")))


def bad_marker() -> bytes:
    record = Record(control_key(ControlType.ABORT), b"", timestamp_ms=NOW_MS)
    return build_batch([record], base_offset=2, leader_epoch=1, producer_id=7, producer_epoch=0, control=True)


def keyless_control() -> bytes:
    record = Record(b"?", b"", timestamp_ms=NOW_MS)
    return build_batch([record], base_offset=2, leader_epoch=1, producer_id=7, producer_epoch=0, control=True)


SECOND = sent(2, b"c", epoch=1)
BAD = {
    "a flipped bit": SECOND[:-1] + bytes([SECOND[-1] ^ 1]),
    "a flipped bit of the header": SECOND[:40] + bytes([SECOND[40] ^ 1]) + SECOND[41:],
    "another format": SECOND[:16] + b"\x01" + SECOND[17:],
    "a length below the header's": SECOND[:8] + struct.pack(">i", 3) + SECOND[12:],
    "an offset that goes back": sent(1, b"c", epoch=1),
    "an epoch that goes back": sent(2, b"c", epoch=0),
    "an epoch above the leader's": sent(2, b"c", epoch=6),
    "fewer offsets than records": resealed(sent(2, b"c", b"d", epoch=1), 23, ">i", 0),
    "a negative count of records": resealed(SECOND, 57, ">i", -1),
    "a marker without a value": bad_marker(),
    "a control record without a key": keyless_control(),
}


@pytest.mark.parametrize("what", BAD)
def test_no_batch_of_a_response_is_written_where_one_is_bad(make_log: OpenLog, what: str) -> None:
    log = make_log()
    append_as_follower(log, sent(0, b"a", epoch=1), now_ms=NOW_MS, leader_epoch=5)
    before = file_bytes(log)
    answer = sent(1, b"b", epoch=1) + BAD[what] + sent(4, b"e", epoch=1)
    with pytest.raises(ApiError) as caught:
        append_as_follower(log, answer, now_ms=NOW_MS, leader_epoch=5)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.epochs.entries(), file_bytes(log)) == (1, [(1, 0)], before)


def test_a_follower_has_the_leaders_bytes_and_epochs(make_log: OpenLog) -> None:
    log = make_log()
    answer = sent(0, b"a", b"b", epoch=2) + sent(2, b"c", epoch=4) + sent(7, b"d", epoch=4)
    info = append_as_follower(log, answer + sent(8, b"cut off", epoch=4)[:-3], now_ms=NOW_MS, leader_epoch=4)
    assert info is not None and (info.base_offset, info.last_offset) == (0, 7)
    assert log.epochs.entries() == [(2, 0), (4, 2)]
    assert file_bytes(log) == answer


def test_a_batch_without_an_epoch_may_be_anywhere(make_log: OpenLog) -> None:
    log = make_log()
    answer = sent(0, b"a", epoch=2) + sent(1, b"b", epoch=-1) + sent(2, b"c", epoch=2)
    assert append_as_follower(log, answer, now_ms=NOW_MS, leader_epoch=4) is not None
    assert log.epochs.entries() == [(2, 0)]
    with pytest.raises(ApiError):
        append_as_follower(log, sent(3, b"d", epoch=-1) + sent(4, b"e", epoch=1), now_ms=NOW_MS, leader_epoch=4)


def test_a_batch_that_is_cut_off_alone_is_nothing(make_log: OpenLog) -> None:
    log = make_log()
    assert append_as_follower(log, sent(0, b"a")[:-1], now_ms=NOW_MS) is None
    assert append_as_follower(log, b"", now_ms=NOW_MS) is None
    assert log.log_end_offset == 0


def test_an_empty_log_may_begin_inside_a_batch(make_log: OpenLog) -> None:
    log = make_log()
    truncate_fully_and_start_at(log, 3)
    answer = sent(1, b"b", b"c", b"d", b"e", epoch=1)
    assert append_as_follower(log, answer, now_ms=NOW_MS) is not None
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases) == (3, 5, [1])
    assert file_bytes(log) == answer


def test_a_log_that_is_not_empty_may_not(make_log: OpenLog) -> None:
    log = make_log()
    append_as_follower(log, sent(0, b"a"), now_ms=NOW_MS)
    with pytest.raises(ApiError):
        append_as_follower(log, sent(0, b"a", b"b"), now_ms=NOW_MS)
    assert log.log_end_offset == 1


def test_a_leader_with_larger_segments_is_followed(make_log: OpenLog) -> None:
    log = make_log(segment_bytes=200)
    batches = [sent(offset, bytes(40)) for offset in range(5)] + [sent(5, bytes(500))]
    assert append_as_follower(log, b"".join(batches), now_ms=NOW_MS) is not None
    assert log.log_end_offset == 6
    assert file_bytes(log) == b"".join(batches)
    assert len(log.segments.bases) > 2
    sizes = [
        len(portion)
        for portion in in_portions(
            read_replicated(b"".join(batches), next_offset=0, latest_epoch=-1, leader_epoch=0), 250
        )
    ]
    assert sizes == [2, 2, 1, 1]


def test_markers_end_transactions_on_a_follower(make_log: OpenLog) -> None:
    log = make_log()
    data = sent(0, b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    marker = bytearray(
        transaction_marker(commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=3, timestamp_ms=NOW_MS)
    )
    struct.pack_into(">q", marker, 0, 1)
    patch_leader_epoch(marker, 0)
    append_as_follower(log, data, now_ms=NOW_MS)
    log.update_high_watermark(1)
    assert log.last_stable_offset == 0
    append_as_follower(log, bytes(marker), now_ms=NOW_MS)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2
    assert [(each.producer_id, each.first_offset) for each in aborted_transactions(log, 0, 2)] == [(7, 0)]


def test_an_empty_control_batch_of_compaction_is_taken(make_log: OpenLog) -> None:
    marker = bytearray(
        transaction_marker(commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=3, timestamp_ms=NOW_MS)
    )[:61]
    struct.pack_into(">i", marker, 8, 61 - 12)
    struct.pack_into(">i", marker, 57, 0)
    patch_leader_epoch(marker, 0)
    seal(marker)
    log = make_log()
    assert append_as_follower(log, bytes(marker), now_ms=NOW_MS) is not None
    assert BatchHeader.read(file_bytes(log)).record_count == 0
