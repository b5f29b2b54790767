"""The world as the broker may see it: clock, disk, network.

Everything that touches time, files or sockets takes one of these ports as an argument, so that the same broker runs
on a real machine (`real_io`) and inside the deterministic simulator. Randomness is a seeded `random.Random`, passed the
same way. Nothing here performs IO; this module must not import anything of the project but `common`.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
    """Two clocks: one that people read, and one that rules may be built on."""

    def now_ms(self) -> int:
        """Wall clock, ms since 1970 UTC. May jump; no correctness rule reads it."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; only differences mean something."""
        ...


# Nanoseconds that go while this process works; only differences mean something.
Timer = Callable[[], int]


def no_timer() -> int:
    """A timer for simulations, in which work takes no time."""
    return 0


class File(Protocol):
    """One open file. All positions and lengths are bytes. Every method raises OSError when the disk does."""

    @property
    def path(self) -> Path: ...

    def size(self) -> int:
        """Current length in bytes."""
        ...

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; shorter only at the end of the file."""
        ...

    def write_at(self, position: int, chunks: Sequence[Buffer]) -> int:
        """Write all chunks, one after the other, from `position` on; returns the bytes written, always all of them.

        A short write by the system is continued; a failed one raises, and what is on disk past `position` is then
        unknown.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Block until contents and length are durable (fdatasync); call through `Disk.run_blocking`, not on the loop.

        A failure means that data is gone: the caller takes the log directory offline and never retries.
        """
        ...

    def close(self) -> None: ...

    def fileno(self) -> int | None:
        """The descriptor for sendfile; None in the simulator."""
        ...


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes of the file system that a path is on."""

    total_bytes: int
    usable_bytes: int


class Mutex(Protocol):
    """Held by one thread at a time: by the loop, or by work off the loop."""

    def acquire(self, blocking: bool = True) -> bool:
        """Whether it is held now; with `blocking` it waits until it is."""
        ...

    def release(self) -> None: ...


class Worker(Protocol):
    """A process, or its simulation, that runs calls one after the other."""

    async def call(self, argument: object) -> Any:
        """Return the result of the worker's function for an argument, or raise its error.

        Raises:
            WorkerError: the worker has ended.
        """
        ...

    async def close(self) -> None:
        """End it, even during a call; its files are closed."""
        ...


class WorkerError(Exception):
    """A worker ended unexpectedly, or failed in a way that it could not report."""


# Called by a worker after each read or write with its bytes: it sleeps to keep the rate.
Pause = Callable[[int], None]
MakeAnswer = Callable[["Disk", Pause, Any], Callable[[Any], Any]]


class Disk(Protocol):
    """A file system. Names are durable only after `sync_dir` of the directory that holds them."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file for reading and writing (or only reading); `create` creates a missing file."""
        ...

    def exists(self, path: Path) -> bool: ...

    def is_dir(self, path: Path) -> bool: ...

    def is_link(self, path: Path) -> bool:
        """Whether a name leads elsewhere."""
        ...

    def size(self, path: Path) -> int:
        """Length of a file in bytes; raises FileNotFoundError."""
        ...

    def modified_ms(self, path: Path) -> int:
        """Last modification, wall-clock ms."""
        ...

    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, sorted; raises FileNotFoundError."""
        ...

    def is_taken(self, path: Path) -> bool:
        """Whether anything has this name, a link to nothing included."""
        ...

    def make_dirs(self, path: Path) -> None:
        """Create a directory and its missing parents; no error where it exists."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Atomically rename `source` to `target`, replacing an existing file."""
        ...

    def remove(self, path: Path) -> None:
        """Remove one file; no error where it is missing."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all below it; no error where it is missing."""
        ...

    def sync_dir(self, path: Path) -> None:
        """Make the names in a directory durable."""
        ...

    def hold(self, directory: Path) -> Disk:
        """The same disk, on which the path of one directory always means the present directory.

        For work off the event loop: the loop may rename or remove the directory, and create another one with its name.
        Paths of files in it still mean files of the held directory, or none. It is held as long as the returned object
        exists. Raises FileNotFoundError, OSError.
        """
        ...

    def usage(self, path: Path) -> DiskUsage: ...

    def lock(self, path: Path) -> Callable[[], None]:
        """Take an exclusive lock file for this process; returns the release. Raises BlockingIOError if it is taken."""
        ...

    def write_back(self) -> None:
        """Write all dirty pages: a hint that makes many later syncs cheap. Blocks, without a guarantee."""
        ...

    def mutex(self) -> Mutex:
        """A new mutex, for state that the event loop and work off the loop change."""
        ...

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """Run blocking work without stopping the event loop; the simulator runs it inline, on simulated time.

        Work that has begun is completed: a cancelled caller waits for it.
        """
        ...

    async def start_worker(self, make: MakeAnswer, argument: object, *, bytes_per_second: float) -> Worker:
        """Start a worker for long computations: on a real machine a process, so the event loop does not wait for it.

        Args:
            make: a function of a module, called once by the worker with its disk, its pause and the argument; it
                returns the function for calls. Arguments and results are plain values that can be pickled.
            bytes_per_second: the limit of reads and writes; the simulator, which runs calls inline, ignores it.
        """
        ...


def is_disk_full(error: OSError) -> bool:
    """Whether only space, quota or descriptors are exhausted: nothing is lost, and a retry may succeed."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT) or is_out_of_descriptors(error)


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Whether this process, or the machine, has as many files and sockets open as it may: no fault of a disk."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def ignore_disk_full(step: Callable[[], None]) -> None:
    """Run a step that may be omitted while there is no space; raises OSError for anything else."""
    try:
        step()
    except OSError as error:
        if not is_disk_full(error):
            raise


def read_file(disk: Disk, path: Path) -> bytes:
    """All bytes of a small file (checkpoints, snapshots of state). Raises FileNotFoundError."""
    file = disk.open(path, read_only=True)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def make_dirs_durably(disk: Disk, path: Path) -> None:
    """Create a directory and its missing parents, each with its name durable in the one above; blocks."""
    missing = [each for each in (path, *path.parents) if not disk.is_dir(each)]
    disk.make_dirs(path)
    for each in reversed(missing):
        disk.sync_dir(each.parent)


def probe_space(disk: Disk, path: Path, size_bytes: int) -> None:
    """Write and sync a file of that size, and remove it: whether so much fits. Blocks. Raises OSError."""
    try:
        file = disk.open(path, create=True)
        try:
            file.write_at(0, [bytes(size_bytes)])
            file.sync()
        finally:
            file.close()
    finally:
        disk.remove(path)


def write_file_durably(disk: Disk, path: Path, data: Buffer, *, through: str = ".tmp") -> None:
    """Replace a small file so that after a crash it holds all of the old bytes or all of the new ones.

    Order: write beside it (`through` is that file's suffix), fsync, rename, fsync the directory. Blocks; call it off
    the loop, or before serving.
    """
    temporary = path.with_name(path.name + through)
    disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.write_at(0, [data])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_dir(path.parent)


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """The limits of this process; None if there is no limit, or it is unknown.

    Attributes:
        memory_bytes: of the machine, or of the container around the process.
        descriptors: files and sockets that may be open at one time.
    """

    memory_bytes: int | None = None
    descriptors: int | None = None


NO_LIMITS = MachineLimits()

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Listener(Protocol):
    """A bound server socket."""

    @property
    def port(self) -> int:
        """The bound port; chosen by the system if 0 was requested."""
        ...

    def close(self) -> None:
        """Stop accepting; connections that are open stay open."""
        ...


class Network(Protocol):
    """Byte streams between hosts, in the shape of asyncio's transports and protocols."""

    async def listen(
        self, factory: ProtocolFactory, host: str, port: int, *, tls: ssl.SSLContext | None = None, backlog: int = 50
    ) -> Listener:
        """Accept connections; raises OSError where the address cannot be bound."""
        ...

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection; raises OSError if it is refused or unreachable."""
        ...
