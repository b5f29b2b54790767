"""A real disk that dies when a test says so, directory by directory."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from odradek.common.ports import Buffer, File
from odradek.common.real_io import RealDisk


class FailingFile:
    """A real file whose disk may have died."""

    def __init__(self, file: File, is_dead: Callable[[Path], bool]) -> None:
        self._file = file
        self._is_dead = is_dead

    def write_at(self, position: int, chunks: Sequence[Buffer]) -> int:
        if self._is_dead(self._file.path):
            raise OSError(errno.EIO, "Input/output error")
        return self._file.write_at(position, chunks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class FailingDisk(RealDisk):
    """A real disk of which directories die when the test says so."""

    def __init__(self) -> None:
        super().__init__(workers=1)
        self.dead: set[Path] = set()

    def is_dead(self, path: Path) -> bool:
        return any(directory in path.parents for directory in self.dead)

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        if create and self.is_dead(path):
            raise OSError(errno.EIO, "Input/output error")
        file: Any = FailingFile(super().open(path, create=create, read_only=read_only), self.is_dead)
        return file  # type: ignore[no-any-return]

    def make_dirs(self, path: Path) -> None:
        if self.is_dead(path):
            raise OSError(errno.EIO, "Input/output error")
        super().make_dirs(path)
