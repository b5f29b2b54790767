"""When a flush is due, and what it leaves to the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import read_file
from odradek.log.checkpoints import LEADER_EPOCHS
from odradek.log.config import LogConfig
from odradek.log.future import rename_to
from odradek.log.log import Log
from odradek.log.producer_state import ProducerState
from odradek.log.rolling import roll
from odradek.log.segment_file import segment_path
from odradek.log.truncation import truncate_to
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.models.batches import NOW_MS
from tests.unit.log.test_log_durable import DIRECTORY, Home, several_segments
from tests.unit.log.test_log_left_out import FullDisk, abort, aborted, append, make, start


def is_due(log: Log, now_ms: int = 0, **config: Any) -> bool:
    return log.flush_state.is_due(log.log_end_offset, now_ms, LogConfig(**config))


def written_epochs(disk: SimDisk, directory: Path = DIRECTORY) -> list[str]:
    return read_file(disk, directory / LEADER_EPOCHS).decode().splitlines()[2:]


# -- when it is due --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("passed_ms", "due"), [(99, False), (100, True), (101, True)])
def test_records_are_flushed_once_flush_ms_has_passed(passed_ms: int, due: bool) -> None:
    home = Home()
    home.append()
    home.log.flush_state.last_flush_ms = 1000
    assert is_due(home.log, 1000 + passed_ms, flush_ms=100) == due
    home.log.flush()
    assert not is_due(home.log, 1000 + passed_ms, flush_ms=100), "nothing is left to flush"


def test_indexes_of_a_closed_segment_are_flushed_behind_its_records() -> None:
    home = Home()
    home.append(2)
    home.log.flush()
    assert not is_due(home.log)
    home.roll()
    assert is_due(home.log) and home.log.recovery_point == 2
    home.log.flush()
    assert not is_due(home.log)


def test_closed_segments_that_a_start_has_not_verified_are_flushed() -> None:
    home = Home()
    home.append(2)
    home.roll()
    home.append()
    home.disk.process_died()
    assert is_due(home.open(1))
    assert not is_due(home.open(2)), "the active segment waits for flush.ms"


# -- leader epochs ---------------------------------------------------------------------------------------------------


def test_a_truncation_during_a_flush_has_the_last_word_on_epochs() -> None:
    home = Home()
    home.append(2, epoch=1)
    home.log.flush()
    home.append(2, epoch=2)
    end, work = home.log.begin_flush()
    truncate_to(home.log, 2)
    work()
    home.log.finish_flush(end)
    assert written_epochs(home.disk) == ["1 0"]
    assert home.log.recovery_point == 2


def test_epochs_for_which_a_flush_had_no_space_hold_up_the_recovery_point() -> None:
    disk, _, log = make()
    append(log, b"a")
    log.flush()
    append(log, b"b", epoch=3)
    disk.full_for = (LEADER_EPOCHS,)
    for _ in range(2):
        log.flush()
        assert (log.recovery_point, written_epochs(disk, log.directory)) == (1, ["0 0"])
    disk.full_for = ()
    log.flush()
    assert (log.recovery_point, written_epochs(disk, log.directory)) == (2, ["0 0", "3 1"])


def truncated_on_a_full_disk() -> tuple[FullDisk, Log]:
    """A log of two flushed records; epoch 3 was truncated before its entry could be written."""
    disk, _, log = make()
    append(log, b"a", b"b")
    log.flush()
    disk.full_for = (LEADER_EPOCHS,)
    append(log, b"c", epoch=3)
    truncate_to(log, 2)
    return disk, log


def test_after_a_truncation_no_flush_without_space_lets_an_epoch_begin() -> None:
    """Its records might be read by a start that does not know the epoch."""
    disk, log = truncated_on_a_full_disk()
    for _ in range(2):
        log.flush()
        with pytest.raises(ApiError) as error:
            append(log, b"c", epoch=4)
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.full_for = ()
    append(log, b"c", epoch=4)
    assert written_epochs(disk, log.directory) == ["0 0", "4 2"], "before the records are flushed"
    log.flush()
    assert log.recovery_point == 3


def test_aborts_that_one_of_two_indexes_lacks_hold_up_the_recovery_point() -> None:
    disk, manager, log = make()
    abort(log, 7)
    roll(log, NOW_MS)
    disk.full_for = (f"{2:020}.txnindex",)
    abort(log, 8)
    log.flush()
    assert log.recovery_point == 0
    manager.unlock()
    disk.full_for = ()
    disk.process_died()
    assert aborted(start(disk)[1]) == [7, 8]


# -- a flush without descriptors -------------------------------------------------------------------------------------


def test_a_flush_that_is_undone_is_repeated_as_a_whole() -> None:
    home = Home()
    home.append(2)
    home.log.flush()
    home.roll()
    home.log.assign_epoch(5, 2)
    home.log.begin_flush()
    home.log.flush_state.undo()
    assert home.uncertain()
    home.log.flush()
    assert home.uncertain() == set()
    assert written_epochs(home.disk) == ["0 0", "5 2"]


def test_epochs_behind_a_truncation_outlive_an_undone_flush() -> None:
    disk, log = truncated_on_a_full_disk()
    log.begin_flush()
    log.flush_state.undo()
    with pytest.raises(ApiError):
        append(log, b"c", epoch=4)
    disk.full_for = ()
    append(log, b"c", epoch=4)
    assert written_epochs(disk, log.directory) == ["0 0", "4 2"]


# -- producers -------------------------------------------------------------------------------------------------------


def test_a_snapshot_of_fewer_producers_replaces_a_larger_one() -> None:
    home = Home()
    path = segment_path(DIRECTORY, 5, ".snapshot")
    home.append()
    many = home.log.producers
    for producers in (many, ProducerState(), many):
        home.log.flush_state.snapshot_producers(producers, 5)
        assert read_file(home.disk, path) == producers.snapshot()


def test_no_half_of_a_snapshot_stays_on_a_full_disk() -> None:
    home = Home()
    home.append()
    home.disk.faults = DiskFaults(capacity_bytes=home.disk.used_bytes() + 10)
    with pytest.raises(OSError, match="full disk"):
        home.log.flush_state.snapshot_producers(home.log.producers, 5)
    assert not home.disk.exists(segment_path(DIRECTORY, 5, ".snapshot"))


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["epochs", "segments"])
def test_a_flush_follows_a_directory_that_is_renamed_meanwhile(change: str) -> None:
    home = Home()
    home.append()
    home.log.flush()
    if change == "epochs":
        home.log.assign_epoch(5, 1)
    else:
        several_segments(home)
    end, work = home.log.begin_flush()
    moved = DIRECTORY.with_name("t-1")
    rename_to(home.log, moved)
    work()
    home.log.finish_flush(end)
    assert home.log.recovery_point == end
    if change == "epochs":
        assert written_epochs(home.disk, moved) == ["0 0", "5 1"]
    else:
        uncertain = {path.name for path in home.disk.uncertain() if path.parent == moved}
        assert uncertain <= {path.name for path in home.log.segments.active.indexes.paths()[:2]}


@pytest.mark.parametrize("recovery_point", [1, 2])
def test_the_name_of_a_segment_that_an_unclean_stop_left_is_synced(recovery_point: int) -> None:
    """Its file was there before, but nothing says that its name is durable."""
    home = Home()
    home.append(2)
    home.log.flush()
    home.roll()
    home.append()
    home.disk.process_died()
    home.log = home.open(recovery_point)
    for snapshot in home.log.flush_state._unsynced_snapshots:
        home.disk.remove(snapshot)
    home.log.flush_state._unsynced_snapshots = []
    assert DIRECTORY in home.synced(home.log.flush)


def test_a_flush_of_a_log_that_has_left_does_not_move_its_recovery_point() -> None:
    home = Home()
    home.append(2, epoch=4)
    end, work = home.log.begin_flush()
    home.log.detach()
    work()
    home.log.finish_flush(end)
    assert home.log.recovery_point == 0
    assert not home.disk.exists(DIRECTORY / LEADER_EPOCHS)
