"""A start that loads many logs says how far it has come."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from uuid import UUID

import pytest

from odradek.common.real_io import RealClock, RealDisk
from odradek.log.config import LogConfig
from odradek.log.loading import RecoveryConfig
from odradek.log.manager import LogManager
from odradek.server.startup import log_loading
from odradek.server.startup.log_loading import load_logs

COUNT = 50


def locked(disk: RealDisk, path: Path) -> LogManager:
    manager = LogManager(disk, RealClock(), [path], LogConfig(), random.Random(1))
    manager.lock_dirs()
    return manager


async def test_a_start_says_how_many_logs_it_has_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = RealDisk(workers=1)
    manager = locked(disk, tmp_path)
    manager.load()
    for number in range(COUNT):
        manager.create("t", number, UUID(int=1), {})
    manager.unlock()  # as a kill leaves it
    manager = locked(disk, tmp_path)
    monkeypatch.setattr(log_loading, "PROGRESS_S", 0.0)
    with caplog.at_level(logging.INFO):
        assert await load_logs(disk, manager, RecoveryConfig(), lambda topic: {}, lambda topic, number: None) == COUNT
    manager.unlock()
    disk.close()
    said = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("recovered ") and line.endswith(f" of {COUNT} logs") for line in said), said[:5]
