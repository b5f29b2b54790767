"""The cleaner's jobs: they begin, end, and stay away where they are not wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from odradek.common.errors import StorageError
from odradek.common.real_io import RealClock, RealDisk
from odradek.log.compaction.cleaner import Cleaner
from odradek.log.compaction.config import CleanerConfig
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.rolling import roll
from odradek.record.batch import BatchHeader
from odradek.record.builder import build_batch
from odradek.record.record import Record
from odradek.server.background.cleaning import CleaningJobs
from tests.support.models.compacted_log import kept_records
from tests.support.waiting import PATIENCE_S, eventually_async

NOW_MS = 1_767_225_600_000


class Yard:
    """Two compacted logs, dirty, and the jobs."""

    def __init__(self, directory: Path) -> None:
        self.disk = RealDisk(workers=2)
        config = LogConfig(cleanup_policy=("compact",))
        self.manager = LogManager(self.disk, RealClock(), [directory], config, Random(1))
        self.manager.load()
        self.logs = [self._filled(name) for name in ("one", "two")]
        self.failed: list[StorageError] = []
        self.cleaner = Cleaner(self.disk, RealClock(), self.manager, CleanerConfig(backoff_ms=5, threads=2))
        self.jobs = CleaningJobs(self.cleaner, self.failed.append)

    def _filled(self, name: str) -> Log:
        log = self.manager.create(name, 0, UUID(int=len(name)), {})
        for number in range(4):
            data = build_batch([Record(b"key", b"%d" % number, (), NOW_MS)])
            log.append_as_leader([data], [BatchHeader.read(data)], leader_epoch=0, now_ms=NOW_MS)
        log.update_high_watermark(log.log_end_offset)
        roll(log, NOW_MS)
        log.flush()
        return log

    async def until(self, cleanings: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.cleaner.counts.cleanings < cleanings:  # noqa: ASYNC110 - a counter notifies no one
                await asyncio.sleep(0.02)


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    yard = Yard(tmp_path)
    yield yard
    await yard.jobs.stop()
    yard.disk.close()


async def test_all_dirty_logs_are_cleaned(yard: Yard) -> None:
    yard.jobs.start()
    await yard.until(2)
    assert [[record.value for record in kept_records(log).values()] for log in yard.logs] == [[b"3"], [b"3"]]


async def test_a_cleaner_that_is_turned_off_says_so(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    yard.cleaner.config = CleanerConfig(enable=False, backoff_ms=1)
    yard.jobs.start()
    await eventually_async(lambda: "log.cleaner.enable=false" in caplog.text)
    await asyncio.sleep(0.05)
    assert [len(kept_records(log)) for log in yard.logs] == [4, 4]


async def test_no_threads_means_no_cleaning_until_there_are_some(yard: Yard) -> None:
    yard.cleaner.config = CleanerConfig(threads=0, backoff_ms=1)
    yard.jobs.start()
    await asyncio.sleep(0.05)
    assert yard.cleaner.counts.cleanings == 0
    yard.cleaner.config = CleanerConfig(threads=1, backoff_ms=1)
    await yard.until(2)
