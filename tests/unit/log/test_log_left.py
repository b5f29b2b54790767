"""Work of other threads on a log that is deleted, recreated, moved or lost meanwhile: before it begins, before each of
its system calls, and before the event loop is notified of its end.

An operation that fails because its log has left the directory is no fault of the disk, and does nothing to another log
that has its name by then.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest

from odradek.common.real_io import RealClock, RealDisk
from odradek.log.checkpoints import RECOVERY_POINT, read_offsets
from odradek.log.compaction.cleaner import Cleaner
from odradek.log.compaction.config import CleanerConfig
from odradek.log.config import LogConfig
from odradek.log.follower_append import append_as_follower
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.repair import CorruptRange, rewriting
from odradek.log.replicated import read_replicated
from odradek.log.retention import begin_delete, finish_delete
from odradek.log.scrub import SegmentCheck
from odradek.log.search import search_timestamp
from odradek.log.truncation import truncate_to
from tests.support.models.batches import NOW_MS, batch, header_of

T = TypeVar("T")
KEY = ("t", 0)
SYNCS = ("fsync", "fdatasync")
CALLS = ("rename", "replace", "unlink", "open", "listdir")


class SystemCalls:
    """Runs something once, before the system call of a number, counted from `begin` in work off the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._at = -1
        self._is_at_work = False
        self.is_elsewhere: Callable[[], bool] = lambda: False
        self._event: Callable[[], object] | None = None
        for name in CALLS:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))
        for name in SYNCS:
            monkeypatch.setattr(os, name, self._counted(lambda fd: None))  # power is not lost here

    def begin(self, at: int, event: Callable[[], object]) -> None:
        self.count, self._at, self._event = 0, at, event

    def end(self) -> bool:
        """Let it happen now, where it did not; returns whether it did."""
        event, self._event = self._event, None
        if event is not None:
            event()
        return event is None

    def run(self, work: Callable[[], T]) -> T:
        """Do what another thread would."""
        self._is_at_work = True
        try:
            self._pass()
            result = work()
            self._pass()
            return result
        finally:
            self._is_at_work = False

    def _pass(self) -> None:
        if self._is_at_work and self._event is not None and not self.is_elsewhere():
            if self.count == self._at:
                self.end()
            self.count += 1

    def _counted(self, call: Callable[..., T]) -> Callable[..., T]:
        def counted(*arguments: Any, **named: Any) -> T:
            self._pass()
            return call(*arguments, **named)

        return counted


class InlineDisk(RealDisk):
    """A disk that does work off the loop at once, so that a test can act in the middle of it, in this thread."""

    def __init__(self, calls: SystemCalls) -> None:
        super().__init__(workers=1)
        self.calls = calls

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return self.calls.run(work)

    async def start_worker(self, make: Any, argument: object, *, bytes_per_second: float) -> Any:
        return InlineWorker(self.calls, make(self, lambda size_bytes: None, argument))


class InlineWorker:
    def __init__(self, calls: SystemCalls, answer: Callable[[object], object]) -> None:
        self._calls = calls
        self._answer = answer

    async def call(self, argument: object) -> object:
        return self._calls.run(lambda: self._answer(argument))

    async def close(self) -> None:
        """A process takes its time to end."""
        self._calls.run(lambda: None)


class Home:
    """One log of several segments, closed and open, in the first of two directories."""

    def __init__(self, path: Path, calls: SystemCalls, **config: Any) -> None:
        self.disk = InlineDisk(calls)
        self.config = LogConfig(segment_bytes=400, index_interval_bytes=64, file_delete_delay_ms=0, **config)
        self.dirs = [path / "a", path / "b"]
        self.manager = self.open()
        calls.is_elsewhere = self.is_checkpointing
        self.log = self.manager.create(*KEY, UUID(int=1), {}, log_dir=self.dirs[0])

    def open(self) -> LogManager:
        manager = LogManager(self.disk, RealClock(), self.dirs, self.config, random.Random(1))
        manager.lock_dirs()
        manager.load()
        return manager

    def is_checkpointing(self) -> bool:
        """The loop waits for that, which one thread cannot; it has a test of its own."""
        writing: dict[Any, Any] = self.manager._cleaned._files._writing
        return any(lock.locked() for lock in writing.values())

    def again(self) -> None:
        """The log after a clean stop and a start: nothing of its indexes is loaded."""
        self.manager.close()
        self.manager = self.open()
        self.log = self.manager.logs[KEY]
        self.log.update_high_watermark(self.log.log_end_offset)

    def fill(self, log: Log, count: int, *, first_epoch: int = 1) -> None:
        for number in range(count):
            data = batch(b"%d" % number * 20, timestamp_ms=NOW_MS + number)
            epoch = first_epoch + number // 3
            log.append_as_leader([data], [header_of(data)], leader_epoch=epoch, now_ms=NOW_MS)
        log.update_high_watermark(log.log_end_offset)

    def files(self) -> dict[str, bytes]:
        """All files in directories with the log's name."""
        return {
            f"{directory.name}/{path.name}": path.read_bytes()
            for directory in self.dirs
            for path in sorted((directory / "t-0").glob("*"))
        }

    def close(self) -> None:
        self.manager.unlock()
        self.disk.close()


# -- what happens meanwhile -----------------------------------------------------------------------------------------


def deleted(home: Home) -> None:
    home.manager.delete(KEY)


def deleted_soon(home: Home) -> None:
    home.manager.schedule_delete(KEY)


def removed(home: Home) -> None:
    home.manager.delete(KEY)
    home.manager.removal.begin_removals()()


def made_again(home: Home) -> None:
    home.manager.delete(KEY)
    log = home.manager.create(*KEY, UUID(int=2), {}, log_dir=home.dirs[0])
    home.fill(log, 12, first_epoch=8)


def made_again_elsewhere(home: Home) -> None:
    home.manager.delete(KEY)
    home.manager.removal.begin_removals()()
    home.fill(home.manager.create(*KEY, UUID(int=2), {}, log_dir=home.dirs[1]), 12, first_epoch=8)


def moved(home: Home) -> None:
    future = home.manager.futures.create(home.log, UUID(int=1), home.dirs[1])
    while future.log_end_offset < home.log.log_end_offset:
        read = home.log.read(future.log_end_offset, max_bytes=1 << 20)
        append_as_follower(future, b"".join(chunk.read() for chunk in read.chunks), now_ms=NOW_MS)
    home.manager.futures.replace(KEY)
    home.manager.removal.discard(home.log, after_names_in=home.dirs[1])


def lost(home: Home) -> None:
    home.manager.take_offline(home.dirs[0])


# -- what is at work ------------------------------------------------------------------------------------------------


def flush(home: Home) -> None:
    end, work = home.log.begin_flush()
    home.disk.calls.run(work)
    home.log.finish_flush(end)


def retain(home: Home) -> None:
    asyncio.run(home.manager.retain(home.log, NOW_MS + 10_000_000, 1 << 40))


def load(home: Home) -> None:
    search = search_timestamp(home.log, NOW_MS + 1)
    while not home.log.is_detached and (work := search.next_step()) is not None:
        try:
            search.apply(home.disk.calls.run(work))
        except FileNotFoundError:
            assert home.log.is_detached, "a search checks this, and blames no disk"


def compact(home: Home) -> None:
    asyncio.run(Cleaner(home.disk, RealClock(), home.manager, CleanerConfig()).clean_dirtiest())


def repair(home: Home) -> None:
    log, segment = home.log, home.log.segments[1]
    data = segment.open_shared().file.read_at(0, segment.size_bytes)
    batches = read_replicated(
        data, next_offset=segment.base_offset, latest_epoch=-1, leader_epoch=2**31 - 1, is_empty=True
    )[:1]
    size, end = batches[0][1].size_bytes, batches[0][1].last_offset + 1
    hole = CorruptRange(segment, 0, size, segment.base_offset, end, is_open=False)
    home.disk.calls.run(rewriting(log, hole, batches))


def scrub(home: Home) -> None:
    for segment in home.log.segments[:-1]:
        if not home.log.is_detached:
            check = SegmentCheck(home.disk, home.log, segment)
            while check.is_there:
                piece = home.disk.calls.run(check.next_piece())
                if piece is None or piece.is_last:
                    break


def _full(path: Path, calls: SystemCalls, **config: Any) -> Home:
    home = Home(path, calls, **config)
    home.fill(home.log, 12)
    return home


def _compacted(path: Path, calls: SystemCalls) -> Home:
    home = _full(path, calls, cleanup_policy=("compact",))
    home.log.flush()
    return home


def _retained(path: Path, calls: SystemCalls) -> Home:
    return _full(path, calls, retention_ms=1000)


def _unread(path: Path, calls: SystemCalls) -> Home:
    home = _full(path, calls)
    home.again()
    for segment in home.log.segments:
        for index in segment.paths()[1:3]:
            index.write_bytes(b"not an index" * 5)  # so that it is rebuilt
    return home


MEANWHILE = (deleted, deleted_soon, removed, made_again, made_again_elsewhere, moved, lost)
WORK: dict[Callable[[Home], None], Callable[[Path, SystemCalls], Home]] = {
    flush: _full,
    retain: _retained,
    load: _unread,
    compact: _compacted,
    repair: _compacted,
    scrub: _full,
}


def dropped(home: Home) -> None:
    finish_delete(home.log, begin_delete(home.log, 2, NOW_MS)())


def cut(home: Home) -> None:
    truncate_to(home.log, 1)


def _unread_and_old(path: Path, calls: SystemCalls) -> Home:
    home = _retained(path, calls)
    home.again()
    return home


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[SystemCalls]:
    yield SystemCalls(monkeypatch)


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda event: event.__name__)
def test_work_on_a_log_that_leaves_fails_no_one_and_touches_no_other_log(
    tmp_path: Path, calls: SystemCalls, work: Callable[[Home], None], meanwhile: Callable[[Home], None]
) -> None:
    at = 0
    while True:
        home = WORK[work](tmp_path / str(at), calls)
        there: dict[str, bytes] = {}

        def event(home: Home = home, there: dict[str, bytes] = there) -> None:
            meanwhile(home)
            there.update(home.files())

        calls.begin(at, event)
        work(home)  # raises where the disk is blamed
        happened = calls.end()
        if meanwhile not in (deleted_soon, lost):  # where the log's own files are there still
            assert home.files() == there, f"something was done to another log, {meanwhile.__name__} before step {at}"
        home.close()
        if not happened:
            break
        at += 1
    assert at > 3, "the work makes no system call that counts"


@pytest.mark.parametrize("meanwhile", [dropped, cut], ids=lambda event: event.__name__)
@pytest.mark.parametrize(
    ("work", "make"),
    [(flush, _full), (retain, _unread_and_old), (compact, _compacted), (repair, _compacted), (scrub, _full)],
    ids=lambda each: each.__name__,
)
def test_work_on_a_segment_that_its_log_drops_meanwhile_fails_no_one(
    tmp_path: Path,
    calls: SystemCalls,
    work: Callable[[Home], None],
    make: Callable[[Path, SystemCalls], Home],
    meanwhile: Callable[[Home], None],
) -> None:
    at = 0
    while True:
        home = make(tmp_path / str(at), calls)
        happened: list[int] = []

        def event(home: Home = home, happened: list[int] = happened) -> None:
            happened.append(len(home.log.segments))
            if len(home.log.segments) > 2:
                meanwhile(home)

        calls.begin(at, event)
        work(home)  # raises where the disk is blamed
        done = not happened
        calls.end()
        home.close()
        if done:
            break
        at += 1
    assert at > 3, "the work makes no system call that counts"


def test_a_retention_that_begins_when_its_log_is_gone_does_nothing(tmp_path: Path, calls: SystemCalls) -> None:
    """The round of retention has the log in its list still."""
    home = _retained(tmp_path, calls)
    made_again(home)
    there = home.files()
    retain(home)
    assert home.files() == there
    home.close()


class GatedDisk(RealDisk):
    """A disk on which the sync of a file waits for a gate."""

    def __init__(self) -> None:
        super().__init__(workers=1)
        self.gated = ""
        self.is_in = threading.Event()
        self.gate = threading.Event()

    def rename(self, source: Path, target: Path) -> None:
        if self.gated and target.name == self.gated:
            self.gated = ""
            self.is_in.set()
            assert self.gate.wait(60)
        super().rename(source, target)


def test_a_checkpoint_under_way_omits_a_log_created_meanwhile(tmp_path: Path) -> None:
    disk = GatedDisk()
    manager = LogManager(disk, RealClock(), [tmp_path], LogConfig(), random.Random(1))
    manager.lock_dirs()
    manager.load()
    log = manager.create(*KEY, UUID(int=1), {})
    data = batch(b"a", b"b", b"c")
    log.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)
    log.flush()
    disk.gated = RECOVERY_POINT
    thread = threading.Thread(target=manager.checkpoint_work())
    thread.start()
    assert disk.is_in.wait(60)
    # The loop waits for the write under way, which is let go on while it does.
    threading.Timer(0.05, disk.gate.set).start()
    manager.delete(KEY)
    manager.create(*KEY, UUID(int=2), {})
    said = read_offsets(disk, tmp_path / RECOVERY_POINT).get(KEY, 0)
    thread.join()
    assert said == 0, "a crash now would leave what the new log gets unlooked at"
    assert read_offsets(disk, tmp_path / RECOVERY_POINT).get(KEY, 0) == 0
    manager.unlock()
    disk.close()
