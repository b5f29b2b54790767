"""Deleted logs and files: renamed at once, and removed when they are due, behind the names that replaced them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from odradek.common.errors import StorageError
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.unit.log.test_log_manager import HandClock

FIRST, SECOND = Path("/data/one"), Path("/data/two")
DELAY_MS = 100


class Removing(SimDisk):
    """Notes what happens to names, in order; a directory may be broken or full."""

    def __init__(self) -> None:
        super().__init__(Random(1), DiskFaults(), lambda: NOW_MS)
        self.events: list[str] = []
        self.fails: dict[str, int] = {}

    def _event(self, event: str) -> None:
        self.events.append(event)
        if event in self.fails:
            raise OSError(self.fails[event], event)

    def rename(self, source: Path, target: Path) -> None:
        self._event(f"rename {source.name}")
        super().rename(source, target)

    def sync_dir(self, path: Path) -> None:
        self._event(f"sync {path.name}")
        super().sync_dir(path)

    def remove_tree(self, path: Path) -> None:
        if path.parent in (FIRST, SECOND):
            self._event(f"remove {path.name.partition('.')[0]}")
        super().remove_tree(path)


class Home:
    """A log `t-0` in the first of two directories; the clock stands at five seconds."""

    def __init__(self) -> None:
        self.disk, self.clock = Removing(), HandClock()
        self.clock.at_ms = 5000
        config = LogConfig(file_delete_delay_ms=DELAY_MS)
        self.manager = LogManager(self.disk, self.clock, (FIRST, SECOND), config, Random(1))
        self.manager.lock_dirs()
        self.manager.load()
        self.removal = self.manager.removal
        self.log = self.manager.create("t", 0, UUID(int=1), {}, log_dir=FIRST)
        append(self.log)
        self.disk.events.clear()

    def events(self, action: Callable[[], object]) -> list[str]:
        self.disk.events.clear()
        action()
        return self.disk.events

    def remove_at(self, at_ms: int) -> list[str]:
        self.clock.at_ms = at_ms
        return self.events(lambda: self.removal.begin_removals()())

    def file(self, name: str) -> Path:
        path = FIRST / name
        self.disk.open(path, create=True).close()
        return path


def append(log: Log) -> None:
    data = batch(b"v", producer_id=7, sequence=log.log_end_offset)
    log.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)


@pytest.fixture
def home() -> Home:
    return Home()


def test_files_are_removed_once_when_they_are_due(home: Home) -> None:
    early, late = [home.file("a"), home.file("b")], [home.file("c")]
    home.removal.remove_later(late, 150)
    home.removal.remove_later(early, 100)
    home.clock.at_ms = 5099
    home.removal.begin_removals()()
    assert all(home.disk.exists(path) for path in [*early, *late])
    home.clock.at_ms = 5100
    home.removal.begin_removals()()
    assert [home.disk.exists(path) for path in [*early, *late]] == [False, False, True]
    home.file("a")
    home.clock.at_ms = 6000
    home.removal.begin_removals()()
    assert [home.disk.exists(path) for path in [*early, *late]] == [True, False, False], "another file has the name"


def test_a_file_that_cannot_be_removed_does_not_hold_up_the_rest(home: Home) -> None:
    home.manager.delete(("t", 0))
    rest = home.file("rest")
    home.removal.remove_later([rest], 0)
    home.disk.fails["remove t-0"] = errno.EIO
    home.remove_at(5000 + DELAY_MS)
    assert not home.disk.exists(rest)


def test_new_names_are_durable_before_old_files_go(home: Home) -> None:
    home.events(lambda: home.removal.discard(home.log, after_names_in=SECOND))
    assert home.disk.events == ["rename t-0"]
    home.removal.remove_later([home.file("a")], 2 * DELAY_MS)
    assert home.remove_at(5000 + DELAY_MS - 1) == [], "nothing is due"
    assert home.remove_at(5000 + DELAY_MS) == ["sync one", "sync two", "remove t-0"]
    assert home.remove_at(5000 + 2 * DELAY_MS) == [], "nothing was renamed since"


def test_a_discarded_log_is_detached_and_nothing_of_it_is_written(home: Home) -> None:
    written: list[str] = []
    home.disk.on_change = lambda kind, path, *_: written.append(path) if kind == b"w" else None
    home.manager.logs.pop(("t", 0))
    home.removal.discard(home.log)
    assert home.log.is_detached and written == []
    assert not [path for path in home.manager.files._open if path.parent == FIRST / "t-0"]


@pytest.mark.parametrize("after", [None, SECOND])
def test_without_space_for_another_name_a_log_is_removed_at_once(home: Home, after: Path | None) -> None:
    home.disk.fails["rename t-0"] = errno.ENOSPC
    home.removal.discard(home.log, after_names_in=after)
    names = ["rename t-0", "sync two", "remove t-0"]
    assert home.disk.events == [name for name in names if after or not name.startswith("sync")]
    assert not home.disk.exists(FIRST / "t-0")
    assert home.remove_at(9000) == [], "nothing is left to remove"


@pytest.mark.parametrize(
    ("after", "broken", "failed"),
    [
        (None, "remove t-0", FIRST),
        (SECOND, "remove t-0", FIRST),
        (SECOND, "sync two", SECOND),
    ],
)
def test_a_removal_at_once_that_fails_names_the_directory(
    home: Home, after: Path | None, broken: str, failed: Path
) -> None:
    home.disk.fails = {"rename t-0": errno.ENOSPC, broken: errno.EIO}
    with pytest.raises(StorageError, match="t-0: ") as error:
        home.removal.discard(home.log, after_names_in=after)
    assert error.value.log_dir == failed
    assert home.disk.exists(FIRST / "t-0")


def test_a_rename_that_fails_names_the_directory(home: Home) -> None:
    home.disk.fails = {"rename t-0": errno.EIO}
    with pytest.raises(StorageError, match="t-0: ") as error:
        home.removal.discard(home.log, after_names_in=SECOND)
    assert error.value.log_dir == FIRST
