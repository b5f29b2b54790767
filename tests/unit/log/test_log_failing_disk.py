"""Each operation on a log whose disk fails says which directory is lost; one for which there is no space is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.ports import WorkerError
from odradek.common.real_io import RealClock
from odradek.log.compaction.cleaner import Cleaner
from odradek.log.compaction.config import CleanerConfig
from odradek.log.compaction.swap import replace_segments
from odradek.log.config import LogConfig
from odradek.log.failback_file import failback_path, write_failback_file
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.opening import close_log
from odradek.log.repair import CorruptRange, find_hole, finish_repair, overwrite
from odradek.log.rolling import advance_end_to, roll
from odradek.log.truncation import truncate_to
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.unit.log.test_log_durable import DIRECTORY, Home

ROOT = DIRECTORY.parent
OTHER = Path("/other")


def opened_again(**config: Any) -> Home:
    """A log of two segments, of whose files nothing is in memory."""
    home = Home(config)
    home.append(3)
    home.roll()
    home.append(3)
    close_log(home.log)
    home.log = home.open(recovery_point=6, clean_shutdown=True)
    home.log.partition_dir.files.invalidate_below(DIRECTORY)
    return home


def lost(home: Home, action: Callable[[], object], **faults: float) -> None:
    home.disk.faults = DiskFaults(**faults)  # type: ignore[arg-type]  # each field is a float
    with pytest.raises(StorageError, match="simulated") as error:
        action()
    assert error.value.log_dir == ROOT


def refused(home: Home, action: Callable[[], object], **faults: Any) -> None:
    home.disk.faults = DiskFaults(**faults)
    with pytest.raises(ApiError) as error:
        action()
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    home.disk.faults = DiskFaults()


def full(home: Home) -> dict[str, int]:
    return {"capacity_bytes": home.disk.used_bytes()}


def hole(log: Log) -> CorruptRange:
    segment = log.segments[0]
    return CorruptRange(segment, 0, segment.size_bytes, 0, 3, is_open=True)


def fail(*_: object) -> Any:
    raise OSError("simulated error")


def rebuilt(home: Home) -> None:
    """Finish the repair of a hole in which a start has missed producers, so that the log behind it is read again."""
    home.log.producers.unreplayed_from = 0
    finish_repair(home.log, hole(home.log))


def lost_on_close(home: Home) -> None:
    home.append()
    home.disk.faults = DiskFaults(write_error=1.0)
    close_log(home.log)


OPERATIONS: dict[str, tuple[Callable[[Home], object], dict[str, float]]] = {
    "open": (lambda home: home.open(), {"read_error": 1.0}),
    "close": (lost_on_close, {}),
    "swap segments": (lambda home: replace_segments(home.log, [home.log.segments[0]], fail), {}),
    "find a hole": (lambda home: find_hole(home.log, home.log.segments[0], 0), {"read_error": 1.0}),
    "fill a hole": (
        lambda home: overwrite(home.log, hole(home.log), [(memoryview(b"x"), header_of(batch(b"v")))]),
        {"write_error": 1.0},
    ),
    "read behind a hole": (rebuilt, {"read_error": 1.0}),
    "advance the end": (lambda home: advance_end_to(home.log, 50, 0), {"sync_error": 1.0}),
    "work off the loop": (lambda home: home.log.partition_dir.work(lambda disk: None), {"too_many_files": 1.0}),
    "roll": (lambda home: roll(home.log, NOW_MS), {"write_error": 1.0}),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_names_the_directory_whose_disk_failed(name: str) -> None:
    operation, faults = OPERATIONS[name]
    home = opened_again()
    lost(home, lambda: operation(home), **faults)


async def test_a_copy_aside_names_the_directory_whose_disk_failed() -> None:
    home = opened_again()
    home.disk.faults = DiskFaults(write_error=1.0, sync_ms=(0.0, 0.0))
    with pytest.raises(StorageError, match="simulated write error") as error:
        await write_failback_file(home.log, 0, failback_path(home.log, 0, 1, UUID(int=1)))
    assert error.value.log_dir == ROOT


def test_a_roll_for_which_there_is_no_space_is_refused_and_nothing_moves() -> None:
    home = opened_again()
    for action in (lambda: roll(home.log, NOW_MS), lambda: advance_end_to(home.log, 50, 0)):
        refused(home, action, **full(home))
        assert (home.log.log_end_offset, home.log.segments.bases) == (6, [0, 3])
    home.append()
    assert home.log.log_end_offset == 7


def test_an_append_without_a_descriptor_for_its_segment_is_refused() -> None:
    home = opened_again(segment_ms=1)
    home.log.segments.active._first_timestamp_ms = None
    refused(home, home.append, too_many_files=1.0)
    home.append()
    assert home.log.log_end_offset == 7


def test_a_flush_that_cannot_begin_is_the_end_of_the_directory() -> None:
    home = Home()
    home.append(3)
    lost(home, home.log.begin_flush, write_error=1.0)


# -- several logs ---------------------------------------------------------------------------------------------------


class Logs:
    """Two directories; the log is in the first."""

    def __init__(self, **config: Any) -> None:
        self.disk = SimDisk(Random(1), DiskFaults(sync_ms=(0.0, 0.0)), lambda: NOW_MS)
        self.config = LogConfig(index_interval_bytes=1, file_delete_delay_ms=0, **config)
        self.manager = self.started()
        self.log = self.manager.create("t", 0, UUID(int=1), {}, log_dir=ROOT)
        self.append()

    def started(self) -> LogManager:
        manager = self.started_without_load()
        manager.load()
        return manager

    def started_without_load(self) -> LogManager:
        manager = LogManager(self.disk, RealClock(), [ROOT, OTHER], self.config, Random(1))
        manager.lock_dirs()
        return manager

    def append(self) -> None:
        data = batch(b"v")
        self.log.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)
        self.log.update_high_watermark(self.log.log_end_offset)

    def fails(self, **faults: Any) -> None:
        self.disk.faults = DiskFaults(sync_ms=(0.0, 0.0), **faults)


def fails_at(file: str, path: Path, action: Callable[[], Any]) -> Any:
    if path.name.endswith(file):
        raise OSError(f"simulated error at {file}")
    return action()


def create(logs: Logs) -> object:
    return logs.manager.create("t", 1, UUID(int=1), {}, log_dir=OTHER)


def copy(logs: Logs) -> object:
    return logs.manager.futures.create(logs.log, UUID(int=1), OTHER)


@pytest.mark.parametrize("file", ["partition.metadata", ".log"])
@pytest.mark.parametrize("make", [create, copy])
def test_a_log_that_cannot_be_made_names_the_directory_whose_disk_failed(
    make: Callable[[Logs], object], file: str
) -> None:
    logs = Logs()
    if file == ".log":
        begin, logs.disk.open = logs.disk.open, lambda path, **more: fails_at(file, path, lambda: begin(path, **more))  # type: ignore[method-assign]  # the test replaces it
    else:
        logs.fails(write_error=1.0)
    with pytest.raises(StorageError, match="simulated") as error:
        make(logs)
    assert error.value.log_dir == OTHER


def test_of_two_copies_of_a_log_a_start_keeps_one() -> None:
    logs = Logs()
    for _ in range(2):
        copy(logs)
        logs.manager.futures.remove(("t", 0))
    logs.manager.close()
    again = logs.started()
    again.removal.begin_removals()()
    (kept,) = [path for path in logs.disk.directories() if path.name.endswith("-future")]
    assert again.futures.logs["t", 0].directory == kept


def test_a_copy_that_cannot_take_the_name_leaves_the_log_as_it_is() -> None:
    logs = Logs()
    copy(logs)
    logs.fails(rename_error=1.0)
    with pytest.raises(StorageError, match="simulated error of a rename") as error:
        logs.manager.futures.replace(("t", 0))
    assert error.value.log_dir == OTHER
    assert logs.manager.get(("t", 0)) is logs.log and not logs.log.is_detached


async def test_retention_that_cannot_read_a_segment_names_the_directory() -> None:
    logs = Logs(retention_ms=1)
    roll(logs.log, NOW_MS)
    logs.append()
    logs.manager.close()
    logs.manager = logs.started()
    log = logs.manager.logs["t", 0]
    log.update_high_watermark(log.log_end_offset)
    logs.manager.files.invalidate_below(log.directory)
    logs.fails(read_error=1.0)
    with pytest.raises(StorageError, match="simulated read error") as error:
        await logs.manager.retain(log, NOW_MS + 10_000, 1000)
    assert error.value.log_dir == ROOT
    logs.fails()
    assert await logs.manager.retain(log, NOW_MS + 10_000, 1000) == 2


@pytest.mark.parametrize("faults", [{"write_error": 1.0}, {"capacity_bytes": 0}], ids=["broken", "full"])
def test_an_id_that_a_log_lost_is_known_though_a_full_disk_cannot_keep_it(faults: dict[str, Any]) -> None:
    logs = Logs()
    logs.manager.topic_ids["t", 0] = None
    logs.fails(**faults)
    if "write_error" in faults:
        with pytest.raises(StorageError, match="simulated write error"):
            logs.manager.create("t", 0, UUID(int=7), {})
    else:
        assert logs.manager.create("t", 0, UUID(int=7), {}) is logs.log
        assert logs.manager.topic_ids["t", 0] == UUID(int=7)


def test_without_a_close_of_each_log_a_directory_was_not_stopped_cleanly() -> None:
    logs = Logs()
    logs.manager.create("t", 1, UUID(int=1), {}, log_dir=OTHER)
    logs.append()
    broken = logs.log.segments.active.indexes
    broken.flush = fail  # type: ignore[method-assign, assignment]  # the test replaces it
    with pytest.raises(StorageError, match="simulated error") as error:
        logs.manager.close()
    assert error.value.log_dir == ROOT
    again = logs.started()
    assert [path for path, each in again.dirs.items() if each.clean_shutdown] == [OTHER]


def test_a_log_is_not_cut_while_a_file_says_that_more_of_it_was_cleaned() -> None:
    """A start would take what comes behind the cut for clean."""
    logs = Logs(cleanup_policy=("compact",))
    logs.log.cleaned_offset = 1
    logs.manager.cleaned_work(ROOT)()
    logs.fails(capacity_bytes=0)
    with pytest.raises(StorageError, match="no space to write /data/") as error:
        truncate_to(logs.log, 0)
    assert error.value.log_dir == ROOT


def test_files_stay_while_the_names_that_replaced_them_are_not_durable() -> None:
    logs = Logs()
    logs.manager.delete(("t", 0))
    (gone,) = [path for path in logs.disk.directories() if path.name.endswith("-delete")]
    logs.fails(sync_dir_error=1.0)
    logs.manager.removal.begin_removals()()
    assert logs.disk.is_dir(gone)


def test_a_log_directory_that_cannot_be_used_says_why() -> None:
    disk = SimDisk(Random(1), DiskFaults(too_many_files=1.0), lambda: NOW_MS)
    manager = LogManager(disk, RealClock(), [ROOT], LogConfig(), Random(1))
    with pytest.raises(StorageError, match="the log directory cannot be used: simulated want of descriptors"):
        manager.lock_dirs()


def test_a_copy_in_a_directory_that_failed_keeps_its_name() -> None:
    logs = Logs()
    loader = logs.manager.begin_load()
    loader._copies = [(OTHER / "t-0", ROOT), (ROOT / "t-0", OTHER)]
    loader.failures[ROOT] = "broken"
    loader.release_names(lambda: 7)
    assert loader.to_remove == [] and logs.disk.is_dir(ROOT / "t-0")


def test_a_read_error_of_the_cleaner_names_the_failed_directory() -> None:
    logs = Logs(cleanup_policy=("compact",), max_compaction_lag_ms=1)
    roll(logs.log, NOW_MS)
    logs.append()
    logs.log.flush()
    cleaner = Cleaner(logs.disk, RealClock(), logs.manager, CleanerConfig())
    for ask in (lambda: cleaner.examine(logs.log), cleaner.roll_overdue):
        logs.append()
        for segment in logs.log.segments:
            segment._first_timestamp_ms = None
        logs.manager.files.invalidate_below(logs.log.directory)
        logs.fails(read_error=1.0)
        with pytest.raises(StorageError, match="simulated read error") as error:
            ask()
        assert error.value.log_dir == ROOT
        logs.fails()
        ask()


@pytest.mark.parametrize("error", [OSError("simulated"), WorkerError("simulated")], ids=["disk", "worker"])
async def test_a_cleaning_whose_log_is_deleted_as_it_begins_is_given_up(error: Exception) -> None:
    for is_deleted in (True, False):
        logs = Logs(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
        roll(logs.log, NOW_MS)
        logs.log.flush()

        async def start_worker(*_: object, logs: Logs = logs, is_deleted: bool = is_deleted, **__: object) -> Any:
            if is_deleted:
                logs.manager.delete(("t", 0))
            raise error

        logs.disk.start_worker = start_worker  # type: ignore[method-assign]  # the test replaces it
        cleaner = Cleaner(logs.disk, RealClock(), logs.manager, CleanerConfig())
        if is_deleted or isinstance(error, WorkerError):
            assert await cleaner.clean_dirtiest()
            assert bool(cleaner.uncleanable) != is_deleted
        else:
            with pytest.raises(StorageError, match="simulated"):
                await cleaner.clean_dirtiest()


@pytest.mark.parametrize("damaged", [".log", ".txnindex"])
async def test_a_damaged_log_is_not_compacted_until_it_is_repaired(damaged: str) -> None:
    logs = Logs(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    logs.append()
    roll(logs.log, NOW_MS)
    logs.log.flush()
    path = logs.log.segments[0].path.with_suffix(damaged)
    if damaged == ".log":
        logs.disk.seen(path)[-1] ^= 1
    else:
        logs.disk.open(path, create=True).write_at(0, [b"no entry"])
    before = bytes(logs.disk.seen(logs.log.segments[0].path))
    cleaner = Cleaner(logs.disk, RealClock(), logs.manager, CleanerConfig())
    assert await cleaner.clean_dirtiest()
    assert path.name in cleaner.reason_uncleanable(logs.log)
    assert bytes(logs.disk.seen(logs.log.segments[0].path)) == before and cleaner.dirtiest() is None
