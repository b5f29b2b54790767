"""The background scrub: verifies all closed segments of all logs at a limited rate, and repairs damage from
replicas."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.common.buggify import buggify
from odradek.common.errors import StorageError
from odradek.common.log_lines import get_logger
from odradek.log.scrub import ScrubConfig, ScrubCounts, SegmentCheck

if TYPE_CHECKING:
    from odradek.common.ports import Clock, Disk
    from odradek.log.log import Log
    from odradek.log.manager import LogManager
    from odradek.log.segment import Segment
    from odradek.replica.manager import ReplicaManager
    from odradek.settings.broker import BrokerSettings

# A broker that starts has other things to do.
FIRST_PASS_MS = 60_000
_log = get_logger("server.background.scrubbing")


class Scrubbing:
    """The scrub of one broker: one segment at a time."""

    def __init__(
        self, settings: BrokerSettings, clock: Clock, disk: Disk, log_manager: LogManager, replicas: ReplicaManager
    ) -> None:
        self._config = settings.build(ScrubConfig)
        self.counts = ScrubCounts()
        self._clock = clock
        self._disk = disk
        self._log_manager = log_manager
        self._replicas = replicas
        self._job: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start, unless odradek.log.scrub.enable is false."""
        if self._config.enable:
            self._job = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Cancel the pass under way."""
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)

    async def _run(self) -> None:
        pause_ms = FIRST_PASS_MS
        while True:
            await asyncio.sleep(max(1, min(pause_ms, self._config.interval_ms)) / 1000)
            pause_ms = self._config.interval_ms
            try:
                await self._pass()
            except Exception as error:
                _log.bug("a scrub failed", error)

    async def _pass(self) -> None:
        """Verify every segment that is closed now."""
        logs = list(self._log_manager.logs.values())
        # The first log depends on the time, so that all logs are reached even if the broker is restarted often.
        first = self._clock.now_ms() % max(1, len(logs))
        logs = logs[first:] + logs[:first]
        closed = [(log, segment) for log in logs for segment in log.segments[:-1]]
        self.counts.pass_bytes = sum(segment.size_bytes for _, segment in closed)
        self.counts.pass_done_bytes = 0
        for log, segment in closed:
            try:
                await self._verify(log, segment)
            except StorageError as error:
                self._replicas.storage_failed(error)
            self.counts.segments += 1
        self.counts.passes += 1

    async def _verify(self, log: Log, segment: Segment) -> None:
        check: SegmentCheck | None = self._begin(log, segment)
        while check is not None and check.is_there:
            await buggify("server: before a piece of a scrub")
            piece = await self._disk.run_blocking(check.next_piece())
            if piece is None:
                return
            self.counts.read_bytes += piece.read_bytes
            self.counts.pass_done_bytes += piece.read_bytes
            await asyncio.sleep(piece.cost_bytes / max(1, self._config.bytes_per_second))
            if piece.damage is not None and check.is_there:
                check = await self._repaired(log, segment, piece.damage.position, check.next_offset)
            elif piece.is_last:
                return

    def _begin(self, log: Log, segment: Segment, position: int = 0, offset: int | None = None) -> SegmentCheck | None:
        """A check from there on; None where the log is gone. Raises StorageError."""
        if log.is_detached:
            return None
        try:
            return SegmentCheck(self._disk, log, segment, position=position, offset=offset)
        except OSError as error:
            raise StorageError(log.log_dir, f"{segment.path}: {error}") from error

    async def _repaired(self, log: Log, segment: Segment, position: int, offset: int) -> SegmentCheck | None:
        """Repair damage; returns a check of the repaired batches and the rest, or None if the damage remains."""
        self.counts.damaged += 1
        segment.verification.invalidate()
        log.damage.report(segment, position, offset)
        partition = self._replicas.partition(*log.topic_partition)
        repair = None if partition is None else partition.wait_repaired()
        if repair is None:
            return None
        await asyncio.gather(repair, return_exceptions=True)
        check = self._begin(log, segment, position, offset)
        if check is None or not check.is_there:
            return None
        piece = await self._disk.run_blocking(check.next_piece())
        if piece is None or (piece.damage is not None and piece.damage.position == position):
            return None
        return self._begin(log, segment, position, offset)
