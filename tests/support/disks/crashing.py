"""A simulated disk on which the process dies before a chosen change: each change to a file or a name counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from odradek.common.ports import Buffer, File
from tests.sim.disk import SimDisk


class Crash(BaseException):
    """The process is gone; nothing in it may catch this."""


class CrashingDisk(SimDisk):
    """Counts changes; dies before the one that `dies_before` names, and before every one behind it."""

    changes = 0
    dies_before: int | None = None

    def about_to_change(self) -> None:
        self.changes += 1
        if self.dies_before is not None and self.changes >= self.dies_before:
            raise Crash

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        if create and not self.exists(path):
            self.about_to_change()
        return cast("File", CrashingFile(self, super().open(path, create=create, read_only=read_only)))

    def rename(self, source: Path, target: Path) -> None:
        if self.exists(source):
            self.about_to_change()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        if self.exists(path):
            self.about_to_change()
        super().remove(path)

    def sync_dir(self, path: Path) -> None:
        self.about_to_change()
        super().sync_dir(path)


class CrashingFile:
    """A file of that disk."""

    def __init__(self, disk: CrashingDisk, file: File) -> None:
        self._disk = disk
        self._file = file

    def write_at(self, position: int, chunks: Sequence[Buffer]) -> int:
        self._disk.about_to_change()
        return self._file.write_at(position, chunks)

    def truncate(self, size: int) -> None:
        self._disk.about_to_change()
        self._file.truncate(size)

    def sync(self) -> None:
        self._disk.about_to_change()
        self._file.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
