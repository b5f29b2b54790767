"""Searches of single records, renames and deletes run off the loop; decisions are taken between their steps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest

from odradek.common.real_io import RealClock, RealDisk
from odradek.log import files
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.retention import delete_old_segments
from odradek.log.search import search_timestamp
from tests.support.models.batches import NOW_MS, batch, header_of

T = TypeVar("T")


class WatchedDisk(RealDisk):
    """A real disk that runs something between two steps of what is worked off the loop."""

    def __init__(self) -> None:
        super().__init__(workers=1)
        self.between: Callable[[], object] = lambda: None
        self.steps = 0

    async def run_blocking(self, work: Callable[[], T]) -> T:
        self.steps += 1
        self.between()
        return await super().run_blocking(work)


class Home:
    """One log under a manager."""

    def __init__(self, tmp_path: Path, **config: Any) -> None:
        self.disk = WatchedDisk()
        self.config = LogConfig(segment_bytes=300, index_interval_bytes=64, **config)
        self.path = tmp_path
        self.manager = self.open()
        self.log = self.manager.create("t", 0, UUID(int=1), {})

    def open(self) -> LogManager:
        manager = LogManager(self.disk, RealClock(), [self.path], self.config, random.Random(1))
        manager.lock_dirs()
        manager.load()
        return manager

    def again(self) -> Log:
        """The log after a clean stop and a start: nothing of its indexes is loaded."""
        self.manager.close()
        self.manager = self.open()
        found = self.manager.get(("t", 0))
        assert found is not None
        self.log = found
        return found

    def append(self, *values: bytes, timestamp_ms: int = NOW_MS, compression: str = "none") -> None:
        data = batch(*values, timestamp_ms=timestamp_ms, compression=compression)
        self.log.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)
        self.log.update_high_watermark(self.log.log_end_offset)

    def fill(self, count: int, **how: str) -> None:
        for number in range(count):
            self.append(b"a%d" % number, b"b%d" % number, timestamp_ms=NOW_MS + number * 10, **how)

    async def search(self, timestamp_ms: int | None) -> tuple[int, int] | None:
        search = search_timestamp(self.log, timestamp_ms)
        while (work := search.next_step()) is not None:
            search.apply(await self.disk.run_blocking(work))
        return search.found[:2] if search.found is not None else None

    def close(self) -> None:
        self.manager.unlock()
        self.disk.close()


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
async def test_every_time_is_found_exactly_inside_its_batch(tmp_path: Path, compression: str) -> None:
    home = Home(tmp_path)
    home.fill(20, compression=compression)
    for reload in (False, True):
        if reload:
            home.again()
        for number in range(20):
            time_ms = NOW_MS + number * 10
            assert await home.search(time_ms) == (time_ms, 2 * number)
            assert await home.search(time_ms + 1) == (time_ms + 1, 2 * number + 1)
        assert await home.search(None) == (NOW_MS + 191, 39)
        assert await home.search(NOW_MS + 192) is None
    home.close()


async def test_a_search_goes_on_past_segments_that_retention_takes_meanwhile(tmp_path: Path) -> None:
    home = Home(tmp_path, retention_ms=1000)
    home.fill(20)
    log = home.again()
    log.update_high_watermark(log.log_end_offset)
    kept = log.segments.bases[-1]

    def retain() -> None:
        home.disk.between = lambda: None
        delete_old_segments(log, NOW_MS + kept // 2 * 10 + 999)

    home.disk.between = retain
    first = await home.search(NOW_MS)
    assert log.segments.bases == [kept], "they were there when the search began"
    assert first is not None and (first[1] == 0 or first[1] >= kept), "out of the file that is held, or of the next"
    again = await home.search(NOW_MS)
    assert again is not None and again[1] >= kept
    home.close()


async def test_a_log_is_appended_to_while_its_segments_are_deleted(tmp_path: Path) -> None:
    home = Home(tmp_path, retention_ms=1000, file_delete_delay_ms=0)
    home.fill(12)
    log = home.again()
    log.update_high_watermark(log.log_end_offset)
    starts: list[list[int]] = []

    def meanwhile() -> None:
        starts.append(list(log.segments.bases))
        home.append(b"new", timestamp_ms=NOW_MS + 500_000)

    home.disk.between = meanwhile
    removed = await home.manager.retain(log, NOW_MS + 400_000, 10**9)
    home.disk.between = lambda: None
    assert removed > 1
    assert log.log_start_offset == log.segments.bases[0] == starts[-1][0], (
        "gone for readers before any file was touched"
    )
    assert log.log_end_offset == 24 + len(starts)
    assert home.disk.steps >= 2
    await home.disk.run_blocking(home.manager.removal.begin_removals())
    names = sorted(path.name for path in log.directory.iterdir())
    assert not [name for name in names if name.endswith(".deleted")]
    assert int(names[0][:20]) >= log.log_start_offset
    home.close()


async def test_a_topic_that_is_deleted_while_retention_runs_harms_no_one(tmp_path: Path) -> None:
    home = Home(tmp_path, retention_ms=1000)
    home.fill(12)
    log = home.again()
    log.update_high_watermark(log.log_end_offset)
    home.disk.between = lambda: home.manager.delete(("t", 0))
    assert await home.manager.retain(log, NOW_MS + 400_000, 10**9) == 0
    assert home.manager.online_dirs() == [tmp_path]
    home.close()


async def test_a_clock_an_hour_ahead_or_behind_deletes_nothing_fresh(tmp_path: Path) -> None:
    home = Home(tmp_path, retention_ms=7_200_000)
    home.fill(12)
    log = home.again()
    log.update_high_watermark(log.log_end_offset)
    for jump_ms in (3_600_000, -3_600_000):
        assert await home.manager.retain(log, NOW_MS + jump_ms, 10**9) == 0
    assert log.log_start_offset == 0
    home.close()


async def test_indexes_of_closed_segments_are_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LOADED_INDEXES", 2)
    home = Home(tmp_path)
    home.fill(40)
    log = home.again()
    assert await home.search(None) == (NOW_MS + 391, 79)
    for number in (0, 35, 20, 3):
        assert await home.search(NOW_MS + number * 10) == (NOW_MS + number * 10, 2 * number)
    loaded = [segment for segment in log.segments if len(segment.indexes.offsets) or len(segment.indexes.times)]
    assert 0 < len(loaded) <= 3, "two closed ones and the active one"
    home.append(b"goes on")
    assert log.log_end_offset == 81
    home.close()


async def test_the_loop_goes_on_while_records_are_looked_at(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.fill(3)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(count())
    await home.search(NOW_MS + 21)
    other.cancel()
    assert turns > 0
    home.close()
