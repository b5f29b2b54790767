"""One log over a real directory: appending, reading, rolling, cutting, restarting."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.real_io import RealDisk
from odradek.log.append_info import AppendInfo, ReadResult
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.log import Log
from odradek.log.opening import close_log, open_log
from odradek.log.retention import delete_old_segments
from odradek.log.rolling import roll
from odradek.log.search import aborted_transactions, search_timestamp
from odradek.log.truncation import truncate_to
from odradek.record.control import transaction_marker
from odradek.record.reader import read_batches, read_records
from tests.support.models.batches import NOW_MS, batch, header_of


class Home:
    """A directory that a log is opened in again and again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "topic-0"
        self.directory.mkdir(parents=True)
        self.disk = RealDisk(workers=1)
        self.files = FileCache(self.disk)
        self.notes: list[str] = []

    def open(self, *, clean: bool = False, recovery_point: int = 0, log_start: int = 0, **config: Any) -> Log:
        self.notes = []
        if clean:
            recovery_point = recovery_point or 1 << 40  # a stop in good order has moved it to the end
        return open_log(
            self.files,
            self.directory,
            ("topic", 0),
            LogConfig(**config),
            now_ms=NOW_MS,
            clean_shutdown=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start,
            notes=self.notes,
        )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def append(log: Log, *batches: bytes, epoch: int = 0, now_ms: int = NOW_MS) -> AppendInfo:
    info = log.append_as_leader(batches, [header_of(each) for each in batches], leader_epoch=epoch, now_ms=now_ms)
    log.update_high_watermark(log.log_end_offset)
    return info


def values(read: ReadResult) -> list[bytes | None]:
    data = b"".join(chunk.read() for chunk in read.chunks)
    return [
        record.value
        for position, header in read_batches(data)
        for record in read_records(data[position : position + header.size_bytes], header)
    ]


def everything(log: Log) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, max_bytes=1 << 20)
        data = b"".join(chunk.read() for chunk in read.chunks)
        headers = [header for _, header in read_batches(data)]
        assert headers, f"nothing at {offset}, the log ends at {log.log_end_offset}"
        found += values(read)
        offset = headers[-1].last_offset + 1
    return found


def test_offsets_follow_each_other_and_what_was_appended_is_read(home: Home) -> None:
    log = home.open()
    assert append(log, batch(b"a", b"b")) == AppendInfo(0, 1)
    assert append(log, batch(b"c"), batch(b"d", b"e")) == AppendInfo(2, 4)
    assert log.log_end_offset == 5
    assert everything(log) == [b"a", b"b", b"c", b"d", b"e"]
    assert values(log.read(3, max_bytes=1)) == [b"d", b"e"], "the batch that holds the offset, whole"


def test_a_first_batch_larger_than_the_limit_is_given_and_only_where_asked(home: Home) -> None:
    log = home.open()
    append(log, batch(b"x" * 1000))
    assert values(log.read(0, max_bytes=10)) == [b"x" * 1000]
    assert log.read(0, max_bytes=10, at_least_one=False).size_bytes == 0


def test_reading_outside_is_out_of_range_and_at_the_end_is_empty(home: Home) -> None:
    log = home.open()
    append(log, batch(b"a"))
    assert log.read(1, max_bytes=100).size_bytes == 0
    for offset in (-1, 2):
        with pytest.raises(ApiError) as caught:
            log.read(offset, max_bytes=100)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_no_record_at_or_above_the_upper_offset_is_read(home: Home) -> None:
    log = home.open(segment_bytes=400)
    for value in (b"a", b"b", b"c", b"d", b"e", b"f"):
        append(log, batch(value * 50))
    for upper in range(7):
        found = [value[:1] for value in _read_below(log, upper) if value]
        assert found == [b"a", b"b", b"c", b"d", b"e", b"f"][:upper]


def _read_below(log: Log, upper: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = 0
    while offset < upper:
        read = log.read(offset, max_bytes=1 << 20, upper_offset=upper)
        found += values(read)
        offset += len(values(read))
    return found


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_was_closed_or_killed_comes_back(home: Home, clean: bool) -> None:
    log = home.open(segment_bytes=2000, index_interval_bytes=200)
    expected = []
    for number in range(100):
        value = b"value %d" % number
        expected.append(value)
        append(log, batch(value, producer_id=7, sequence=number), epoch=number // 30)
    close_log(log, clean=clean)
    again = home.open(clean=clean, segment_bytes=2000, index_interval_bytes=200)
    assert len(again.segments.bases) > 3
    assert again.log_end_offset == 100
    assert everything(again) == expected
    assert again.epochs.entries() == [(0, 0), (1, 30), (2, 60), (3, 90)]
    duplicate = batch(b"value 99", producer_id=7, sequence=99)
    assert append(again, duplicate, epoch=3) == AppendInfo(99, 99, -1, duplicate=True)
    with pytest.raises(ApiError) as caught:
        append(again, batch(b"gap", producer_id=7, sequence=101), epoch=3)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(again, batch(b"next", producer_id=7, sequence=100), epoch=3).base_offset == 100
    assert not home.notes


def test_a_tail_cut_at_any_byte_loses_only_the_batch_it_cut(home: Home) -> None:
    log = home.open()
    append(log, batch(b"first"))
    keep = log.size_bytes
    append(log, batch(b"second", b"third"))
    close_log(log, clean=False)
    path = home.directory / f"{0:020d}.log"
    whole = path.read_bytes()
    for size in range(keep, len(whole)):
        path.write_bytes(whole[:size])
        home.files.invalidate_below(home.directory)
        again = home.open()
        assert everything(again) == [b"first"], f"cut at {size}"
        assert path.stat().st_size == keep
        assert bool(home.notes) == (size > keep)
        close_log(again, clean=False)


DAMAGED = b"damaged " * 4


@pytest.mark.parametrize("position", range(0, len(batch(DAMAGED)), 3))
def test_a_flipped_bit_past_the_recovery_point_cuts_the_log_there(home: Home, position: int) -> None:
    log = home.open()
    append(log, batch(b"good"))
    keep = log.size_bytes
    append(log, batch(DAMAGED))
    append(log, batch(b"behind"))
    close_log(log, clean=False)
    path = home.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[keep + position] ^= 0x10
    path.write_bytes(data)
    again = home.open()
    if 12 <= position < 16:
        assert len(everything(again)) == 3, "the leader epoch is not covered by the checksum"
    elif 4 <= position < 8:
        # Nor is the offset: one that is higher looks like the gap that compaction leaves, and the next one is wrong.
        assert everything(again) == [b"good", DAMAGED]
        assert "truncated at position" in home.notes[0]
    else:
        assert everything(again) == [b"good"]
        assert "truncated at position" in home.notes[0]
        assert append(again, batch(b"new")).base_offset == 1


@pytest.mark.parametrize("damage", ["missing", "short", "garbage", "zeros"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_are_rebuilt_when_they_are_missing_or_wrong(home: Home, suffix: str, damage: str) -> None:
    log = home.open(index_interval_bytes=100, segment_bytes=4000)
    expected = [b"value %d" % number for number in range(60)]
    for number, value in enumerate(expected):
        append(log, batch(value, timestamp_ms=NOW_MS + number * 10))
    close_log(log)
    for path in home.directory.glob(f"*{suffix}"):
        if damage == "missing":
            path.unlink()
        elif damage == "short":
            path.write_bytes(path.read_bytes()[:-5])
        elif damage == "garbage":
            path.write_bytes(b"\x7fgarbage" * 12)
        else:
            path.write_bytes(path.read_bytes() + bytes(240))
    again = home.open(clean=True, index_interval_bytes=100, segment_bytes=4000)
    assert again.log_end_offset == 60
    found = [search_timestamp(again, NOW_MS + number * 10).run() for number in range(60)]
    assert [each and each.offset for each in found] == list(range(60))
    for offset in range(60):
        assert values(again.read(offset, max_bytes=1))[0] == expected[offset]


def test_offsets_by_time(home: Home) -> None:
    log = home.open(segment_bytes=500, index_interval_bytes=100)
    for number in range(20):
        append(log, batch(b"a", b"b", timestamp_ms=NOW_MS + number * 100), epoch=3)
    assert search_timestamp(log, 0).run() == (NOW_MS, 0, 3)
    assert search_timestamp(log, NOW_MS + 501).run() == (NOW_MS + 501, 11, 3), "exact inside a batch"
    assert search_timestamp(log, NOW_MS + 502).run() == (NOW_MS + 600, 12, 3)
    assert search_timestamp(log, NOW_MS + 100_000).run() is None
    assert search_timestamp(log, None).run() == (NOW_MS + 1901, 39, 3)


def test_segments_roll_by_size_age_and_offset(home: Home) -> None:
    log = home.open(segment_bytes=1000, segment_ms=10_000)
    append(log, batch(b"x" * 600))
    append(log, batch(b"x" * 600))
    assert len(log.segments.bases) == 2
    append(log, batch(b"old", timestamp_ms=NOW_MS + 10_001))
    assert len(log.segments.bases) == 3
    with pytest.raises(ApiError) as caught:
        append(log, batch(b"x" * 2000))
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize(("jitter", "segments"), [(0.0, 1), (0.5, 1), (1.0, 2)])
def test_segments_roll_earlier_by_the_logs_share_of_the_jitter(tmp_path: Path, jitter: float, segments: int) -> None:
    home = Home(tmp_path)
    config = LogConfig(segment_ms=10_000, segment_jitter_ms=4_000)
    log = open_log(home.files, home.directory, ("topic", 0), config, now_ms=NOW_MS, jitter=jitter)
    append(log, batch(b"first", timestamp_ms=NOW_MS))
    append(log, batch(b"later", timestamp_ms=NOW_MS + 7_000))
    assert len(log.segments.bases) == segments


def test_retention_by_time_size_and_log_start(home: Home) -> None:
    log = home.open(segment_bytes=200, retention_ms=1000, retention_bytes=-1)
    for number in range(10):
        append(log, batch(b"x" * 50, timestamp_ms=NOW_MS + number * 500))
    newest = NOW_MS + 9 * 500
    assert delete_old_segments(log, newest) == 7
    assert log.log_start_offset == 7
    with pytest.raises(ApiError):
        log.read(6, max_bytes=10)
    log.config = LogConfig(segment_bytes=200, retention_ms=-1, retention_bytes=150)
    assert delete_old_segments(log, newest) == 1
    assert log.advance_log_start(9)
    assert delete_old_segments(log, newest) == 1
    assert (log.log_start_offset, log.log_end_offset) == (9, 10)
    assert everything(log) == [b"x" * 50]


def test_a_clock_that_jumped_back_deletes_nothing(home: Home) -> None:
    log = home.open(segment_bytes=200, retention_ms=1000)
    for number in range(5):
        append(log, batch(b"x" * 50, timestamp_ms=NOW_MS + number))
    assert delete_old_segments(log, NOW_MS - 3_600_000) == 0


def test_deletion_of_all_segments_leaves_an_empty_log_that_goes_on(home: Home) -> None:
    log = home.open(retention_ms=1000)
    append(log, batch(b"a", b"b"))
    assert delete_old_segments(log, NOW_MS + 5000) == 1
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    assert append(log, batch(b"c")).base_offset == 2
    close_log(log)
    assert home.open(clean=True, log_start=2).log_end_offset == 3


@pytest.mark.parametrize("cut", [0, 1, 5, 17, 30, 39, 40])
def test_truncation_cuts_everywhere_at_once(home: Home, cut: int) -> None:
    log = home.open(segment_bytes=700, index_interval_bytes=150)
    for number in range(40):
        append(log, batch(b"%d" % number, producer_id=1, sequence=number), epoch=number // 10)
    truncate_to(log, cut)
    assert log.log_end_offset == cut
    assert log.high_watermark <= cut
    assert everything(log) == [b"%d" % number for number in range(cut)]
    assert all(start < cut for _, start in log.epochs.entries())
    info = append(log, batch(b"again", producer_id=1, sequence=cut), epoch=9)
    assert info.base_offset == cut
    close_log(log)
    again = home.open(clean=True, segment_bytes=700)
    assert everything(again) == [b"%d" % number for number in range(cut)] + [b"again"]


def test_a_truncation_inside_a_batch_ends_the_log_before_it(home: Home) -> None:
    """A leader whose log begins inside a batch (DeleteRecords) has its first leader epoch begin there."""
    log = home.open()
    append(log, batch(b"0", b"1"), epoch=1)
    append(log, batch(b"2", b"3", b"4", b"5"), epoch=1)
    truncate_to(log, 4)
    assert (log.log_end_offset, everything(log)) == (2, [b"0", b"1"])
    assert append(log, batch(b"again"), epoch=2).base_offset == 2
    log.update_high_watermark(3)


def test_a_truncation_inside_a_batch_keeps_its_deleted_records_deleted(home: Home) -> None:
    log = home.open()
    append(log, batch(b"0", b"1", b"2", b"3"), epoch=1)
    log.update_high_watermark(4)
    log.advance_log_start(2)
    truncate_to(log, 3)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 2, 2)


@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_records_that_a_crash_undeletes_have_their_leader_epochs(home: Home, start: int) -> None:
    """The checkpoint of log start offsets is older than that of leader epochs."""
    log = home.open(segment_bytes=150)
    for epoch, values in ((1, (b"0", b"1")), (2, (b"2", b"3")), (4, (b"4",))):
        append(log, batch(*values), epoch=epoch)
    log.advance_log_start(3)
    close_log(log)
    again = home.open(clean=True, log_start=start, segment_bytes=150)
    epochs = [again.epochs.epoch_for_offset(offset) for offset in range(start, 5)]
    assert epochs == [1, 1, 2, 2, 4][start:]


def test_aborted_transactions_and_the_last_stable_offset(home: Home) -> None:
    log = home.open()
    append(log, batch(b"plain"))
    append(log, batch(b"in", producer_id=5, sequence=0, transactional=True))
    append(log, batch(b"other"))
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    marker = transaction_marker(commit=False, producer_id=5, producer_epoch=0, coordinator_epoch=1, timestamp_ms=NOW_MS)
    append(log, marker)
    assert log.last_stable_offset == 4
    (aborted,) = aborted_transactions(log, 0, 4)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (5, 1, 3)
    close_log(log)
    again = home.open(clean=True)
    again.update_high_watermark(4)
    assert aborted_transactions(again, 0, 4) == [aborted]
    assert aborted_transactions(again, 0, 1) == []


def test_log_append_time_is_written_and_sealed(home: Home) -> None:
    log = home.open(message_timestamp_type="LogAppendTime")
    assert append(log, batch(b"a", b"b", timestamp_ms=5), now_ms=NOW_MS).log_append_time_ms == NOW_MS
    data = log.read(0, max_bytes=1000).chunks[0].read()
    header = header_of(data)
    assert [record.timestamp_ms for record in read_records(data, header)] == [NOW_MS, NOW_MS]
    close_log(log, clean=False)
    assert home.open(message_timestamp_type="LogAppendTime").log_end_offset == 2, "the checksum was computed again"


def test_a_reader_keeps_its_bytes_when_the_segment_is_deleted(home: Home) -> None:
    log = home.open(retention_ms=1000)
    append(log, batch(b"still here"))
    read = log.read(0, max_bytes=1000)
    delete_old_segments(log, NOW_MS + 5000)
    assert values(read) == [b"still here"]


def test_a_damaged_epoch_checkpoint_is_rebuilt_from_the_log(home: Home) -> None:
    log = home.open(segment_bytes=500)
    for number in range(20):
        append(log, batch(b"x"), epoch=number // 5)
    entries = log.epochs.entries()
    close_log(log)
    (home.directory / "leader-epoch-checkpoint").write_text("0\n9\n1 2\n")
    assert home.open(clean=True).epochs.entries() == entries
    assert "rebuilt" in home.notes[0]


@pytest.mark.parametrize("count", [1, 2])
def test_a_log_that_retention_has_emptied_keeps_its_last_epoch(home: Home, count: int) -> None:
    log = home.open(retention_ms=1000)
    for _ in range(count):
        append(log, batch(b"gone"), epoch=3)
    delete_old_segments(log, NOW_MS + 5000)
    assert log.log_start_offset == log.log_end_offset == count
    assert log.epochs.entries() == [(3, count)]
    close_log(log)
    assert home.open(clean=True).epochs.entries() == [(3, count)]


def test_epochs_that_recovery_read_from_the_log_outlive_a_clean_stop(home: Home) -> None:
    log = home.open()
    append(log, batch(b"a"), epoch=2)
    log.flush()
    append(log, batch(b"b"), epoch=3)  # nothing says it but the batch itself
    close_log(log, clean=False)
    again = home.open(recovery_point=1)
    assert again.epochs.entries() == [(2, 0), (3, 1)]
    close_log(again)
    assert home.open(clean=True).epochs.entries() == [(2, 0), (3, 1)]


def test_epochs_of_what_recovery_made_durable_are_stored_with_it(home: Home) -> None:
    log = home.open(flush_messages=1)
    append(log, batch(b"a"), epoch=2)
    log.flush()
    append(log, batch(b"b"), epoch=3)
    close_log(log, clean=False)
    again = home.open(recovery_point=1, flush_messages=1)
    assert again.recovery_point == 2
    close_log(again, clean=False)
    assert home.open(recovery_point=2, flush_messages=1).epochs.entries() == [(2, 0), (3, 1)]


@pytest.mark.parametrize("start", [1, 2, 3, 4])
@pytest.mark.parametrize("checkpoint", [None, "0\n9\n1 2\n"], ids=["missing", "damaged"])
def test_epochs_read_from_batches_begin_where_the_log_does(home: Home, checkpoint: str | None, start: int) -> None:
    """The files begin with batches that were deleted, of epochs that the log had left."""
    log = home.open()
    for epoch in (2, 3, 3, 5):
        append(log, batch(b"x"), epoch=epoch)
    log.advance_log_start(start)
    known = log.epochs.entries()
    path = home.directory / "leader-epoch-checkpoint"
    path.unlink(missing_ok=True)
    if checkpoint is not None:
        path.write_text(checkpoint)
    assert home.open(log_start=start).epochs.entries() == known and known[0][1] == start


def test_an_epoch_of_batches_that_recovery_truncated_is_removed(home: Home) -> None:
    log = home.open()
    append(log, batch(b"a"), epoch=2)
    log.flush()
    size = (home.directory / f"{0:020}.log").stat().st_size
    append(log, batch(b"b"), epoch=3)
    log.assign_epoch(5, 2)
    append(log, batch(b"c"), epoch=5)
    log.flush()
    close_log(log, clean=False)
    with (home.directory / f"{0:020}.log").open("r+b") as file:
        file.truncate(size)
    cut = home.open(recovery_point=1)
    append(cut, batch(b"d"), batch(b"e"), epoch=4)
    close_log(cut, clean=False)
    assert home.open(recovery_point=1).epochs.entries() == [(2, 0), (4, 1)], "epoch 5 never had the offset 2"


def test_a_damaged_producer_snapshot_is_rebuilt_from_the_log(home: Home) -> None:
    log = home.open()
    append(log, batch(b"a", producer_id=3, sequence=0))
    close_log(log)
    (path,) = home.directory.glob("*.snapshot")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    again = home.open(clean=True)
    assert append(again, batch(b"a", producer_id=3, sequence=0)).duplicate


@pytest.mark.parametrize("clean", [True, False])
def test_retries_of_all_that_was_under_way_are_known_after_a_restart(home: Home, clean: bool) -> None:
    log = home.open()
    sent = [batch(b"v", producer_id=7, sequence=number) for number in range(4)]
    for each in sent:
        append(log, each)
    roll(log, NOW_MS)
    append(log, batch(b"of another", producer_id=8, sequence=0))
    close_log(log, clean=clean)
    again = home.open(clean=clean)
    for number, each in enumerate(sent):
        info = append(again, each)
        assert (info.duplicate, info.base_offset) == (True, number), "the snapshot knows only the last one"


def test_a_segment_that_lost_its_end_takes_the_later_ones_with_it(home: Home) -> None:
    log = home.open()
    append(log, batch(b"kept"))
    keep = log.size_bytes
    append(log, batch(b"lost"))
    roll(log, NOW_MS)
    append(log, batch(b"built on what is lost"))
    close_log(log, clean=False)
    path = home.directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:keep])
    again = home.open()
    assert everything(again) == [b"kept"]
    assert "the next one begins at 2" in home.notes[0]
    assert append(again, batch(b"new")).base_offset == 1
    close_log(again, clean=False)
    assert everything(home.open()) == [b"kept", b"new"]


def test_the_high_watermark_moves_forward_to_the_end_at_most(home: Home) -> None:
    log = home.open()
    log.append_as_leader([batch(b"a", b"b")], [header_of(batch(b"a", b"b"))], leader_epoch=0, now_ms=NOW_MS)
    moves = [log.update_high_watermark(offset) for offset in (0, 1, 1, 0, 9, 9)]
    assert moves == [False, True, False, False, True, False] and log.high_watermark == 2


def test_the_last_batch_is_found_without_its_file(home: Home) -> None:
    log = home.open()
    segment = log.segments.active
    assert segment.last_batch_with(0) is None
    append(log, batch(b"a", b"b"))
    append(log, batch(b"c", b"d"))
    assert segment.last_batch_with(1) is None and segment.last_batch_with(4) is None
    for offset in (2, 3):
        assert segment.last_batch_with(offset) == segment.locate(offset)
        assert segment.last_batch_with(offset) is not None
    truncate_to(log, 2)
    assert segment.last_batch_with(1) is None and segment.last_batch_with(2) is None
    append(log, batch(b"e"))
    assert segment.last_batch_with(2) == segment.locate(2)
    segment.batches.size_bytes += 1
    assert segment.last_batch_with(2) is None, "more was written that is not indexed"


def test_damage_behind_what_a_reader_may_have_is_not_its_business(home: Home) -> None:
    """The batch before was compacted away, and the next segment begins where the reader's part ends."""
    log = home.open(cleanup_policy=("compact",))
    for value in (b"a", b"b"):
        append(log, batch(value))
        roll(log, NOW_MS)
    append(log, batch(b"c"))
    for number, size in ((1, 0), (2, 10)):
        segment = log.segments[number]
        home.disk.open(segment.path).truncate(size)
        segment.batches.size_bytes = size
        segment.indexes.rebuild(4096)
    assert log.read(1, max_bytes=100, upper_offset=2).size_bytes == 0
    with pytest.raises(ApiError) as caught:
        log.read(1, max_bytes=100, upper_offset=3)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_an_index_entry_of_another_batch_is_found_out_by_any_reader(home: Home) -> None:
    """Its positions rise and are batches' ends, as those of a good one: only the batches say otherwise."""
    log = home.open(index_interval_bytes=1)
    for number in range(8):
        append(log, batch(b"%d" % number))
    size = len(batch(b"0"))
    close_log(log)
    path = home.directory / f"{0:020d}.index"
    right = path.read_bytes()
    assert right == b"".join(struct.pack(">ii", number, number * size) for number in range(1, 8))
    for wrong in (3, 7):  # batches further than each entry says
        entries = [(number, min(number + wrong, 7 + number // 7) * size) for number in range(1, 8)]
        for offset in range(8):
            rising = [each for at, each in enumerate(entries) if at == 0 or each[1] > entries[at - 1][1]]
            path.write_bytes(b"".join(struct.pack(">ii", *each) for each in rising if each[1] < 8 * size))
            again = home.open(clean=True, index_interval_bytes=1)
            assert values(again.read(offset, max_bytes=1)) == [b"%d" % offset]
            close_log(again, clean=False)


@pytest.mark.parametrize("keep", [1, 2, 3, 4, 5, 6])
def test_the_newest_time_of_a_log_that_was_cut_is_of_what_stays(home: Home, keep: int) -> None:
    """The newest time may be that of a batch behind the last entry of the time index."""
    size = len(batch(b"0"))
    log = home.open(index_interval_bytes=2 * size)
    times = [NOW_MS + delta for delta in (0, 50, 20, 70, 30, 90, 10)]
    for number, time_ms in enumerate(times):
        append(log, batch(b"%d" % number, timestamp_ms=time_ms))
    truncate_to(log, keep)
    newest = search_timestamp(log, None).run()
    assert newest is not None and newest.timestamp_ms == max(times[:keep])
    assert newest.offset == times.index(newest.timestamp_ms)
    for _ in range(keep, 12):  # entries come as far apart as before
        append(log, batch(b"x", timestamp_ms=NOW_MS))
    offsets = log.segments.active.indexes.offsets
    positions = [offsets.boundary_after(position) for position in range(0, 12 * size, size)]
    boundaries = sorted({each for each in positions if each is not None})
    assert boundaries == [number * size for number in (3, 6, 9)]


@pytest.mark.parametrize(("recovery_point", "at_once"), [(2, False), (3, True)])
def test_epochs_are_durable_at_once_behind_a_checkpoint_that_says_more(
    home: Home, recovery_point: int, at_once: bool
) -> None:
    """The log has lost its end since, and the next start would believe the epochs below that point."""
    log = home.open()
    append(log, batch(b"a"), batch(b"b"))
    close_log(log)
    again = home.open(clean=True, recovery_point=recovery_point)
    append(again, batch(b"c"), epoch=5)
    assert ("5 2" in (home.directory / "leader-epoch-checkpoint").read_text().splitlines()) == at_once
