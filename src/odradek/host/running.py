"""The host that runs over some disks, as another process finds it: a locked file with its pid and its pages."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from odradek.common.errors import ConfigError, OdradekError

RUN_FILE = "odradek-host.pid"
LOCK_PATIENCE_S = 1.0
LOCK_PAUSE_S = 0.02


class NoHostError(OdradekError):
    """No host runs over this directory."""


@dataclass(frozen=True, slots=True)
class Running:
    """A running host: read its pages, and signal `pid` if these have the same pid.

    Attributes:
        user: the owner of the file.
    """

    pid: int
    pages: tuple[str, int]
    user: int

    def signal(self, number: int, answered: Mapping[str, Any]) -> None:
        """Send it a signal: to the process that its pages name, and to none of another user.

        Raises:
            NoHostError: it is another process by now, or the file is not the host's.
        """
        if answered.get("pid") != self.pid or _user_of(self.pid) not in (None, self.user):
            raise NoHostError(f"process {self.pid} is not the host at port {self.pages[1]}: it is sent no signal")
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            raise NoHostError(f"the host of process {self.pid} has ended") from None


class Claim:
    """The disks of a host that starts or runs: no other one gets them."""

    def __init__(self, files: Sequence[TextIO]) -> None:
        self._files = files

    def publish(self, pages: tuple[str, int]) -> None:
        """Let others find this process. Raises OSError."""
        for file in self._files:
            file.truncate(0)
            file.write(json.dumps({"pid": os.getpid(), "pages": list(pages)}))
            file.flush()


@contextmanager
def claimed(disks: Sequence[Path]) -> Iterator[Claim]:
    """Hold all disks of this host while the block lasts. Raises ConfigError where another host has one."""
    with contextlib.ExitStack() as stack:
        files = []
        for disk in disks:
            path = disk / RUN_FILE
            try:
                file = stack.enter_context(os.fdopen(_open(path), "a+", encoding="utf-8"))
            except OSError as error:
                raise ConfigError([f"{path}: {error.strerror or error}"]) from None
            if not _locked(file):
                raise ConfigError([f"{disk}: another `odradek host` runs there; {path} has its pid"])
            files.append(file)
        try:
            yield Claim(files)
        finally:
            for file in files:
                file.truncate(0)


def find_running(disk: Path) -> Running:
    """The host that runs over a disk. Raises NoHostError."""
    path = disk / RUN_FILE
    try:
        with path.open(encoding="utf-8") as file:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                raise _none_runs(disk)
            found = json.loads(file.read())
            user = os.fstat(file.fileno()).st_uid
            running = Running(int(found["pid"]), (str(found["pages"][0]), int(found["pages"][1])), user)
    except PermissionError:
        raise NoHostError(f"{path} is for the user of the host alone to read") from None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        raise _none_runs(disk) from None
    if running.pid <= 1:  # a signal would go to many
        raise NoHostError(f"{path} has no pid of a host")
    return running


def _none_runs(disk: Path) -> NoHostError:
    return NoHostError(f"no host runs in {disk}; start one with `odradek host --cores N --data {disk}`")


def _open(path: Path) -> int:
    """Open the file, accessible only to its user: every process that can open it can hold its lock. Raises OSError."""
    found = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(found).st_uid != os.geteuid():
            os.fchown(found, os.geteuid(), -1)
        os.fchmod(found, 0o600)
    except OSError:
        os.close(found)
        raise
    return found


def _locked(file: TextIO) -> bool:
    """Try to lock the file; returns whether this process has the lock.

    A search for a host holds it for a short time.
    """
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOCK_PAUSE_S)


def _user_of(pid: int) -> int | None:
    """The user of a process, if the system has it."""
    try:
        fields = Path(f"/proc/{pid}/status").read_text().partition("\nUid:")[2].split()
        return int(fields[1])
    except (OSError, ValueError, IndexError):
        return None
