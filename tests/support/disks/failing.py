"""A real disk that dies, or is full, when a test says so, directory by directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from odradek.common.ports import Buffer, File
from odradek.common.real_io import RealDisk


class FailingFile:
    """A real file whose disk may have died."""

    def __init__(self, file: File, check: Callable[[Path], None]) -> None:
        self._file = file
        self._check = check

    def write_at(self, position: int, chunks: Sequence[Buffer]) -> int:
        self._check(self._file.path)
        return self._file.write_at(position, chunks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class FailingDisk(RealDisk):
    """A real disk of which directories die when the test says so; writes fail with `code`, ENOSPC for a full one."""

    def __init__(self, code: int = errno.EIO) -> None:
        super().__init__(workers=1)
        self.code = code
        self.dead: set[Path] = set()

    def is_dead(self, path: Path) -> bool:
        return any(directory in path.parents for directory in self.dead)

    def check(self, path: Path) -> None:
        if self.is_dead(path):
            raise OSError(self.code, os.strerror(self.code))

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        if create:
            self.check(path)
        return cast("File", FailingFile(super().open(path, create=create, read_only=read_only), self.check))

    def make_dirs(self, path: Path) -> None:
        self.check(path)
        super().make_dirs(path)
