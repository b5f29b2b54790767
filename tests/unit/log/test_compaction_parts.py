"""The limits of a cleaning, its writes and pauses, and the report of its state, part by part."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.real_io import RealDisk
from odradek.log.compaction import output
from odradek.log.compaction.cleaning import Cleaning
from odradek.log.compaction.config import CleanerConfig
from odradek.log.compaction.keys import ENTRY_BYTES
from odradek.log.compaction.output import CleanedSegment, cleaned_paths
from odradek.log.compaction.plan import active_is_overdue, examine, make_plan
from odradek.log.compaction.status import CompactionState, read_tagged
from odradek.log.files import FileCache
from odradek.protocol.messages.leader_change_message import LeaderChangeMessage
from odradek.record.batch import HEADER_BYTES, patch_base_offset
from odradek.record.builder import build_batch
from odradek.record.control import ControlType, control_batch, control_type, transaction_marker
from odradek.record.reader import read_records
from odradek.record.record import Record
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.support.models.compacted_log import RETENTION_MS, CompactedLog, kept_batches


def test_cleanings_share_what_all_may_take() -> None:
    config = CleanerConfig(
        threads=4, dedupe_buffer_bytes=1000, buffer_load_factor=0.5, io_buffer_bytes=4096, max_bytes_per_second=100.0
    )
    assert (config.table_bytes, config.read_bytes, config.pace_bytes_per_second) == (125, 1024, 25.0)
    without = CleanerConfig(threads=0, dedupe_buffer_bytes=1000, buffer_load_factor=9.0, max_bytes_per_second=100.0)
    assert (without.table_bytes, without.pace_bytes_per_second) == (1000, 100.0)
    assert CleanerConfig(io_buffer_bytes=0).read_bytes == 1


def test_batches_of_a_segment_in_the_making_are_written_many_at_a_time(tmp_path: Path) -> None:
    disk = RealDisk(workers=1)
    fresh = CleanedSegment(FileCache(disk), tmp_path, 0, index_interval_bytes=4096)
    path = cleaned_paths(tmp_path, 0)[-1]
    size = offset = 0
    while size < 1 << 20:
        assert path.stat().st_size == 0, "they wait"
        data = bytearray(batch(bytes(100_000)))
        patch_base_offset(data, offset)
        fresh.add(header_of(bytes(data)), data)
        size, offset = size + len(data), offset + 1
    assert path.stat().st_size == size
    small = bytearray(batch(b"v"))
    patch_base_offset(small, offset)
    fresh.add(header_of(bytes(small)), small)
    assert path.stat().st_size == size
    assert fresh.finish([]) == path.stat().st_size == size + len(small)
    disk.close()


@pytest.mark.parametrize("read_bytes", [1, 300, 1 << 20])
def test_pauses_are_for_all_that_is_read(read_bytes: int) -> None:
    compacted = CompactedLog(segment_bytes=2000)
    for number in range(50):
        compacted.append([(b"key-%d" % number, b"v" * 50)])
    compacted.roll()
    sizes = [segment.size_bytes for segment in compacted.log.segments[:-1]]
    cleaner = CleanerConfig(io_buffer_bytes=read_bytes)
    plan = make_plan(compacted.log, examine(compacted.log, compacted.now_ms), cleaner, compacted.now_ms)
    paused: list[int] = []
    learned = Cleaning(compacted.disk, plan, paused.append).build_offset_map()
    assert learned.read_bytes == sum(paused) == sum(sizes)
    batch_bytes = sizes[0] // (compacted.log.segments.bases[1] - compacted.log.segments.bases[0])
    assert max(paused) <= max(read_bytes + batch_bytes, 1), "no longer than one read at once"


@pytest.mark.parametrize(("missing", "mapped"), [(0, 2), (1, 1)])
def test_the_offset_map_ends_at_the_first_batch_without_room(missing: int, mapped: int) -> None:
    """A batch counts by its records, without the header."""
    records = len(batch(b"v")) - HEADER_BYTES
    budget = ENTRY_BYTES + len(b"key") + 1 + ENTRY_BYTES + 1 + records
    compacted = CompactedLog(table_bytes=budget - missing)
    for _ in range(3):
        compacted.append([(b"key", b"v")])
    compacted.roll()
    built = Cleaning(compacted.disk, compacted.plan(), lambda read: None).build_offset_map()
    assert built.end_offset == mapped


def test_a_cleaning_counts_the_records_before_and_after() -> None:
    compacted = CompactedLog()
    compacted.append([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    compacted.append([(b"a", b"2")])
    compacted.append([(b"c", b"2"), (b"c", b"3")])
    compacted.append([(b"a", b"3")])
    compacted.roll()
    cleaning = Cleaning(compacted.disk, compacted.plan(), lambda read: None)
    cleaning.build_offset_map()
    group = cleaning.clean(0)
    assert (group.is_changed, group.records_before, group.records_after) == (True, 7, 3)


@pytest.mark.parametrize(("running", "uncleanable", "flags"), [(True, False, 1), (False, True, 2), (True, True, 3)])
def test_a_state_is_reported_in_bytes_that_stay(running: bool, uncleanable: bool, flags: int) -> None:
    state = CompactionState(7, 8, 9, running=running, uncleanable=uncleanable, groups_done=1, groups=2)
    tag, data = state.tagged()
    assert data == struct.pack(">qqqBII", 7, 8, 9, flags, 1, 2)
    assert read_tagged([(0, b""), (tag, data)]) == state


def test_a_segment_in_the_making_takes_batches_up_to_the_largest_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(workers=1)
    data = batch(b"v")
    monkeypatch.setattr(output, "MAX_SEGMENT_BYTES", len(data))
    fresh = CleanedSegment(FileCache(disk), tmp_path, 0, index_interval_bytes=4096)
    fresh.add(header_of(data), data)
    with pytest.raises(ApiError) as caught:
        fresh.add(header_of(data), data)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert fresh.finish([]) == len(data)
    disk.close()


def test_files_of_an_aborted_cleaning_are_no_part_of_the_next(tmp_path: Path) -> None:
    disk = RealDisk(workers=1)
    files, data = FileCache(disk), batch(b"v")
    given_up = CleanedSegment(files, tmp_path, 0, index_interval_bytes=1)
    for offset in range(3):
        placed = bytearray(data)
        patch_base_offset(placed, offset)
        given_up.add(header_of(bytes(placed)), placed)
    given_up.finish([])
    fresh = CleanedSegment(files, tmp_path, 0, index_interval_bytes=1)
    fresh.add(header_of(data), data)
    assert fresh.finish([]) == len(data)
    assert [path.stat().st_size for path in cleaned_paths(tmp_path, 0)] == [0, 12, 0, len(data)]
    disk.close()


def test_a_log_at_rest_is_neither_cleaned_nor_left_uncleaned() -> None:
    compacted = CompactedLog()
    compacted.append([(b"a", b"1")])
    compacted.roll()
    dirtiness = examine(compacted.log, compacted.now_ms)
    assert CompactionState.of(5, dirtiness) == CompactionState(
        5, 0, compacted.log.segments[0].size_bytes, running=False, uncleanable=False, groups_done=0, groups=0
    )
    assert CompactionState(0, 0, 0).dirty_ratio == 0.0
    assert CompactionState(0, 30, 10).dirty_ratio == 0.25


def test_the_time_index_of_a_cleaned_segment_ends_with_its_newest_time(tmp_path: Path) -> None:
    """Kafka believes it, in a directory that it takes over: a search by time passes over what ends earlier."""
    disk = RealDisk(workers=1)
    fresh = CleanedSegment(FileCache(disk), tmp_path, 7, index_interval_bytes=4096)
    for offset, timestamp_ms in ((7, NOW_MS), (9, NOW_MS + 5), (10, NOW_MS - 5)):
        data = bytearray(batch(b"v", timestamp_ms=timestamp_ms))
        patch_base_offset(data, offset)
        fresh.add(header_of(bytes(data)), data)
    fresh.finish([])
    assert cleaned_paths(tmp_path, 7)[1].read_bytes() == struct.pack(">qi", NOW_MS + 5, 2)
    disk.close()


def test_a_plan_knows_aborts_whose_marker_lies_segments_behind() -> None:
    """Records that were taken back would else replace those before them, and stay."""
    compacted = CompactedLog(min_compaction_lag_ms=1000)
    compacted.append([(b"a", b"kept")])
    compacted.in_transaction(8, [(b"a", b"taken back")], "none")
    compacted.roll()
    compacted.now_ms += 5000
    for _ in range(2):
        compacted.append([(b"b", b"young")])
        compacted.roll()
    compacted.end_transaction(8, commit=False)
    compacted.roll()
    compacted.append([(b"c", b"active")])
    plan = make_plan(compacted.log, examine(compacted.log, compacted.now_ms), CleanerConfig(), compacted.now_ms)
    assert len(plan.segments) == 1, "the others are too young"
    assert [(each.producer_id, each.first_offset) for each in plan.aborted] == [(8, 1)]


def test_the_active_segment_is_closed_when_a_record_of_it_is_overdue() -> None:
    compacted, usual = CompactedLog(max_compaction_lag_ms=1000), CompactedLog()
    for each in (compacted, usual):
        each.append([(b"a", b"1")])
    overdue = [active_is_overdue(compacted.log, compacted.now_ms + later_ms) for later_ms in (0, 1000, 1001)]
    assert overdue == [False, False, True]
    assert not active_is_overdue(usual.log, usual.now_ms + 10**9), "without max.compaction.lag.ms it never is"


def test_an_emptied_marker_keeps_the_epoch_that_fenced_its_producer() -> None:
    """It stays until the producer writes in that epoch: without it, a producer of an older epoch could write again."""
    compacted = CompactedLog()
    compacted.in_transaction(8, [(b"a", b"1")], "none")
    fence = transaction_marker(
        commit=False, producer_id=8, producer_epoch=1, coordinator_epoch=0, timestamp_ms=compacted.now_ms
    )
    marker = compacted._append(fence)

    def cleaned() -> list[int]:
        compacted.append([(b"a", b"2")])
        compacted.roll()
        compacted.clean()
        compacted.now_ms += 10 * RETENTION_MS
        return [header.record_count for header, _ in kept_batches(compacted.log) if header.base_offset == marker]

    assert [cleaned() for _ in range(5)] == [[1], [1], [0], [0], [0]]
    producers = compacted.open(recovery_point=compacted.log.log_end_offset, clean=True).producers.producers
    assert producers[8].producer_epoch == 1
    data = build_batch([Record(b"b", b"3")], producer_id=8, producer_epoch=1, base_sequence=0)
    compacted._append(data)
    assert cleaned() == []


def test_the_end_of_a_mirror_is_never_compacted_away() -> None:
    compacted = CompactedLog()
    compacted.append([(b"a", b"1")])
    end = LeaderChangeMessage(version=0, leader_id=1)
    data = control_batch(
        [(ControlType.LEADER_CHANGE, end)], base_offset=1, leader_epoch=0, timestamp_ms=compacted.now_ms
    )
    compacted._append(data)
    for _ in range(3):
        compacted.append([(b"a", b"2")])
        compacted.roll()
        compacted.clean()
        compacted.now_ms += 10 * RETENTION_MS
    kept = [(header, data) for header, data in kept_batches(compacted.log) if header.is_control]
    assert [control_type(read_records(data, header)[0]) for header, data in kept] == [ControlType.LEADER_CHANGE]
