"""Other operations of the log manager: the directory of each log, many deletions, stops in parts, times of records."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.log.checkpoints import LOG_START, RECOVERY_POINT, read_offsets
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.log_dir import NO_DIRECTORY
from odradek.log.manager import MANY_LOGS, LogManager
from odradek.log.retention import delete_records
from odradek.log.rolling import roll
from odradek.log.search import _MAX_MARKERS, first_record_ms
from odradek.log.truncation import truncate_fully_and_start_at
from odradek.record.control import transaction_marker
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.unit.log.test_log_manager import HandClock

FIRST, SECOND = Path("/data/one"), Path("/data/two")


class NotingDisk(SimDisk):
    """Counts the write-backs of all dirty pages; renames fail in a directory that is broken."""

    passes = 0
    broken = Path("/elsewhere")

    def write_back(self) -> None:
        self.passes += 1

    def rename(self, source: Path, target: Path) -> None:
        if self.broken in source.parents:
            raise OSError(errno.EIO, "broken")
        super().rename(source, target)


def new_disk() -> NotingDisk:
    return NotingDisk(Random(1), DiskFaults(), lambda: NOW_MS)


def started(disk: SimDisk, *paths: Path, clock: HandClock | None = None) -> LogManager:
    manager = LogManager(disk, clock or HandClock(), paths or (FIRST, SECOND), LogConfig(), Random(1))
    manager.lock_dirs()
    manager.read_clean_epochs()
    manager.load()
    return manager


def append(log: Log, data: bytes) -> None:
    log.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)


def create(manager: LogManager, number: int, topic_id: int = 1, log_dir: Path | None = None) -> Log:
    return manager.create("t", number, UUID(int=topic_id), {}, log_dir=log_dir)


# -- directories -------------------------------------------------------------------------------------------------------


def test_the_epoch_of_the_last_clean_stop_is_what_all_directories_say() -> None:
    disk = new_disk()
    manager = started(disk)
    assert manager.previous_broker_epoch == -1, "there was none"
    manager.close(broker_epoch=7)
    for clean, epoch in ((FIRST, 7), (SECOND, 7)):
        manager = started(disk, clean)
        assert manager.previous_broker_epoch == epoch
        manager.unlock()
    disk = new_disk()
    started(disk).close(broker_epoch=7)
    started(disk, FIRST).close(broker_epoch=8)
    manager = started(disk)
    assert [each.clean_broker_epoch for each in manager.directories] == [8, 7]
    assert manager.previous_broker_epoch == -1, "they do not agree"
    manager.unlock()
    assert started(new_disk()).previous_broker_epoch == -1


def test_each_log_is_in_one_directory_and_counts_until_it_is_renamed() -> None:
    manager = started(new_disk())
    logs = [create(manager, number, log_dir=path) for number, path in enumerate((FIRST, SECOND, SECOND))]
    for log_dir, count in zip(manager.directories, (1, 2), strict=True):
        log_dir.directory_id = UUID(int=count)
        assert [log for _, log in manager.logs_in(log_dir)] == logs[count - 1 : 2 * count - 1]
    assert [manager.directory_of("t", number).int for number in range(3)] == [1, 2, 2]
    assert manager.directory_of("t", 3) == NO_DIRECTORY == UUID(int=0)
    assert manager.log_count == 3
    assert [manager.schedule_delete(("t", number)) for number in (1, 2, 3)] == [True, True, False]
    assert (manager.log_count, manager.directory_of("t", 1)) == (3, NO_DIRECTORY)
    assert manager.discard_deleted(1), "there is one more"
    assert manager.log_count == 2
    assert not manager.discard_deleted(1)
    assert manager.log_count == 1
    assert not manager.delete(("t", 1)) and manager.delete(("t", 0))
    assert manager.log_count == 0
    manager.unlock()


def test_a_log_whose_deletion_waits_makes_place_for_one_of_its_name() -> None:
    disk, clock = new_disk(), HandClock()
    manager = started(disk, FIRST, clock=clock)
    append(create(manager, 0), batch(b"old"))
    assert manager.schedule_delete(("t", 0))
    again = create(manager, 0, topic_id=2)
    assert (again.log_end_offset, manager.log_count) == (0, 1)
    assert not manager.discard_deleted(10)
    clock.at_ms = 60_000
    manager.removal.begin_removals()()
    assert [name for name in disk.list_dir(FIRST) if name.startswith("t-")] == ["t-0"], "the earlier one is gone"
    manager.unlock()


def test_a_deleted_log_is_detached_and_its_future_log_goes_with_it() -> None:
    manager = started(new_disk())
    log = create(manager, 0, log_dir=FIRST)
    future = manager.futures.create(log, UUID(int=1), SECOND)
    assert manager.schedule_delete(("t", 0))
    assert log.is_detached and future.is_detached
    assert manager.topic_id(("t", 0)) is None and manager.futures.get(("t", 0)) is None
    manager.unlock()


def test_a_log_begins_in_the_directory_that_was_chosen_for_it_once() -> None:
    manager = started(new_disk())
    manager.futures.preferred[("t", 0)] = SECOND
    assert create(manager, 0).log_dir == SECOND
    assert create(manager, 1).log_dir == FIRST, "the emptiest"
    manager.futures.preferred.update({("t", 2): SECOND, ("t", 3): SECOND})
    assert create(manager, 2, log_dir=FIRST).log_dir == FIRST
    manager.take_offline(SECOND)
    assert create(manager, 3).log_dir == FIRST
    assert manager.futures.preferred == {}
    manager.unlock()


def test_a_directory_takes_all_that_it_holds_offline_with_it() -> None:
    disk = new_disk()
    manager = started(disk)
    kept, lost = create(manager, 0, log_dir=FIRST), create(manager, 1, log_dir=SECOND)
    manager.futures.create(kept, UUID(int=1), SECOND)
    here = manager.futures.create(lost, UUID(int=1), FIRST)
    for number, path in ((2, FIRST), (3, SECOND)):
        create(manager, number, log_dir=path)
        manager.schedule_delete(("t", number))
    for log in (kept, lost):
        append(log, batch(b"v"))
    assert manager.take_offline(SECOND) and lost.is_detached and not kept.is_detached
    assert list(manager.logs) == [("t", 0)] and list(manager.futures.logs) == [("t", 1)]
    assert manager.topic_id(("t", 0)) == UUID(int=1) and manager.topic_id(("t", 1)) is None
    assert manager.futures.get(("t", 1)) is here
    assert manager.log_count == 2, "one, and a deleted one"
    assert manager.online_dirs() == [FIRST]
    assert {path.parent.parent for path in manager.files._open} == {FIRST}
    assert not manager.discard_deleted(10) and manager.log_count == 1
    assert not disk.exists(FIRST / "t-2") and disk.exists(SECOND / "t-3"), "nothing is renamed where the disk failed"
    manager.unlock()


def test_each_log_has_its_share_of_the_jitter() -> None:
    manager = started(new_disk())
    log = create(manager, 0)
    jitters = [each._jitter for each in (log, create(manager, 1), manager.futures.create(log, UUID(int=1), SECOND))]
    assert all(0 <= jitter < 1 for jitter in jitters) and len(set(jitters)) == 3
    manager.unlock()


def test_a_truncation_lowers_the_checkpointed_offsets_of_its_log_alone() -> None:
    disk = new_disk()
    manager = started(disk, FIRST)
    logs = [create(manager, number) for number in range(2)]
    for log in logs:
        for _ in range(4):
            append(log, batch(b"v"))
        log.advance_log_start(3)
        log.flush()
    manager.checkpoint_work()()
    truncate_fully_and_start_at(logs[0], 1)
    assert [read_offsets(disk, FIRST / name) for name in (RECOVERY_POINT, LOG_START)] == [
        {("t", 0): 1, ("t", 1): 4},
        {("t", 0): 1, ("t", 1): 3},
    ]
    manager.unlock()


def test_a_partition_that_another_topic_left_is_made_empty() -> None:
    manager = started(new_disk(), FIRST)
    append(create(manager, 0), batch(b"old"))
    assert create(manager, 0).log_end_offset == 1, "it is the same topic"
    assert create(manager, 0, topic_id=2).log_end_offset == 0
    assert manager.topic_id(("t", 0)) == UUID(int=2)
    manager.unlock()


def test_without_a_directory_that_works_no_log_is_made() -> None:
    manager = started(new_disk())
    log = create(manager, 0, log_dir=FIRST)
    assert manager.take_offline(FIRST, "it is broken")
    assert not manager.take_offline(FIRST, "again"), "it is not new"
    assert not manager.take_offline(Path("/elsewhere"))
    assert manager.directories[0].error == "it is broken"
    assert log.is_detached and manager.get(("t", 0)) is None
    assert create(manager, 1).log_dir == SECOND
    manager.take_offline(SECOND)
    with pytest.raises(StorageError, match="no log directory is online"):
        create(manager, 2)
    manager.unlock()


# -- stopping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, MANY_LOGS - 1, MANY_LOGS])
def test_a_stop_in_parts_closes_all(count: int) -> None:
    disk = new_disk()
    manager = started(disk)
    for number in range(count):
        append(create(manager, number), batch(b"v"))
    create(manager, count)  # nothing was written to it
    works = manager.begin_close()
    assert disk.passes == (count >= MANY_LOGS), "one pass before many syncs"
    assert len(works) > 1
    for work in works:
        work()
    manager.close(broker_epoch=3)
    assert disk.uncertain() <= {
        path for path in disk.snapshot() if path.suffix in (".snapshot", ".index", ".timeindex")
    }
    disk.process_died()
    again = started(disk)
    assert again.previous_broker_epoch == 3 and again.log_count == count + 1
    assert {log.log_end_offset for log in again.logs.values()} == {0, 1}
    assert again.notes == []
    again.unlock()


def test_a_stop_whose_deletion_fails_marks_the_other_directory_alone() -> None:
    disk = new_disk()
    manager = started(disk)
    create(manager, 0, log_dir=FIRST)
    create(manager, 1, log_dir=SECOND)
    manager.schedule_delete(("t", 0))
    disk.broken = FIRST
    with pytest.raises(StorageError):
        manager.close(broker_epoch=3)
    disk.broken = NotingDisk.broken
    disk.process_died()
    again = started(disk)
    assert [each.clean_broker_epoch for each in again.directories] == [-1, 3]
    again.unlock()


# -- records -----------------------------------------------------------------------------------------------------------


def marker() -> bytes:
    return transaction_marker(
        commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS + 9
    )


def test_the_first_record_from_an_offset_on_has_a_time() -> None:
    manager = started(new_disk(), FIRST)
    log = create(manager, 0)
    append(log, batch(b"a", b"b", timestamp_ms=NOW_MS + 10))
    append(log, marker())
    roll(log, NOW_MS)
    append(log, batch(b"c", b"d", b"e", timestamp_ms=NOW_MS + 50))
    append(log, marker())
    times = [first_record_ms(log, offset, 7) for offset in range(8)]
    assert [None if each is None else each - NOW_MS for each in times] == [10, 11, 50, 50, 52, 52, None, None]
    assert first_record_ms(log, 0, 0) is first_record_ms(log, 3, 3) is first_record_ms(log, 2, 3) is None
    assert first_record_ms(log, 2, 4) == NOW_MS + 50
    log.advance_log_start(3)
    assert first_record_ms(log, 0, 7) == NOW_MS + 50
    manager.unlock()


@pytest.mark.parametrize("more", [0, 1])
def test_markers_are_passed_over_up_to_a_bound(more: int) -> None:
    manager = started(new_disk(), FIRST)
    log = create(manager, 0)
    for _ in range(_MAX_MARKERS - 1 + more):
        append(log, marker())
    append(log, batch(b"v", timestamp_ms=NOW_MS + 10))
    assert first_record_ms(log, 0, log.log_end_offset) == (None if more else NOW_MS + 10)
    manager.unlock()


def test_records_are_deleted_up_to_the_high_watermark() -> None:
    manager = started(new_disk(), FIRST)
    log = create(manager, 0)
    for number in range(3):
        append(log, batch(b"%d" % number, b"v"))
    log.append_as_leader([data := batch(b"not committed")], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)
    for offset in (7, -2):
        with pytest.raises(ApiError, match="t-0 is committed up to 6") as caught:
            delete_records(log, offset)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    starts = [(offset, delete_records(log, offset), log.log_start_offset) for offset in (0, 2, 1, 6, 2, -1)]
    assert starts == [(0, 0, 0), (2, 2, 2), (1, 2, 2), (6, 6, 6), (2, 6, 6), (-1, 6, 6)]
    with pytest.raises(ApiError) as caught:
        log.advance_log_start(7)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE and log.log_start_offset == 6
    manager.unlock()
