"""A flush makes every name and byte of a log durable, except the indexes of the active segment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.common.errors import ApiError
from odradek.common.ports import make_dirs_durably
from odradek.log.checkpoints import PARTITION_METADATA
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.flush_state import FlushState
from odradek.log.future import rename_to
from odradek.log.log import Log
from odradek.log.opening import close_log, open_log
from odradek.log.rolling import advance_end_to, roll
from odradek.log.search import aborted_transactions
from odradek.log.truncation import truncate_fully_and_start_at, truncate_to
from odradek.record.batch import BatchHeader
from odradek.record.builder import build_batch
from odradek.record.control import transaction_marker
from odradek.record.record import Record
from tests.sim.disk import DiskFaults, SimDisk

NOW_MS = 1_767_225_600_000
DIRECTORY = Path("/data/t-0")
PRODUCER_ID = 7


class NotingDisk(SimDisk):
    """Records which directories are synced."""

    synced_dirs: list[Path]

    def sync_held_dir(self, path: Path) -> None:
        self.synced_dirs.append(path)
        super().sync_held_dir(path)


@dataclass
class Home:
    """A log on a disk that knows which bytes and names a loss of power could take."""

    config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.disk = NotingDisk(Random(1), DiskFaults(), lambda: NOW_MS)
        self.disk.synced_dirs = []
        make_dirs_durably(self.disk, DIRECTORY)
        self.log = self.open()

    def open(self, recovery_point: int = 0, **more: Any) -> Log:
        config = LogConfig(index_interval_bytes=1, **self.config)
        return open_log(
            FileCache(self.disk), DIRECTORY, ("t", 0), config, now_ms=NOW_MS, recovery_point=recovery_point, **more
        )

    def append(self, count: int = 1, *, epoch: int = 0, transactional: bool = False) -> None:
        for _ in range(count):
            known = self.log.producers.producers.get(PRODUCER_ID)
            data = build_batch(
                [Record(b"k", b"v" * 50, timestamp_ms=NOW_MS + self.log.log_end_offset)],
                producer_id=PRODUCER_ID,
                producer_epoch=0,
                base_sequence=0 if known is None else known.last_sequence + 1,
                transactional=transactional,
            )
            self.log.append_as_leader([data], [BatchHeader.read(data)], leader_epoch=epoch, now_ms=NOW_MS)
        self.log.update_high_watermark(self.log.log_end_offset)

    def abort(self) -> None:
        self.append(transactional=True)
        marker = transaction_marker(
            commit=False, producer_id=PRODUCER_ID, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        self.log.append_as_leader([marker], [BatchHeader.read(marker)], leader_epoch=0, now_ms=NOW_MS)

    def roll(self) -> None:
        roll(self.log, NOW_MS)

    def synced(self, action: Callable[[], object]) -> list[Path]:
        """The files, and then the directories, that it makes durable."""
        files: list[Path] = []
        self.disk.on_change = lambda kind, path, *_: files.append(Path(path)) if kind == b"s" else None
        self.disk.synced_dirs = []
        action()
        return files + self.disk.synced_dirs

    def uncertain(self) -> set[str]:
        """Names of what a loss of power may change, without what retention takes away, and the active indexes."""
        active = {path.name for path in self.log.segments.active.indexes.paths()[:2]}
        return {path.name for path in self.disk.uncertain() if not path.name.endswith(".deleted")} - active

    def sizes(self) -> dict[str, int]:
        return {name: self.disk.size(DIRECTORY / name) for name in self.disk.list_dir(DIRECTORY)}


def several_segments(home: Home) -> None:
    for _ in range(3):
        home.append(3)
        home.roll()
    home.append(2)


def an_aborted_transaction(home: Home) -> None:
    home.abort()
    home.roll()
    home.abort()


def leader_epochs(home: Home) -> None:
    home.append(epoch=1)
    home.log.assign_epoch(2, 1)
    home.append(epoch=2)


def a_cut(home: Home) -> None:
    several_segments(home)
    home.log.flush()
    home.append(1, epoch=1)
    truncate_to(home.log, 5)
    home.append(1, epoch=2)


def a_cut_of_an_aborted_transaction(home: Home) -> None:
    home.append(2)
    home.abort()
    home.log.flush()
    truncate_to(home.log, 2)
    home.append(3)


def a_cut_and_a_roll(home: Home) -> None:
    home.append(2)
    home.abort()
    home.roll()
    home.append(2)
    home.log.flush()
    truncate_to(home.log, 2)
    home.roll()
    home.append(3)


def a_kill_behind_such_a_cut(home: Home) -> None:
    home.append(2)
    home.abort()
    home.log.flush()
    truncate_to(home.log, 2)
    home.disk.process_died()
    home.log = home.open(2)
    home.append(3)


def a_stop_behind_such_a_cut(home: Home) -> None:
    home.append(2)
    home.abort()
    home.log.flush()
    truncate_to(home.log, 2)
    close_log(home.log)
    home.disk.process_died()
    home.disk.remove(DIRECTORY / "00000000000000000002.snapshot")  # it may be lost: a start reads the log then
    home.disk.sync_dir(DIRECTORY)
    home.log = home.open(2, clean_shutdown=True)
    home.append(3)


def a_restart_elsewhere(home: Home) -> None:
    several_segments(home)
    home.log.flush()
    truncate_fully_and_start_at(home.log, 100)
    home.append(2)


def a_kill(home: Home) -> None:
    several_segments(home)
    home.disk.process_died()
    home.log = home.open()


def a_kill_behind_a_flush(home: Home) -> None:
    several_segments(home)
    home.log.flush()
    home.append(4)
    home.roll()
    home.append(1)
    home.disk.process_died()
    home.log = home.open(home.log.recovery_point)


def a_flush_that_found_no_file(home: Home) -> None:
    several_segments(home)
    home.log.flush_state.begin(home.log.log_end_offset)
    home.log.flush_state.undo()


def such_a_flush_of_an_aborted_transaction(home: Home) -> None:
    home.abort()
    home.log.flush_state.begin(home.log.log_end_offset)
    home.log.flush_state.undo()


HISTORIES: list[Callable[[Home], None]] = [
    several_segments,
    an_aborted_transaction,
    leader_epochs,
    a_cut,
    a_cut_of_an_aborted_transaction,
    a_cut_and_a_roll,
    a_kill_behind_such_a_cut,
    a_stop_behind_such_a_cut,
    a_restart_elsewhere,
    a_kill,
    a_kill_behind_a_flush,
    a_flush_that_found_no_file,
    such_a_flush_of_an_aborted_transaction,
]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_a_flush_leaves_nothing_uncertain(history: Callable[[Home], None]) -> None:
    home = Home()
    history(home)
    assert home.uncertain()
    home.log.flush()
    assert home.uncertain() == set()
    assert home.log.recovery_point == home.log.log_end_offset
    before, end = home.sizes(), home.log.log_end_offset
    aborted = aborted_transactions(home.log, 0, end)
    epochs, producers = home.log.epochs.lines(), home.log.producers.snapshot()
    home.disk.lose_power()
    kept = home.sizes()
    active = {path.name for path in home.log.segments.active.indexes.paths()}
    assert {name: size for name, size in before.items() if name not in active and ".deleted" not in name} == {
        name: size for name, size in kept.items() if name not in active and ".deleted" not in name
    }
    again = home.open(end)
    assert (again.log_end_offset, again.epochs.lines(), again.producers.snapshot()) == (end, epochs, producers)
    assert aborted_transactions(again, 0, end) == aborted


def test_a_flush_syncs_what_is_new_and_no_name_without_need() -> None:
    home = Home()
    several_segments(home)
    home.log.flush()
    home.append()
    assert home.synced(home.log.flush) == [home.log.segments.active.path]
    assert home.synced(home.log.flush) == []


@pytest.mark.parametrize(
    ("cut", "start", "end"),
    [(lambda log: truncate_fully_and_start_at(log, 100), 100, 100), (lambda log: truncate_to(log, 4), 0, 4)],
    ids=["begins again", "is cut"],
)
def test_a_cut_is_durable_on_return(
    cut: Callable[[Log], object], start: int, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power would bring back records that the leader does not have. Epochs may be written later."""
    home = Home()
    monkeypatch.setattr(FlushState, "write_epochs", lambda self: None)
    several_segments(home)
    home.log.flush()
    cut(home.log)
    assert not [name for name in home.uncertain() if name.endswith(".log")]
    home.disk.lose_power()
    home.log = home.open(log_start_offset=start)
    assert (home.log.log_start_offset, home.log.log_end_offset) == (start, end)


def test_a_new_directory_is_durable_once() -> None:
    home = Home()
    home.disk.remove_tree(DIRECTORY)
    home.disk.make_dirs(DIRECTORY)
    home.log = home.open()
    home.log.partition_dir.is_new = True
    home.disk.open(DIRECTORY / PARTITION_METADATA, create=True).write_at(0, [b"version: 0\n"])
    home.append()
    assert {DIRECTORY.name, PARTITION_METADATA} <= home.uncertain()
    assert {DIRECTORY, DIRECTORY.parent} <= set(home.synced(home.log.flush))
    assert home.uncertain() == set()
    home.append()
    assert home.synced(home.log.flush) == [home.log.segments.active.path]


@pytest.mark.parametrize(
    ("recovery_point", "rewritten"),
    [(0, [(0, 0), (3, 0), (6, 0), (9, 0)]), (3, [(3, 0), (6, 0), (9, 0)]), (7, [(6, 1), (9, 0)]), (11, [])],
)
def test_a_start_stores_what_may_not_be_durable_again(recovery_point: int, rewritten: list[tuple[int, int]]) -> None:
    """After a failed fsync the page cache shows what the disk has not: a sync alone would store nothing."""
    home = Home({"flush_messages": 1})
    several_segments(home)
    batch_bytes = home.log.segments.active.size_bytes // 2
    written: list[tuple[str, int]] = []
    home.disk.process_died()
    home.disk.on_change = lambda kind, path, position, data: written.append((path, position)) if kind == b"w" else None
    again = home.open(recovery_point)
    logs = [(int(Path(path).stem), position // batch_bytes) for path, position in written if path.endswith(".log")]
    assert (logs, again.recovery_point) == (rewritten, 11)
    home.log = again
    indexes = [home.disk.size(DIRECTORY / f"{base:020}.index") for base, _ in rewritten]
    assert all(indexes), "a start believes the indexes of what is durable"
    assert not [name for name in home.uncertain() if name.endswith(".log") and int(name[:20]) >= recovery_point]


def aborted_spans(log: Log) -> list[tuple[int, int]]:
    return [(each.first_offset, each.last_offset) for each in aborted_transactions(log, 0, log.log_end_offset)]


def test_a_start_stores_aborted_transactions_and_snapshots_again() -> None:
    """The start moves the recovery point to the end, so no later start recomputes them from the log."""
    home = Home({"flush_messages": 1})
    an_aborted_transaction(home)
    home.roll()
    home.append()
    end = home.log.log_end_offset
    aborted = aborted_spans(home.log)
    assert len(aborted) == 2
    home.disk.process_died()
    home.log = home.open()
    assert home.log.recovery_point == end
    assert home.uncertain() == set()
    home.disk.lose_power()
    assert aborted_spans(home.open(end)) == aborted


def test_a_start_without_space_for_an_index_tries_again_later() -> None:
    home = Home({"flush_messages": 1})
    an_aborted_transaction(home)
    end = home.log.log_end_offset
    aborted = aborted_spans(home.log)
    home.disk.process_died()
    home.disk.remove(home.log.segments[0].paths()[-1])
    used = home.disk.used_bytes()
    home.disk.faults = DiskFaults(capacity_bytes=used)
    home.log = home.open()
    assert home.log.recovery_point == 0
    home.disk.faults = DiskFaults()
    home.log.flush()
    assert home.log.recovery_point == end and home.uncertain() == set()
    assert aborted_spans(home.log) == aborted


def test_a_start_stores_a_segment_that_ends_before_the_recovery_point() -> None:
    """No record of the segment reaches the recovery point, so the whole segment is stored again."""
    home = Home({"flush_messages": 1, "cleanup_policy": ("compact",)})
    home.append(3)
    advance_end_to(home.log, 100, NOW_MS)
    home.append()
    home.disk.process_died()
    assert home.open(50).recovery_point == 101


def test_a_start_goes_on_with_a_swap() -> None:
    """The new segment takes the place of those that begin before its end, and of no other."""
    home = Home()
    for _ in range(4):
        home.append(2)
        home.roll()
    home.log.flush()
    both = b"".join(home.disk.seen(home.log.segments[number].path) for number in (1, 2))
    file = home.disk.open(DIRECTORY / "00000000000000000002.log.swap", create=True)
    file.write_at(0, [both])
    file.sync()
    notes: list[str] = []
    again = home.open(8, notes=notes)
    assert [segment.base_offset for segment in again.segments] == [0, 2, 6, 8]
    assert [header.base_offset for segment in again.segments for _, header in segment.headers(0)] == list(range(8))
    assert notes == ["t-0: the compacted segment 2 replaces 2 old ones"]
    assert DIRECTORY / "00000000000000000002.log" not in home.disk.uncertain()


def test_an_epoch_whose_first_records_are_gone_begins_where_it_did() -> None:
    """Compaction took them: the checkpoint alone says where, and is believed where the batches around it agree."""
    home = Home({"cleanup_policy": ("compact",)})
    home.append(2)
    home.log.assign_epoch(1, 2)
    advance_end_to(home.log, 3, NOW_MS)
    home.append(epoch=1)
    home.log.flush()
    home.disk.process_died()
    for recovery_point in (0, 2, 3):
        assert home.open(recovery_point).epochs.entries() == [(0, 0), (1, 2)]


def test_batches_that_a_start_has_verified_are_not_verified_by_readers() -> None:
    home = Home()
    home.append(3)
    home.roll()
    home.disk.process_died()
    verified, believed = home.open(0), home.open(3)
    home.disk.seen(verified.segments[0].path)[80] ^= 1
    assert len(verified.read(0, max_bytes=1000).chunks) == 1
    with pytest.raises(ApiError):
        believed.read(0, max_bytes=1000)


def test_a_log_that_gets_another_name_is_durable_under_it() -> None:
    home = Home()
    several_segments(home)
    other = DIRECTORY.with_name("t-1")
    rename_to(home.log, other)
    home.log.flush()
    active = {path.name for path in home.log.segments.active.indexes.paths()[:2]}
    assert {path.name for path in home.disk.uncertain() if other in (path, path.parent)} <= active
    assert not home.disk.exists(DIRECTORY)
