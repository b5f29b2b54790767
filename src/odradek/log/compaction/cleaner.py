"""Selects the log to clean, and runs a cleaning: plan, read and write in a worker process, swap, store the cleaned
offset.

Nothing is locked. The worker reads closed segments, which do not change. Before each swap the log is checked: after a
truncation, deletion, move or failure the worker's result is discarded, and the next check begins again. Source: Kafka
LogCleaner.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from odradek.common.buggify import buggify
from odradek.common.errors import ApiError, ErrorCode, OdradekError, StorageError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock, Disk, Worker, WorkerError, is_disk_full
from odradek.common.topic_names import TopicPartition
from odradek.log.compaction.cleaning import BuiltOffsetMap, CleanedGroup, CleaningPlan, start_cleaning
from odradek.log.compaction.config import CleanerConfig
from odradek.log.compaction.output import CLEANED, REPAIRED
from odradek.log.compaction.plan import Dirtiness, active_is_overdue, examine, make_plan
from odradek.log.compaction.status import CompactionState
from odradek.log.compaction.swap import replace_segments, swap_in
from odradek.log.rolling import roll
from odradek.log.segment import Segment

if TYPE_CHECKING:
    from odradek.log.log import Log
    from odradek.log.manager import LogManager

_log = get_logger("log.cleaner")


@dataclass(slots=True)
class CleanerCounts:
    """Counters of the cleaner since the start."""

    cleanings: int = 0
    aborted: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    records_read: int = 0
    records_removed: int = 0
    last_ms: int = 0
    longest_ms: int = 0
    max_buffer_utilization: float = 0.0


@dataclass(slots=True)
class Progress:
    """A running cleaning: the groups of segments that are done, and their number; 0 of 0 while keys are read."""

    dirtiness: Dirtiness
    groups_done: int = 0
    groups: int = 0


class AbandonedError(Exception):
    """The log has changed since the cleaning began."""


class Cleaner:
    """The cleaner of one broker; it may clean several logs at the same time."""

    def __init__(self, disk: Disk, clock: Clock, manager: LogManager, config: CleanerConfig) -> None:
        self._disk = disk
        self._clock = clock
        self._manager = manager
        self.config = config
        self.counts = CleanerCounts()
        self.running: dict[TopicPartition, Progress] = {}
        # Logs that are not cleaned until damage is repaired or the log is recreated, with the reason.
        self.uncleanable: dict[TopicPartition, tuple[Log, str, int]] = {}
        self._has_no_space = False

    # -- choosing -----------------------------------------------------------------------------------------------

    def examine(self, log: Log) -> Dirtiness:
        """The dirtiness of a log. Raises StorageError."""
        try:
            return examine(log, self._clock.now_ms())
        except OSError as error:
            raise StorageError(log.log_dir, f"{log.directory}: {error}") from error

    def reason_uncleanable(self, log: Log) -> str:
        """The reason why a log is not cleaned; "" if there is none."""
        found = self.uncleanable.get(log.topic_partition)
        return found[1] if found is not None and found[0] is log and found[2] == log.damage.repair_count else ""

    def state(self, log: Log) -> CompactionState:
        """The state of a compacted log, for DescribeLogDirs. Raises StorageError."""
        progress = self.running.get(log.topic_partition)
        state = CompactionState.of(log.cleaned_offset, self.examine(log) if progress is None else progress.dirtiness)
        if progress is not None:
            return replace(state, running=True, groups_done=progress.groups_done, groups=progress.groups)
        return replace(state, uncleanable=bool(self.reason_uncleanable(log)))

    def dirtiest(self) -> tuple[Log, Dirtiness] | None:
        """The dirtiest log that is due for cleaning. Raises StorageError."""
        best: tuple[Log, Dirtiness] | None = None
        for key, log in self._manager.logs.items():
            if not log.config.compacted or key in self.running or self.reason_uncleanable(log):
                continue
            dirtiness = self.examine(log)
            if dirtiness.is_due(log) and (best is None or dirtiness.ratio > best[1].ratio):
                best = log, dirtiness
        return best

    def roll_overdue(self) -> None:
        """Close active segments whose oldest record has reached max.compaction.lag.ms (KIP-354).

        Raises:
            StorageError.
        """
        now_ms = self._clock.now_ms()
        for log in list(self._manager.logs.values()):
            if not log.config.compacted:
                continue
            try:
                if active_is_overdue(log, now_ms):
                    roll(log, now_ms)
            except ApiError:
                continue  # no space for a segment: a later check tries again
            except OSError as error:
                raise StorageError(log.log_dir, f"{log.directory}: {error}") from error

    # -- cleaning -----------------------------------------------------------------------------------------------

    async def clean_dirtiest(self) -> bool:
        """Clean one log if one is due; returns whether to check again at once.

        Raises:
            StorageError: the log's directory must go offline.
        """
        self.roll_overdue()
        found = self.dirtiest()
        if found is None:
            return False
        log, dirtiness = found
        key = log.topic_partition
        self.running[key] = Progress(dirtiness)
        begun_ms = self._clock.monotonic_ms()
        try:
            await self._clean(log, dirtiness)
        except AbandonedError:
            self.counts.aborted += 1
            return True
        except (ApiError, WorkerError, FileNotFoundError) as error:
            return self._failed(log, error)
        except OSError as error:
            if not self._is_current(log):
                return True
            if is_disk_full(error):
                return self._full(log)
            raise StorageError(log.log_dir, f"{log.directory}: {error}") from error
        finally:
            del self.running[key]
        self._has_no_space = False
        self._done(log, dirtiness, self._clock.monotonic_ms() - begun_ms)
        return True

    def _done(self, log: Log, dirtiness: Dirtiness, took_ms: int) -> None:
        counts = self.counts
        counts.cleanings += 1
        counts.last_ms = took_ms
        counts.longest_ms = max(counts.longest_ms, took_ms)
        _log.info(
            "compacted",
            log=log.directory.name,
            first_dirty_offset=dirtiness.first_dirty_offset,
            end_offset=log.cleaned_offset,
            bytes_before=dirtiness.clean_bytes + dirtiness.dirty_bytes,
            bytes_after=sum(each.size_bytes for each in log.segments if each.base_offset < log.cleaned_offset),
            took_ms=took_ms,
        )

    def _failed(self, log: Log, error: Exception) -> bool:
        if not self._is_current(log):
            return True
        if isinstance(error, ApiError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            return self._full(log)
        self.uncleanable[log.topic_partition] = log, str(error), log.damage.repair_count
        _log.error(
            "log cannot be compacted until a repair or the next start",
            log=log.directory.name,
            reason=str(error),
        )
        return True

    def _full(self, log: Log) -> bool:
        """Record a full disk, with one log line until there is space again."""
        if not self._has_no_space:
            self._has_no_space = True
            _log.warning("no disk space for compaction; retrying", log=log.directory.name)
        return False

    def _is_current(self, log: Log) -> bool:
        return self._manager.logs.get(log.topic_partition) is log

    async def _clean(self, log: Log, dirtiness: Dirtiness) -> None:
        plan = make_plan(log, dirtiness, self.config, self._clock.now_ms())
        segments, cuts = list(log.segments[: len(plan.segments)]), log.truncation_count

        def check(left: Sequence[Segment]) -> None:
            is_whole = {id(segment) for segment in left} <= {id(segment) for segment in log.segments}
            if not (is_whole and self._is_current(log) and log.truncation_count == cuts and log.config.compacted):
                raise AbandonedError

        async def call(group: int | None, left: Sequence[Segment]) -> object:
            try:
                answer = await worker.call(group)
            except (OSError, OdradekError):
                check(left)  # the worker's files were removed or changed
                raise
            check(left)
            return answer

        async with self._worker(log, plan) as worker:
            check(segments)
            offset_map = await call(None, segments)
            assert isinstance(offset_map, BuiltOffsetMap)
            progress = self.running[log.topic_partition]
            progress.groups = len(offset_map.groups)
            self._count_offset_map(offset_map, plan)
            first = 0
            for number, count in enumerate(offset_map.groups):
                await buggify("log: before segments are cleaned")
                group = await call(number, segments[first:])
                assert isinstance(group, CleanedGroup)
                if group.is_changed and not log.cleaned_offset:
                    await self._mark_compacted(log)
                    check(segments[first:])
                if group.is_changed:
                    self._swap(log, segments[first : first + count])
                self._count_group(group)
                first += count
                progress.groups_done += 1
        log.cleaned_offset = offset_map.end_offset
        directory = log.directory
        await self._disk.run_blocking(log.partition_dir.work(lambda disk: disk.sync_dir(directory)))
        await self._disk.run_blocking(self._manager.cleaned_work(log.log_dir))

    async def _mark_compacted(self, log: Log) -> None:
        """Store that the log is compacted before the first record is removed, even if this cleaning fails (ADR 0021).
        Offset 1 is valid: below it each key occurs once."""
        log.cleaned_offset = 1
        await self._disk.run_blocking(self._manager.cleaned_work(log.log_dir, required=True))

    def _swap(self, log: Log, old: list[Segment]) -> None:
        if not replace_segments(log, old, lambda: swap_in(self._manager.files, log.directory, old)):
            raise AbandonedError

    @asynccontextmanager
    async def _worker(self, log: Log, plan: CleaningPlan) -> AsyncIterator[Worker]:
        worker = await self._disk.start_worker(start_cleaning, plan, bytes_per_second=self.config.pace_bytes_per_second)
        is_done = False
        try:
            yield worker
            is_done = True
        finally:
            await worker.close()
            if not is_done:
                await self._disk.run_blocking(self._removal(log))

    def _removal(self, log: Log) -> Callable[[], None]:
        """Return work that removes the files of an aborted cleaning; the next start removes files that it leaves.

        Another log may have the name by now, and with it what the worker wrote last.
        """
        current = self._manager.logs.get(log.topic_partition)
        if current is None:
            return lambda: None
        directory = current.directory

        def job(disk: Disk) -> None:
            try:
                for name in disk.list_dir(directory):
                    if name.endswith(CLEANED) and not name.endswith(REPAIRED):
                        disk.remove(directory / name)
            except OSError as error:
                _log.debug("files of an aborted cleaning are not deleted yet", log=directory.name, reason=str(error))

        return current.partition_dir.work(job)

    def _count_offset_map(self, offset_map: BuiltOffsetMap, plan: CleaningPlan) -> None:
        self.counts.read_bytes += offset_map.read_bytes
        self.counts.max_buffer_utilization = max(
            self.counts.max_buffer_utilization, offset_map.table_bytes / max(1, plan.table_bytes)
        )

    def _count_group(self, group: CleanedGroup) -> None:
        counts = self.counts
        counts.read_bytes += group.read_bytes
        counts.written_bytes += group.written_bytes
        counts.records_read += group.records_before
        counts.records_removed += group.records_before - group.records_after
