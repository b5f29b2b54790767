"""Loads all logs at the start, and closes them at the stop, in several threads, with a line of progress each second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from odradek.common.log_lines import get_logger
from odradek.common.ports import Disk
from odradek.log.files import FileCache
from odradek.log.loading import FILES_PER_THREAD, AssignedDirectory, LogLoader, RecoveryConfig
from odradek.log.manager import LogManager

PROGRESS_S = 1.0
_log = get_logger("server.logs")


async def load_logs(
    disk: Disk,
    manager: LogManager,
    config: RecoveryConfig,
    overrides: Callable[[str], Mapping[str, str]],
    assigned: AssignedDirectory,
) -> int:
    """Load all logs of a broker, off the loop; returns how many there are.

    Args:
        overrides: a topic's own settings by its name.
        assigned: the directories that the controller has for the replicas of this broker.
    Raises:
        StorageError: no log directory works.
    """
    loader = await disk.run_blocking(lambda: manager.begin_load(overrides, assigned))
    threads = [path for path in manager.dirs for _ in range(max(1, config.threads_per_dir))]
    progress = asyncio.get_running_loop().create_task(_log_progress(loader))
    try:
        await asyncio.gather(*(_open_all(disk, loader, path) for path in threads))
    finally:
        progress.cancel()
    await asyncio.gather(progress, return_exceptions=True)
    try:
        count = manager.finish_load(loader)
    finally:
        for log_dir, reason in loader.failures.items():
            _log.error("log directory offline", log_dir=log_dir, error=reason)
    for line in manager.notes:
        _log.warning("log recovery", note=line)
    manager.notes.clear()
    _log.debug("logs loaded", count=count)
    return count


async def close_logs(disk: Disk, manager: LogManager, *, broker_epoch: int) -> None:
    """Make all logs durable and mark the stop as clean. Raises StorageError."""
    parts = await disk.run_blocking(manager.begin_close)
    await asyncio.gather(*(disk.run_blocking(part) for part in parts))
    await disk.run_blocking(lambda: manager.close(broker_epoch=broker_epoch))


async def _open_all(disk: Disk, loader: LogLoader, log_dir: Path) -> None:
    files = FileCache(disk, capacity=FILES_PER_THREAD)
    while await disk.run_blocking(lambda: loader.open_some(log_dir, files)):
        pass


async def _log_progress(loader: LogLoader) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        _log.info(f"recovered {loader.opened:,} of {loader.total:,} logs")
