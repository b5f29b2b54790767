"""A log on a disk that is full, fails or returns other bytes: the changes that are undone, and those that stay."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.real_io import RealClock, RealDisk
from odradek.log.compaction.cleaner import Cleaner, Progress
from odradek.log.compaction.config import CleanerConfig
from odradek.log.compaction.plan import _aborted_from
from odradek.log.config import LogConfig
from odradek.log.follower_append import append_as_follower
from odradek.log.future import is_continued_by
from odradek.log.index import AbortedTransaction, TransactionIndex
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.rolling import advance_end_to
from odradek.log.search import aborted_transactions
from odradek.log.truncation import truncate_to
from odradek.log.verification import rewrite_from
from odradek.record.builder import build_batch
from odradek.record.record import Record
from tests.sim.disk import DiskFaults, SimDisk
from tests.unit.log.test_log_durable import DIRECTORY, Home, aborted_spans, an_aborted_transaction, several_segments


def full(home: Home, room: int = 0, **more: Any) -> None:
    home.disk.faults = DiskFaults(capacity_bytes=home.disk.used_bytes() + room, **more)


def refused(action: Callable[[], object]) -> None:
    """The producer is asked to try again."""
    with pytest.raises(ApiError) as error:
        action()
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_half_a_batch_that_did_not_fit_is_cut_and_the_cut_becomes_durable() -> None:
    home = Home()
    home.append(2)
    home.log.flush()
    path, size = home.log.segments.active.path, home.log.segments.active.size_bytes
    full(home, room=10)
    refused(home.append)
    assert home.disk.size(path) == size and home.log.log_end_offset == 2
    home.disk.faults = DiskFaults()
    assert path.name in home.uncertain()
    home.log.flush()
    assert home.uncertain() == set()
    home.append()
    assert home.log.log_end_offset == 3


def test_half_a_batch_that_cannot_be_cut_is_the_end_of_the_directory() -> None:
    home = Home()
    home.append()
    full(home, room=10, truncate_error=1.0)
    with pytest.raises(StorageError, match="simulated error of a truncation"):
        home.append()


def test_no_record_is_read_up_to_an_offset_in_a_gap_of_compaction() -> None:
    home = Home()
    home.append(2)
    data = build_batch([Record(None, b"v", timestamp_ms=0)], base_offset=9, leader_epoch=0)
    append_as_follower(home.log, bytes(data), now_ms=0)
    assert home.log.read(2, max_bytes=1000, upper_offset=5).size_bytes == 0
    assert home.log.read(2, max_bytes=1000, upper_offset=10).size_bytes == len(data)


def test_a_control_batch_of_a_kind_that_is_not_known_ends_no_transaction() -> None:
    home = Home()
    home.append(transactional=True)
    data = build_batch(
        [Record(b"\0\0\0\x05", b"\0\0", timestamp_ms=0)],
        base_offset=1, leader_epoch=0, producer_id=7, producer_epoch=0, transactional=True, control=True,
    )  # fmt: skip
    append_as_follower(home.log, bytes(data), now_ms=0)
    assert [entry.producer_id for entry in home.log.producers.open_transactions()] == [7]


def test_a_log_that_left_its_directory_has_nothing_to_flush() -> None:
    home = Home()
    home.append()
    home.log.partition_dir.is_detached = True
    assert home.synced(home.log.flush) == []


def test_offsets_that_reach_into_the_next_segment_are_damage() -> None:
    """No checksum covers base offsets. The batches behind are not those that were written there."""
    home = Home()
    several_segments(home)
    path = home.log.segments[0].path
    each = home.log.segments[0].size_bytes // 3
    home.disk.seen(path)[2 * each : 2 * each + 8] = (3).to_bytes(8, "big")
    home.disk.process_died()
    notes: list[str] = []
    log = home.open(notes=notes)
    assert log.log_end_offset == 2
    assert any(
        "offset 3 is the next segment's, which begins at 3; 3 later segments are removed" in each for each in notes
    )


@pytest.mark.parametrize("is_full", [True, False])
def test_a_start_without_room_for_snapshots_of_producers_goes_on(is_full: bool) -> None:
    home = Home()
    several_segments(home)
    wanted = home.log.producers.snapshot()
    home.disk.process_died()
    for name in home.disk.list_dir(DIRECTORY):
        if name.endswith(".snapshot"):
            home.disk.remove(DIRECTORY / name)
    if is_full:
        full(home)
        assert home.open(recovery_point=11, clean_shutdown=True).producers.snapshot() == wanted
    else:
        home.disk.faults = DiskFaults(write_error=1.0)
        with pytest.raises(StorageError, match="simulated write error"):
            home.open(recovery_point=11, clean_shutdown=True)


@pytest.mark.parametrize("fault", ["full", "files"])
def test_an_epoch_of_a_batch_that_did_not_come_is_not_known(fault: str) -> None:
    home = Home()
    home.append(2, epoch=1)
    home.log.flush()
    if fault == "full":
        full(home)
    else:
        home.log.partition_dir.files.invalidate_below(DIRECTORY)
        home.disk.faults = DiskFaults(too_many_files=1.0)
    data = b"".join(
        bytes(build_batch([Record(None, b"v", timestamp_ms=0)], base_offset=at, leader_epoch=epoch))
        for at, epoch in ((2, 4), (3, 5))
    )
    refused(lambda: append_as_follower(home.log, data, now_ms=0))
    assert home.log.epochs.entries() == [(1, 0), (4, 2)], "what begins at the end may begin without a record"
    assert not home.log.flush_state.epochs_are_written
    home.disk.faults = DiskFaults()
    append_as_follower(home.log, data, now_ms=0)
    assert home.log.epochs.entries() == [(1, 0), (4, 2), (5, 3)]


def test_behind_a_cut_no_batch_has_an_epoch_that_cannot_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home()
    home.append(3, epoch=1)
    home.log.flush()
    truncate_to(home.log, 2)

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr("odradek.log.flush_state.write_lines", no_room)
        for _ in range(2):
            refused(lambda: home.append(epoch=2))  # though the batch would fit
            assert home.log.log_end_offset == 2 and not home.log.flush_state.epochs_are_written
    home.append(epoch=2)
    assert home.log.flush_state.epochs_are_written
    assert home.log.epochs.entries() == [(1, 0), (2, 2)]


def test_an_end_that_could_not_move_is_where_it_was() -> None:
    home = Home()
    home.append(3)
    full(home)
    home.disk.faults.too_many_files = 1.0
    refused(lambda: advance_end_to(home.log, 50, 0))
    assert home.log.log_end_offset == 3
    home.disk.faults = DiskFaults()
    advance_end_to(home.log, 50, 0)
    home.append()
    assert (home.log.log_end_offset, home.log.producers.map_end_offset) == (51, 51)


def test_a_cut_of_an_index_that_had_no_descriptor_is_done_by_a_flush() -> None:
    disk = SimDisk(Random(1), DiskFaults(), lambda: 0)
    disk.make_dirs(DIRECTORY)
    entries = [AbortedTransaction(1, at, at + 1, at) for at in (0, 10, 20)]
    index = TransactionIndex(disk, DIRECTORY / "0.txnindex")
    for entry in entries:
        index.append(entry)
    index.flush()
    each = disk.size(index.path) // 3
    disk.faults = DiskFaults(too_many_files=1.0)
    index.truncate(11)
    assert not index.is_written and disk.size(index.path) == 3 * each
    disk.faults = DiskFaults()
    index.flush()
    assert index.is_written and disk.size(index.path) == each
    index.append(entries[2])
    index.flush()
    again = TransactionIndex(disk, index.path)
    again.load()
    assert again.entries == [entries[0], entries[2]]


def test_indexes_that_do_not_fit_on_the_disk_stay_in_memory() -> None:
    home = Home()
    home.append(5)
    indexes = home.log.segments.active.indexes
    indexes._unload()
    assert indexes.is_loaded, "more entries come"
    home.roll()
    home.disk.remove(indexes.offsets.path)
    indexes.rebuild(1)
    full(home)
    indexes._unload()
    assert indexes.is_loaded
    home.disk.faults = DiskFaults(write_error=1.0)
    with pytest.raises(OSError, match="simulated write error"):
        indexes._unload()
    home.disk.faults = DiskFaults()
    indexes._unload()
    assert not indexes.is_loaded
    indexes.load()
    assert len(indexes.offsets) > 1


def test_a_damaged_index_of_aborted_transactions_is_made_again() -> None:
    asks: list[Callable[[Log], Sequence[AbortedTransaction]]] = [
        lambda log: aborted_transactions(log, 0, log.log_end_offset),
        lambda log: _aborted_from(log.segments, 0, log.log_end_offset),
    ]
    for ask in asks:
        home = Home()
        an_aborted_transaction(home)
        home.roll()
        wanted, spans = ask(home.log), aborted_spans(home.log)
        assert len(spans) == 2
        home.log.segments[1].indexes.transactions.entries.clear()
        home.log.segments[1].indexes.transactions_damaged = True
        found = ask(home.log)
        assert [entry[:3] for entry in found] == [entry[:3] for entry in wanted]
        assert aborted_spans(home.log) == spans


def test_aborted_transactions_behind_a_stable_end_are_not_looked_for() -> None:
    home = Home()
    an_aborted_transaction(home)
    (first, _), (second, _) = aborted_spans(home.log)
    home.log.segments[0].indexes._unload()
    assert [entry.first_offset for entry in _aborted_from(home.log.segments, 0, second)] == [first]
    assert [entry.first_offset for entry in _aborted_from(home.log.segments, 1, second + 1)] == [second]
    for _ in range(2):
        home.roll()
        home.append()
    home.log.segments[2].indexes._unload()
    assert _aborted_from(home.log.segments, 1, second) == ()
    assert not home.log.segments[2].indexes.is_loaded, "what ends there began behind"


def test_batches_are_written_again_as_they_were_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home()
    home.append(3)
    segment = home.log.segments.active
    before = bytes(home.disk.seen(segment.path))
    monkeypatch.setattr("odradek.log.verification.RECOVERY_READ_BYTES", 70)  # less than a batch
    rewrite_from(segment, 0)
    assert bytes(home.disk.seen(segment.path)) == before
    home.disk.seen(segment.path)[-1] ^= 1
    with pytest.raises(OSError, match="differ from the verified"):
        rewrite_from(segment, 0)
    home.disk.seen(segment.path)[8:12] = b"\x7f\xff\xff\xff"  # its length
    with pytest.raises(OSError, match="differ from the verified"):
        rewrite_from(segment, 0)


def test_a_copy_goes_on_from_a_log_if_it_has_all_of_it() -> None:
    one, other = Home(), Home()
    assert is_continued_by(one.log, other.log), "both are empty"
    other.append(2, epoch=1)
    assert is_continued_by(one.log, other.log)
    assert not is_continued_by(other.log, one.log)
    one.append(2, epoch=1)
    assert is_continued_by(one.log, other.log)
    one.append(epoch=2)
    other.append(epoch=1)
    assert not is_continued_by(one.log, other.log)


# -- several logs ---------------------------------------------------------------------------------------------------


def started(root: Path) -> LogManager:
    manager = LogManager(RealDisk(workers=1), RealClock(), [root], LogConfig(), Random(1))
    manager.lock_dirs()
    manager.load()
    return manager


def ended(manager: LogManager) -> None:
    manager.close()
    manager.unlock()
    manager.disk.close()  # type: ignore[attr-defined]  # the real one has it


def test_links_and_second_directories_of_a_partition_are_left_alone(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "logs", tmp_path / "elsewhere"
    elsewhere.mkdir()
    manager = started(root)
    manager.create("t", 1, UUID(int=1), {})
    ended(manager)
    (root / "t-7").symlink_to(elsewhere)
    (root / "t-8").symlink_to(tmp_path / "nowhere")
    (root / "t-01").mkdir()
    (root / "__cluster_metadata-0").mkdir()
    manager = started(root)
    assert set(manager.logs) == {("t", 1)}
    assert list(elsewhere.iterdir()) == []
    assert sum("ignored" in note for note in manager.notes) == 2, manager.notes
    refused(lambda: manager.create("t", 7, UUID(int=1), {}))
    refused(lambda: manager.create("t", 8, UUID(int=1), {}))
    ended(manager)


def test_the_id_that_a_damaged_file_lost_is_stored_again(tmp_path: Path) -> None:
    manager = started(tmp_path)
    manager.create("t", 1, UUID(int=1), {})
    ended(manager)
    path = tmp_path / "t-1" / "partition.metadata"
    path.write_text("nothing" * 20)
    manager = started(tmp_path)
    assert manager.topic_ids["t", 1] is None
    log = manager.create("t", 1, UUID(int=5), {"retention.ms": "7"})
    assert (manager.topic_ids["t", 1], log.config.retention_ms) == (UUID(int=5), 7)
    ended(manager)
    manager = started(tmp_path)
    assert manager.topic_ids["t", 1] == UUID(int=5)
    ended(manager)


def test_the_reported_state_of_a_compacted_log(tmp_path: Path) -> None:
    manager = started(tmp_path)
    log = manager.create("t", 1, UUID(int=1), {"cleanup.policy": "compact"})
    cleaner = Cleaner(manager.disk, RealClock(), manager, CleanerConfig())
    state = cleaner.state(log)
    assert (state.running, state.uncleanable, state.groups) == (False, False, 0)
    cleaner.uncleanable[log.topic_partition] = (log, "damaged", log.damage.repair_count)
    assert cleaner.state(log).uncleanable
    progress = Progress(cleaner.examine(log))
    progress.groups, progress.groups_done = 4, 3
    cleaner.running[log.topic_partition] = progress
    state = cleaner.state(log)
    assert (state.running, state.groups, state.groups_done) == (True, 4, 3)
    ended(manager)
