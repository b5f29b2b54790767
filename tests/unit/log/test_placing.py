"""The directory of a new log: the counts of logs equal those of a full count, after any changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from odradek.common.real_io import RealClock, RealDisk
from odradek.log.config import LogConfig
from odradek.log.manager import LogManager

ID = UUID(int=1)


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("one", "two", "three")]


@pytest.fixture
def manager(dirs: list[Path]) -> Iterator[LogManager]:
    disk = RealDisk(workers=1)
    manager = started(disk, dirs)
    yield manager
    manager.close()
    manager.unlock()
    disk.close()


def started(disk: RealDisk, dirs: list[Path]) -> LogManager:
    manager = LogManager(disk, RealClock(), dirs, LogConfig(), Random(1))
    manager.lock_dirs()
    manager.load()
    return manager


def counted(manager: LogManager) -> Counter[Path]:
    return Counter(log.log_dir for log in [*manager.logs.values(), *manager.futures.logs.values()])


def test_logs_are_spread_evenly(manager: LogManager, dirs: list[Path]) -> None:
    for number in range(9):
        manager.create("t", number, ID, {})
    assert counted(manager) == dict.fromkeys(dirs, 3)
    manager.delete(("t", 1))
    assert manager.create("t", 9, ID, {}).log_dir == dirs[1]
    # A copy on its way counts too.
    manager.futures.create(manager.logs["t", 0], ID, dirs[2])
    assert [manager.create("t", number, ID, {}).log_dir for number in (10, 11)] == dirs[:2]


def test_the_counts_are_right_whatever_comes_and_goes(manager: LogManager, dirs: list[Path]) -> None:
    random = Random(7)
    made = 0
    for _ in range(200):
        key = random.choice(list(manager.logs)) if manager.logs else ("t", -1)
        match random.choice(("create", "create", "delete", "copy", "replace", "give up")):
            case "create":
                manager.create("t", made, ID, {})
                made += 1
            case "delete":
                manager.delete(key)
            case "copy" if key in manager.logs and key not in manager.futures.logs:
                log = manager.logs[key]
                manager.futures.create(log, ID, random.choice([path for path in dirs if path != log.log_dir]))
            case "replace" if key in manager.futures.logs:
                replaced = manager.logs[key]
                manager.futures.replace(key)
                manager.removal.discard(replaced)
            case "give up":
                manager.futures.delete(key)
        assert +manager.placing.counts == counted(manager)
    manager.take_offline(dirs[0])
    assert +manager.placing.counts == counted(manager)
    assert not manager.placing.counts[dirs[0]]


def test_a_start_counts_what_it_finds(tmp_path: Path, dirs: list[Path]) -> None:
    disk = RealDisk(workers=1)
    before = started(disk, dirs)
    for number in range(5):
        before.create("t", number, ID, {})
    before.delete(("t", 0))
    before.futures.create(before.logs["t", 1], ID, dirs[2])
    before.close()
    before.unlock()
    after = started(disk, dirs)
    assert +after.placing.counts == counted(after) == counted(before)
    after.close()
    after.unlock()
    disk.close()


def test_a_way_that_does_not_count_is_refused(manager: LogManager) -> None:
    ways: list[Callable[[], object]] = [manager.logs.clear, manager.logs.popitem, lambda: manager.logs.update({})]
    for way in ways:
        with pytest.raises(AssertionError, match="keep the counts"):
            way()
