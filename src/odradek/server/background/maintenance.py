"""Periodic jobs of a broker: retention, flushes, checkpoints, removal of deleted files, idle connections.

Each job is a loop that sleeps between two runs. Blocking calls run off the event loop. A disk error takes its directory
offline, and does not end the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from odradek.common.buggify import buggify
from odradek.common.errors import ApiError, StorageError
from odradek.common.log_lines import get_logger, sum_up
from odradek.common.numbers import INT64_MAX
from odradek.settings.options import config, option

if TYPE_CHECKING:
    from odradek.common.ports import Clock, Disk
    from odradek.log.manager import LogManager
    from odradek.replica.manager import ReplicaManager
    from odradek.server.network.dispatch import Dispatcher

# As Kafka, which keeps a starting broker free of it for half a minute.
FIRST_LOOK_MS = 30_000
REMOVAL_INTERVAL_MS = 1_000
SPACE_CHECK_MS = 500
ISOLATION_CHECK_MS = 500
# The decision for a log with nothing to delete takes some microseconds; after so many, other tasks run.
LOGS_PER_TURN = 100
# Kafka checks for idle connections with every poll; once a second suffices for limits of minutes.
MAX_IDLE_CHECK_MS = 1_000
# log.flush.scheduler.interval.ms is "never" by default; a topic may still set flush.ms.
MAX_FLUSH_CHECK_MS = 1_000
_log = get_logger("server.background.maintenance")


@config
class MaintenanceConfig:
    """The intervals of the jobs."""

    retention_check_ms: int = option(
        "log.retention.check.interval.ms",
        default=300_000,
        unit="ms",
        doc="Interval of the check for segments to delete.",
    )
    producer_expiration_ms: int = option(
        "producer.id.expiration.ms",
        default=86_400_000,
        unit="ms",
        doc="Expire the state of an idempotent producer that wrote nothing to a partition for this time.",
    )
    flush_check_ms: int = option(
        "log.flush.scheduler.interval.ms",
        default=INT64_MAX,
        unit="ms",
        doc="Interval of the check for logs whose flush.ms has passed; at least once a second where a topic sets it.",
    )
    recovery_checkpoint_ms: int = option(
        "log.flush.offset.checkpoint.interval.ms",
        default=60_000,
        unit="ms",
        doc="Interval of writing recovery points, below which a start after a crash does not verify.",
    )
    start_checkpoint_ms: int = option(
        "log.flush.start.offset.checkpoint.interval.ms",
        default=60_000,
        unit="ms",
        doc="Interval of writing log start offsets.",
    )
    watermark_checkpoint_ms: int = option(
        "replica.high.watermark.checkpoint.interval.ms",
        default=5_000,
        unit="ms",
        doc="Interval of writing high watermarks.",
    )

    @property
    def checkpoint_ms(self) -> int:
        """All checkpoints are written together, as often as the most frequent of them."""
        return min(self.recovery_checkpoint_ms, self.start_checkpoint_ms, self.watermark_checkpoint_ms)


class Maintenance:
    """The jobs of one broker."""

    def __init__(
        self,
        config: MaintenanceConfig,
        clock: Clock,
        disk: Disk,
        log_manager: LogManager,
        replicas: ReplicaManager,
        dispatcher: Dispatcher,
    ) -> None:
        self._config = config
        self._clock = clock
        self._disk = disk
        self._log_manager = log_manager
        self._replicas = replicas
        self._dispatcher = dispatcher
        self._jobs: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    def change_config(self, config: MaintenanceConfig) -> None:
        """Use other settings; the intervals of jobs are fixed at start."""
        self._config = config

    def start(self) -> None:
        """Begin all jobs."""
        config = self._config
        idle_ms = self._dispatcher.config.idle_ms
        idle_check_ms = MAX_IDLE_CHECK_MS if idle_ms < 0 else min(MAX_IDLE_CHECK_MS, max(10, idle_ms // 2))
        flush_ms = min(MAX_FLUSH_CHECK_MS, config.flush_check_ms)
        self._jobs = [
            self._every(
                config.retention_check_ms, self._retain, first_ms=min(FIRST_LOOK_MS, config.retention_check_ms)
            ),
            self._every(config.checkpoint_ms, self._checkpoint),
            self._every(flush_ms, self._flush),
            self._every(REMOVAL_INTERVAL_MS, self._remove),
            self._every(idle_check_ms, self._close_idle),
            self._every(SPACE_CHECK_MS, self._check_space),
            self._every(ISOLATION_CHECK_MS, self._check_isolation),
        ]

    async def stop(self) -> None:
        """End all jobs; one that is under way is waited for: two may not write the same checkpoint."""
        self._stopping.set()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    def _every(
        self, interval_ms: int, job: Callable[[], Awaitable[None]], *, first_ms: int | None = None
    ) -> asyncio.Task[None]:
        async def repeat() -> None:
            pause_ms = interval_ms if first_ms is None else first_ms
            while not await self._stops_within(pause_ms):
                pause_ms = interval_ms
                try:
                    await buggify("server: before a pass of the maintenance")
                    await job()
                except StorageError as error:
                    self._replicas.storage_failed(error)
                except Exception as error:
                    _log.bug("maintenance failed", error, job=job.__name__)

        return asyncio.get_running_loop().create_task(repeat())

    async def _stops_within(self, pause_ms: int) -> bool:
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    async def _retain(self) -> None:
        for number, log in enumerate(list(self._log_manager.logs.values())):
            if self._stopping.is_set():
                return
            if number % LOGS_PER_TURN == LOGS_PER_TURN - 1:
                await asyncio.sleep(0)
            try:
                await self._log_manager.retain(log, self._clock.now_ms(), self._config.producer_expiration_ms)
            except StorageError as error:
                self._replicas.storage_failed(error)
            except ApiError as error:
                _log.warning("retention waits for space", log=log.directory.name, error=error)

    async def _checkpoint(self) -> None:
        await self._disk.run_blocking(self._log_manager.checkpoint_work())

    async def _flush(self) -> None:
        for log in self._log_manager.logs_to_flush(self._clock.monotonic_ms()):
            log.flush_state.last_flush_ms = self._clock.monotonic_ms()
            partition = self._replicas.partition(*log.topic_partition)
            if partition is not None and not self._stopping.is_set():
                await self._replicas.flush(partition)

    async def _remove(self) -> None:
        await self._disk.run_blocking(self._log_manager.removal.begin_removals())
        self._replicas.retry_unplaced()

    async def _check_isolation(self) -> None:
        self._replicas.isolation.update()

    async def _check_space(self) -> None:
        space = self._log_manager.space
        for directory in space.full():
            if await self._disk.run_blocking(space.probe(directory)):
                space.on_space_available(directory)

    async def _close_idle(self) -> None:
        now_ms = self._clock.monotonic_ms()
        sum_up(self._clock.now_ms() / 1000)
        self._dispatcher.close_slow(now_ms)
        closed = self._dispatcher.close_idle(now_ms)
        if closed:
            _log.debug("idle connections closed", count=closed)
