"""The cleaner's jobs: each cleans the dirtiest log, and pauses if no log is dirty enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.common.errors import StorageError
from odradek.common.log_lines import get_logger
from odradek.common.tasks import gather_cancelling
from odradek.log.compaction.cleaner import Cleaner

_log = get_logger("server.background.cleaning")


class CleaningJobs:
    """Runs log.cleaner.threads jobs at a time."""

    def __init__(self, cleaner: Cleaner, on_failed: Callable[[StorageError], None]) -> None:
        """`on_failed` is called when a directory is lost."""
        self._cleaner = cleaner
        self._on_failed = on_failed
        self._job: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start, unless log.cleaner.enable is false."""
        if not self._cleaner.config.enable:
            _log.warning("log.cleaner.enable=false: topics with cleanup.policy=compact are not compacted")
            return
        self._job = asyncio.get_running_loop().create_task(self._poll_loop())

    async def stop(self) -> None:
        """Cancel cleanings in progress: nothing changes before a cleaning is complete, and the next one starts over."""
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)

    async def _poll_loop(self) -> None:
        while True:
            # Settings may change between two checks.
            await asyncio.sleep(max(1, self._cleaner.config.backoff_ms) / 1000)
            await gather_cancelling(*(self._clean_while_dirty() for _ in range(self._cleaner.config.threads)))

    async def _clean_while_dirty(self) -> None:
        try:
            while await self._cleaner.clean_dirtiest():
                continue
        except StorageError as error:
            self._on_failed(error)
        except Exception as error:
            _log.bug("cleaning failed", error)
