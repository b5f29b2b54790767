"""The host that runs over some disks, as another process finds it: a locked file with its pid and its pages."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from odradek.common.errors import ConfigError, OdradekError

RUN_FILE = "odradek-host.pid"


class NoHostError(OdradekError):
    """No host runs over this directory."""


@dataclass(frozen=True, slots=True)
class Running:
    """A host that runs: signal `pid`, and ask its pages."""

    pid: int
    pages: tuple[str, int]


@contextmanager
def claimed(disks: Sequence[Path], pages: tuple[str, int]) -> Iterator[None]:
    """Hold all disks of this host while the block lasts. Raises ConfigError where another host has one."""
    with contextlib.ExitStack() as stack:
        files = []
        for disk in disks:
            path = disk / RUN_FILE
            file = stack.enter_context(path.open("a+", encoding="utf-8"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigError([f"{disk}: another `odradek host` runs there; {path} has its pid"]) from None
            files.append(file)
        for file in files:
            file.truncate(0)
            file.write(json.dumps({"pid": os.getpid(), "pages": list(pages)}))
            file.flush()
        try:
            yield
        finally:
            for file in files:
                file.truncate(0)


def find_running(disk: Path) -> Running:
    """The host that runs over a disk. Raises NoHostError."""
    try:
        with (disk / RUN_FILE).open(encoding="utf-8") as file:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                raise NoHostError(f"no host runs in {disk}; start one with `odradek host --cores N --data {disk}`")
            found = json.loads(file.read())
            return Running(int(found["pid"]), (str(found["pages"][0]), int(found["pages"][1])))
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        raise NoHostError(f"no host runs in {disk}; start one with `odradek host --cores N --data {disk}`") from None
