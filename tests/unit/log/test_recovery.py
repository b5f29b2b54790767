"""The state that a start finds: what counts as durable, what must be written again, and what is removed."""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from odradek.log.checkpoints import LEADER_EPOCHS, LOG_START, PARTITION_METADATA, read_offsets
from odradek.log.files import FileCache
from odradek.log.manager import LogManager
from odradek.log.opening import close_log
from odradek.log.recovery import delete_snapshots_before, snapshot_offsets
from odradek.log.rolling import roll
from odradek.log.segment import Segment
from odradek.log.segment_file import segment_path
from odradek.log.truncation import truncate_fully_and_start_at
from odradek.log.verification import Damage, check_batches
from tests.sim.disk import DiskFaults, SimFile
from tests.support.disks.crashing import CrashingDisk
from tests.support.models.batches import NOW_MS, batch
from tests.unit.log.test_log_durable import DIRECTORY, Home, several_segments
from tests.unit.log.test_log_failing_disk import OTHER, ROOT, Logs
from tests.unit.log.test_log_overflow import BEHIND, OFFSETS, STARTS, lying_at, start, too_long, write

END = 11


def stopped(*, clean: bool) -> Home:
    """Segments at 0, 3, 6 and 9, with eleven records."""
    home = Home()
    several_segments(home)
    if clean:
        close_log(home.log)
    home.disk.process_died()
    return home


@pytest.mark.parametrize(
    ("clean", "checkpoint", "recovery_point", "was_truncated"),
    [
        (True, END, END, False),
        (True, 5, END, False),
        (True, END + 1, END, True),
        (False, 0, 0, False),
        (False, 5, 5, False),
        (False, END, END, False),
        (False, END + 1, END, True),
    ],
)
def test_the_recovery_point_is_that_of_a_clean_stop_or_the_checkpoint(
    clean: bool, checkpoint: int, recovery_point: int, was_truncated: bool
) -> None:
    home = stopped(clean=clean)
    log = home.open(checkpoint, clean_shutdown=clean)
    assert (log.log_end_offset, log.recovery_point) == (END, recovery_point)
    assert log.flush_state.was_truncated == was_truncated, "records below the checkpoint are missing"
    assert log.flush_state.epochs_are_written == clean
    assert log.segments.bases == [0, 3, 6, 9]
    assert (log.log_start_offset, log.high_watermark) == (0, 0)


@pytest.mark.parametrize(("checkpoint", "is_flushed"), [(8, True), (9, False), (END, False)])
@pytest.mark.parametrize("clean", [True, False])
def test_a_start_flushes_as_many_records_as_flush_messages(checkpoint: int, is_flushed: bool, clean: bool) -> None:
    home = stopped(clean=clean)
    home.config = {"flush_messages": 3}
    log = home.open(checkpoint, clean_shutdown=clean)
    assert log.recovery_point == (END if is_flushed or clean else checkpoint)
    assert home.disk.exists(DIRECTORY / LEADER_EPOCHS) == (is_flushed or clean)


@pytest.mark.parametrize(("checkpoint", "unsynced"), [(0, [3, 6, 9]), (3, [6, 9]), (6, [9]), (8, [9]), (9, [])])
def test_snapshots_behind_the_recovery_point_may_not_be_durable(checkpoint: int, unsynced: list[int]) -> None:
    log = stopped(clean=False).open(checkpoint)
    found = log.flush_state._unsynced_snapshots
    assert found == [segment_path(DIRECTORY, offset, ".snapshot") for offset in unsynced]


def test_snapshots_up_to_an_offset_are_removed() -> None:
    home = stopped(clean=False)
    for offset, left in ((3, [3, 6, 9]), (4, [6, 9]), (9, [9])):
        delete_snapshots_before(home.disk, DIRECTORY, offset)
        assert snapshot_offsets(home.disk, DIRECTORY) == left


def test_files_that_belong_to_no_segment_are_removed() -> None:
    home = stopped(clean=False)
    kept = set(home.disk.list_dir(DIRECTORY))
    names = [f"{4:020}.index", f"{4:020}.timeindex", f"{12:020}.txnindex"]
    names += [f"{3:020}.log.deleted", f"{3:020}.log.cleaned", "leader-epoch-checkpoint.tmp"]
    foreign = {"notes.index", f"{4:020}.other", "README"}
    for name in [*names, *foreign]:
        home.disk.open(DIRECTORY / name, create=True).close()
    home.open(END)
    assert set(home.disk.list_dir(DIRECTORY)) == kept | foreign


@pytest.mark.parametrize("count", [1, 2])
def test_a_damaged_tail_and_the_segments_behind_it_are_noted(count: int) -> None:
    home = stopped(clean=False)
    path = segment_path(DIRECTORY, 9 if count == 1 else 3, ".log")
    home.disk.seen(path)[-1] ^= 1
    notes: list[str] = []
    log = home.open(notes=notes)
    (note,) = [each for each in notes if "truncated at position" in each]
    assert note.startswith(f"{path}: truncated at position ") and note.count("the checksum does not match") == 1
    if count == 1:
        assert (log.log_end_offset, log.segments.bases) == (10, [0, 3, 6, 9])
        assert "later segments" not in note
    else:
        assert (log.log_end_offset, log.segments.bases) == (5, [0, 3])
        assert note.endswith("; 2 later segments are removed")
    assert path not in home.disk.uncertain(), "a loss of power does not bring the damage back"


@pytest.mark.parametrize("count", [2, 3])
def test_one_segment_of_many_may_be_too_long(count: int) -> None:
    """A clean stop verifies nothing, but the offsets of each segment are compared with those of the next."""
    disk = CrashingDisk(Random(1), DiskFaults(), lambda: NOW_MS)
    disk.make_dirs(DIRECTORY)
    too_long(disk, with_next=True)
    for number in range(1, count):
        write(disk, BEHIND + number, [lying_at(BEHIND + number, batch(b"more"))])
    log = start(disk, clean=True)
    assert log.segments.bases == [*STARTS, *(BEHIND + number for number in range(count))]
    assert log.log_end_offset == BEHIND + count and len(OFFSETS) == 8


def test_large_offsets_are_not_too_many_for_a_segment() -> None:
    home = Home()
    truncate_fully_and_start_at(home.log, 2**31)
    several_segments(home)
    close_log(home.log)
    home.disk.seen(home.log.segments[0].path)[-1] ^= 1
    notes: list[str] = []
    log = home.open(clean_shutdown=True, notes=notes)
    assert log.segments.bases == [2**31 + base for base in (0, 3, 6, 9)] and notes == [], "it is not verified"


def test_an_empty_directory_begins_at_the_log_start() -> None:
    home = stopped(clean=False)
    for name in home.disk.list_dir(DIRECTORY):
        home.disk.remove(DIRECTORY / name)
    for log_start in (5, 0):
        log = home.open(log_start_offset=log_start)
        assert (log.segments.bases, log.log_start_offset, log.log_end_offset) == ([log_start], log_start, log_start)
        assert log.recovery_point == 0 and log.high_watermark == log_start
        home.disk.remove(log.segments[0].path)


# -- the logs of a broker --------------------------------------------------------------------------------------------


def killed(logs: Logs) -> LogManager:
    logs.manager.unlock()
    logs.disk.process_died()
    return logs.started()


def test_a_log_without_a_checkpoint_is_verified_from_its_first_record() -> None:
    logs = Logs()
    roll(logs.log, NOW_MS)
    logs.append()
    logs.disk.seen(logs.log.segments[0].path)[-1] ^= 1
    log = killed(logs).logs["t", 0]
    assert (log.log_end_offset, log.segments.bases) == (0, [0])


def test_the_name_of_a_log_is_synced_by_the_first_flush_after_a_kill() -> None:
    logs = Logs()
    assert logs.log.directory in logs.disk.uncertain()
    manager = killed(logs)
    log = manager.logs["t", 0]
    assert log.partition_dir.is_new
    log.flush()
    assert log.directory not in logs.disk.uncertain()
    manager.close()
    assert not logs.started().logs["t", 0].partition_dir.is_new


def test_a_start_counts_logs_and_future_logs() -> None:
    logs = Logs()
    logs.manager.futures.create(logs.log, UUID(int=1), OTHER)
    logs.manager.create("t", 1, UUID(int=1), {})
    logs.manager.unlock()
    logs.disk.process_died()
    manager = logs.started_without_load()
    loader = manager.begin_load()
    assert (loader.total, loader.opened) == (3, 0)
    while loader.open_some(ROOT, manager.files) or loader.open_some(OTHER, manager.files):
        pass
    assert loader.opened == 3 and manager.finish_load(loader) == 2


def test_an_id_that_cannot_be_read_is_a_damaged_file_or_a_failed_disk() -> None:
    logs = Logs()
    path = logs.log.directory / PARTITION_METADATA
    logs.disk.seen(path)[:] = b"nothing"
    manager = killed(logs)
    assert manager.topic_id(("t", 0)) is None
    (note,) = [each for each in manager.notes if "partition.metadata" in each]
    assert note == f"{path}: no topic id; the id is taken from the metadata log"
    logs.manager = manager
    logs.fails(read_error=1.0)
    loader_failures = failures_at_start(logs)
    assert set(loader_failures) == {ROOT} and "simulated read error" in loader_failures[ROOT]


def failures_at_start(logs: Logs) -> dict[Path, str]:
    logs.manager.unlock()
    logs.disk.process_died()
    manager = logs.started_without_load()
    loader = manager.begin_load()
    while loader.open_some(ROOT, manager.files):
        pass
    return loader.failures


def test_a_lower_log_start_is_stored_before_files_are_removed() -> None:
    """A kill in between would leave a start behind records that the leader sends next."""
    logs = Logs()
    for _ in range(3):
        logs.append()
    logs.log.advance_log_start(3)
    logs.manager.checkpoint_work()()
    starts: list[int] = []
    remove = logs.disk.remove

    def removed(path: Path) -> None:
        if path.suffix == ".snapshot":
            starts.append(read_offsets(logs.disk, ROOT / LOG_START)["t", 0])
        remove(path)

    logs.disk.remove = removed  # type: ignore[method-assign]  # the test replaces it
    logs.log.flush_state.snapshot_producers(logs.log.producers, 3)
    starts.clear()
    truncate_fully_and_start_at(logs.log, 1)
    assert starts[0] == 1 == logs.log.log_start_offset


def test_a_batch_that_is_read_wrong_once_is_not_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    home = stopped(clean=False)
    errors = [1]
    read_at = SimFile.read_at

    def flipped(file: SimFile, position: int, length: int) -> bytes:
        data = bytearray(read_at(file, position, length))
        if file.path.suffix == ".log" and length > 1000 and errors:
            data[-1] ^= errors.pop()
        return bytes(data)

    monkeypatch.setattr(SimFile, "read_at", flipped)
    notes: list[str] = []
    segment = Segment(FileCache(home.disk), DIRECTORY, 0, created_ms=0)
    segment.open()
    found = list(check_batches(segment, expected_offset=0))
    assert not errors and len(found) == 3 and not any(isinstance(each, Damage) for each in found)
    assert home.open(notes=notes).log_end_offset == END and notes == []


def test_producers_are_known_up_to_the_end_of_a_log() -> None:
    logs = Logs()
    logs.append()
    assert logs.log.producers.map_end_offset == logs.log.log_end_offset == 2
