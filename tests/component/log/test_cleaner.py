"""The cleaner over real files: a worker process, swaps under readers, and changes of a log meanwhile."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import MakeAnswer, Worker
from odradek.common.real_io import RealDisk
from odradek.log.checkpoints import CLEANED, read_offsets
from odradek.log.compaction.cleaner import Cleaner
from odradek.log.compaction.config import CleanerConfig
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.retention import delete_old_segments
from odradek.log.rolling import roll
from odradek.log.search import search_timestamp
from odradek.log.segment import Segment
from odradek.log.truncation import truncate_to
from odradek.record.batch import BatchHeader
from odradek.record.builder import build_batch
from odradek.record.record import Record
from odradek.replica.failback import may_be_compacted
from tests.support.models.compacted_log import kept_records

NOW_MS = 1_767_225_600_000


class StillClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms - NOW_MS


class WatchedDisk(RealDisk):
    """A real disk whose workers tell before each answer is taken."""

    def __init__(self) -> None:
        super().__init__(workers=2)
        self.before_answer: list[Callable[[], object]] = []

    async def start_worker(self, make: MakeAnswer, argument: object, *, bytes_per_second: float) -> Worker:
        return Watched(self, await super().start_worker(make, argument, bytes_per_second=bytes_per_second))


class Watched:
    def __init__(self, disk: WatchedDisk, worker: Worker) -> None:
        self._disk = disk
        self._worker = worker

    async def call(self, argument: object) -> object:
        answer = await self._worker.call(argument)
        if argument == 0 and self._disk.before_answer:
            self._disk.before_answer.pop()()
        return answer

    async def close(self) -> None:
        await self._worker.close()


class Shop:
    """One compacted log with its manager and cleaner."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.disk, self.clock, self.directory = WatchedDisk(), StillClock(), directory
        usual: dict[str, Any] = {"cleanup_policy": ("compact",), "segment_bytes": 1000, "file_delete_delay_ms": 0}
        self.config = LogConfig(**usual | config)
        self.load()

    def load(self) -> None:
        self.manager = LogManager(self.disk, self.clock, [self.directory], self.config, Random(1))
        self.manager.lock_dirs()
        self.manager.load()
        self.cleaner = Cleaner(self.disk, self.clock, self.manager, CleanerConfig())

    def create(self, topic_id: int = 1) -> Log:
        return self.manager.create("t", 0, UUID(int=topic_id), {})

    def fill(self, log: Log, rounds: int = 10, keys: int = 5) -> None:
        for number in range(rounds):
            records = [
                Record(b"key-%d" % key, b"%d" % number * 20, timestamp_ms=self.clock.now_ms()) for key in range(keys)
            ]
            data = build_batch(records)
            log.append_as_leader([data], [BatchHeader.read(data)], leader_epoch=0, now_ms=self.clock.now_ms())
        log.update_high_watermark(log.log_end_offset)
        roll(log, self.clock.now_ms())
        log.flush()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.manager.unlock()
    shop.disk.close()


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in kept_records(log).values()]


async def test_a_worker_process_compacts_a_log_and_a_restart_finds_it_so(shop: Shop) -> None:
    log = shop.create()
    shop.fill(log)
    held = log.read(0, max_bytes=10_000)
    before = b"".join(chunk.read() for chunk in held.chunks)
    assert await shop.cleaner.clean_dirtiest()
    assert values(log) == [b"9" * 20] * 5
    assert b"".join(chunk.read() for chunk in held.chunks) == before, "a reader goes on with the old file"
    assert log.cleaned_offset == 50
    assert read_offsets(shop.disk, shop.directory / CLEANED) == {("t", 0): 50}
    assert not await shop.cleaner.clean_dirtiest(), "nothing is dirty any more"
    assert (shop.cleaner.counts.records_read, shop.cleaner.counts.records_removed) == (50, 45)
    assert 0 < shop.cleaner.counts.max_buffer_utilization < 1
    shop.manager.close()
    shop.load()
    again = shop.create()
    assert (again.cleaned_offset, values(again)) == (50, [b"9" * 20] * 5)
    assert again.log_end_offset == 50
    shop.manager.removal.begin_removals()()
    assert not [path for path in (shop.directory / "t-0").iterdir() if path.suffix in (".deleted", ".cleaned", ".swap")]


async def test_a_log_that_is_cut_under_its_cleaning_keeps_what_it_has(shop: Shop) -> None:
    log = shop.create()
    shop.fill(log)
    shop.disk.before_answer.append(lambda: truncate_to(log, 20))
    assert await shop.cleaner.clean_dirtiest()
    assert shop.cleaner.counts.aborted == 1
    assert len(kept_records(log)) == 20
    assert not list((shop.directory / "t-0").glob("*.cleaned"))


async def test_a_topic_that_is_deleted_under_its_cleaning_is_gone(shop: Shop) -> None:
    log = shop.create()
    shop.fill(log)
    shop.disk.before_answer.append(lambda: shop.manager.delete(("t", 0)))
    assert await shop.cleaner.clean_dirtiest()
    assert not shop.cleaner.uncleanable
    assert not shop.manager.logs
    assert not await shop.cleaner.clean_dirtiest()


async def test_a_topic_of_the_same_name_begins_dirty(shop: Shop) -> None:
    shop.fill(shop.create())
    assert await shop.cleaner.clean_dirtiest()
    shop.manager.delete(("t", 0))
    log = shop.create(topic_id=2)
    assert log.cleaned_offset == 0
    assert read_offsets(shop.disk, shop.directory / CLEANED) == {}, "a crash must not bring the old offset back"


async def test_a_cut_below_the_cleaned_offset_is_noted_at_once(shop: Shop) -> None:
    log = shop.create()
    shop.fill(log)
    assert await shop.cleaner.clean_dirtiest()
    truncate_to(log, 45)
    assert log.cleaned_offset == 45
    assert read_offsets(shop.disk, shop.directory / CLEANED) == {("t", 0): 45}


async def test_a_policy_that_changes_stops_a_cleaning(shop: Shop) -> None:
    log = shop.create()
    shop.fill(log)
    delete = LogConfig(cleanup_policy=("delete",))
    shop.disk.before_answer.append(lambda: shop.manager.update_config(("t", 0), delete))
    assert await shop.cleaner.clean_dirtiest()
    assert shop.cleaner.counts.aborted == 1
    assert not await shop.cleaner.clean_dirtiest()
    shop.manager.update_config(("t", 0), shop.config)
    assert await shop.cleaner.clean_dirtiest()
    assert len(kept_records(log)) == 5


async def test_that_a_log_was_compacted_is_known_before_anything_is_dropped(shop: Shop) -> None:
    """However its first cleaning ends: a failback asks for it (ADR 0021)."""
    log = shop.create()
    shop.fill(log)
    swap = shop.cleaner._swap

    def swap_and_stop(cleaned: Log, old: list[Segment]) -> None:
        assert read_offsets(shop.disk, shop.directory / CLEANED) == {("t", 0): 1}
        swap(cleaned, old)
        shop.manager.update_config(("t", 0), LogConfig(cleanup_policy=("delete",)))

    shop.cleaner._swap = swap_and_stop  # type: ignore[assignment,method-assign]  # the test replaces it
    assert await shop.cleaner.clean_dirtiest()
    assert read_offsets(shop.disk, shop.directory / CLEANED)[("t", 0)] > 0
    assert may_be_compacted(log)


async def test_a_log_start_that_moves_under_a_cleaning_drops_its_segments(shop: Shop) -> None:
    log = shop.create()
    shop.fill(log)

    def delete_records() -> None:
        log.advance_log_start(30)
        assert delete_old_segments(log, shop.clock.now_ms()) > 0

    shop.disk.before_answer.append(delete_records)
    assert await shop.cleaner.clean_dirtiest()
    assert shop.cleaner.counts.aborted == 1
    assert await shop.cleaner.clean_dirtiest()
    assert values(log) == [b"9" * 20] * 5
    assert log.log_start_offset == 30


async def test_a_damaged_log_is_logged_once_and_others_go_on(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    log = shop.create()
    shop.fill(log)
    other = shop.manager.create("other", 0, UUID(int=9), {})
    shop.fill(other, rounds=8)
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    for _ in range(3):
        await shop.cleaner.clean_dirtiest()
    assert "damaged at position 0" in shop.cleaner.reason_uncleanable(log)
    assert len(kept_records(other)) == 5
    reports = [record for record in caplog.records if "cannot be compacted" in record.getMessage()]
    assert len(reports) == 1
    data[100] ^= 1  # as a repair from a replica does it
    path.write_bytes(data)
    log.damage.mark_repaired(log.segments[0], 0)
    assert await shop.cleaner.clean_dirtiest()
    assert len(kept_records(log)) == 5


async def test_a_full_disk_is_looked_at_again_later(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """The cleaner waits before it tries again, which keeps the loop free; the log stays cleanable."""
    log = shop.create()
    shop.fill(log)
    errors = [
        OSError(errno.ENOSPC, "no space"),
        ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no space"),
        OSError(errno.ENOSPC, "no space"),
    ]

    def fail() -> None:
        raise errors.pop()

    def reports() -> int:
        return sum("no disk space for compaction" in record.getMessage() for record in caplog.records)

    shop.disk.before_answer += [fail, fail]
    assert [await shop.cleaner.clean_dirtiest() for _ in range(2)] == [False, False]
    assert (shop.cleaner.reason_uncleanable(log), shop.cleaner.running, reports()) == ("", {}, 1)
    assert await shop.cleaner.clean_dirtiest()
    assert len(kept_records(log)) == 5
    shop.fill(log)
    shop.disk.before_answer.append(fail)
    assert not await shop.cleaner.clean_dirtiest()
    assert reports() == 2, "it lasted no longer, and began again"


async def test_a_stop_ends_the_worker(shop: Shop) -> None:
    log = shop.create()
    shop.fill(log, rounds=200)
    shop.cleaner.config = CleanerConfig(max_bytes_per_second=1000.0, io_buffer_bytes=1000)
    task = asyncio.create_task(shop.cleaner.clean_dirtiest())
    while not shop.cleaner.running:  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(kept_records(log)) == 1000
    assert not list((shop.directory / "t-0").glob("*.cleaned"))
    assert not shop.cleaner.running


async def test_max_compaction_lag_closes_the_active_segment(tmp_path: Path) -> None:
    shop = Shop(tmp_path, max_compaction_lag_ms=5000, min_cleanable_dirty_ratio=1.0, segment_bytes=1 << 20)
    log = shop.create()
    shop.fill(log, rounds=1)
    shop.fill(log, rounds=1)
    data = build_batch([Record(b"key-0", b"new", timestamp_ms=NOW_MS)])
    log.append_as_leader([data], [BatchHeader.read(data)], leader_epoch=0, now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    assert not await shop.cleaner.clean_dirtiest(), "a ratio of 1.0 is never passed"
    shop.clock.ms += 5001
    assert await shop.cleaner.clean_dirtiest()
    assert log.segments[-1].size_bytes == 0, "the active segment was closed"
    log.flush()
    assert await shop.cleaner.clean_dirtiest()
    assert sorted(map(bytes, filter(None, values(log)))) == sorted([b"new", *[b"0" * 20] * 4])
    shop.manager.unlock()
    shop.disk.close()


async def test_min_compaction_lag_keeps_young_records(tmp_path: Path) -> None:
    shop = Shop(tmp_path, min_compaction_lag_ms=5000)
    log = shop.create()
    shop.fill(log)
    assert not await shop.cleaner.clean_dirtiest()
    shop.clock.ms += 5001
    assert await shop.cleaner.clean_dirtiest()
    assert len(kept_records(log)) == 5
    shop.manager.unlock()
    shop.disk.close()


async def test_segments_that_are_not_durable_are_not_cleaned(shop: Shop) -> None:
    """The replacement of a record must not be lost by a loss of power after the record is gone."""
    log = shop.create()
    shop.fill(log)
    log.flush_state.recovery_point = 0
    assert not await shop.cleaner.clean_dirtiest()


async def test_two_threads_may_note_cleaned_offsets_at_once(shop: Shop) -> None:
    log = shop.create()
    for offset in range(1, 60):
        log.cleaned_offset = offset
        works = [shop.manager.cleaned_work(log.log_dir) for _ in range(3)]
        await asyncio.gather(*(shop.disk.run_blocking(work) for work in works))
        assert read_offsets(shop.disk, shop.directory / CLEANED) == {("t", 0): offset}


@pytest.mark.parametrize("steps_before", [0, 1, 2, 3])
async def test_a_search_by_time_goes_on_over_a_swap(shop: Shop, steps_before: int) -> None:
    log = shop.create()
    for _ in range(4):
        shop.clock.ms += 1000
        shop.fill(log, rounds=3)
    wanted = shop.clock.ms - 1500
    shop.manager.files.invalidate_below(log.directory)
    shop.manager.close()
    shop.load()
    log = shop.create()
    search = search_timestamp(log, wanted)
    for _ in range(steps_before):
        work = search.next_step()
        assert work is not None
        search.apply(work())
    assert await shop.cleaner.clean_dirtiest()
    shop.manager.removal.begin_removals()()
    while (work := search.next_step()) is not None:
        search.apply(work())
    assert search.found is not None
    if steps_before < 3:
        assert (search.found.timestamp_ms, search.found.offset) == (shop.clock.ms, 55)
