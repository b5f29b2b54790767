"""The real clock, disk, network and randomness of this machine.

Created only in `server/startup/process.py` and in tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import hmac
import os
import resource
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import SystemRandom
from typing import TypeVar

from odradek.common.ports import (
    Buffer,
    Disk,
    DiskUsage,
    File,
    Listener,
    MachineLimits,
    MakeAnswer,
    Mutex,
    ProtocolFactory,
    Worker,
    is_out_of_descriptors,
)
from odradek.common.real_worker import ProcessWorker

T = TypeVar("T")

# Linux refuses more buffers than this in one writev (IOV_MAX).
MAX_IO_VECTORS = 1024
# How long a worker thread waits for a descriptor that another lets go; the event loop does not.
_DESCRIPTOR_WAIT_S = 60.0
_WORKERS = "odradek-disk"
_DESCRIPTOR_PAUSE_S = 0.01
# Descriptors reserved for files, when sockets use all others; twice the threads of a disk are enough.
SPARE_DESCRIPTORS = 16
_RANDOM_POOL_BYTES = 4096
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")


class RealClock:
    """The system's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class RealRandom(SystemRandom):
    """The system's randomness, read some kilobytes at a time: a system call for each number would cost far more."""

    def __init__(self) -> None:
        super().__init__()
        self._pool = b""
        self._used = 0

    def random(self) -> float:
        return self.getrandbits(53) / (1 << 53)

    def getrandbits(self, k: int, /) -> int:
        if k < 0:
            raise ValueError("the number of bits must not be negative")
        size = (k + 7) // 8
        end = self._used + size
        if end > len(self._pool):
            self._pool, self._used, end = os.urandom(max(_RANDOM_POOL_BYTES, size)), 0, size
        number = int.from_bytes(self._pool[self._used : end], "little")
        self._used = end
        return number >> (size * 8 - k)


class RealFile:
    """A POSIX file, read and written by position so that no seek state is shared."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    @property
    def path(self) -> Path:
        return self._path

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_at(self, position: int, length: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        pieces = [data]
        read = len(data)
        while read < length:
            data = os.pread(self._fd, length - read, position + read)
            if not data:
                break
            pieces.append(data)
            read += len(data)
        return b"".join(pieces)

    def write_at(self, position: int, chunks: Sequence[Buffer]) -> int:
        total = sum(map(len, chunks))
        if len(chunks) <= MAX_IO_VECTORS:
            written = os.pwritev(self._fd, chunks, position)
            if written == total:
                return total
        else:
            written = 0
        rest = memoryview(b"".join(chunks))[written:]
        while rest:
            step = os.pwrite(self._fd, rest, position + written)
            written += step
            rest = rest[step:]
        return total

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd) if hasattr(os, "fdatasync") else os.fsync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def fileno(self) -> int | None:
        return self._fd


class _SpareDescriptors:
    """Descriptors that nothing uses, to be let go when the system has no other for a file. Threads share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: list[int] = []
        self._closed = False

    def open(self, path: Path | str, flags: int, beside: int | None = None) -> int:
        """Open a file; raises OSError, EMFILE only where no spare descriptor is left either.

        `beside` is the descriptor of the directory that the path begins at.
        """
        return self.lend(lambda: os.open(path, flags | os.O_CLOEXEC, 0o644, dir_fd=beside))

    def lend(self, call: Callable[[], T]) -> T:
        """Make a call of the system's that needs a descriptor; raises OSError as it does."""
        is_worker = threading.current_thread().name.startswith(_WORKERS)
        patience_s = _DESCRIPTOR_WAIT_S if is_worker else 0.0
        while True:
            try:
                result = call()
            except OSError as error:
                if not is_out_of_descriptors(error):
                    raise
                if not self._let_go():
                    if patience_s <= 0:
                        raise
                    patience_s -= _DESCRIPTOR_PAUSE_S
                    time.sleep(_DESCRIPTOR_PAUSE_S)
            else:
                if len(self._spare) < SPARE_DESCRIPTORS:
                    self._fill()
                return result

    def close(self) -> None:
        self._closed = True
        while self._let_go():
            pass

    __del__ = close

    def _let_go(self) -> bool:
        with self._lock:
            if not self._spare:
                return False
            os.close(self._spare.pop())
            return True

    def _fill(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            while len(self._spare) < SPARE_DESCRIPTORS and not self._closed:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


class RealDisk:
    """This machine's file systems."""

    def __init__(self, *, workers: int = 8) -> None:
        self._executor = ThreadPoolExecutor(max_workers=workers, thread_name_prefix=_WORKERS)
        self._spares = _SpareDescriptors()

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        return RealFile(path, self._spares.open(path, flags))

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_dir(self, path: Path) -> bool:
        return path.is_dir()

    def is_link(self, path: Path) -> bool:
        return path.is_symlink()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def list_dir(self, path: Path) -> list[str]:
        # iterdir creates a Path for each name, which takes half of the time of a start with thousands of logs.
        return sorted(self._spares.lend(lambda: os.listdir(path)))  # noqa: PTH208 - the names alone are wanted

    def is_taken(self, path: Path) -> bool:
        return os.path.lexists(path)

    def make_dirs(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        if path.exists():
            shutil.rmtree(path)

    def sync_dir(self, path: Path) -> None:
        fd = self._spares.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def hold(self, directory: Path) -> Disk:
        return HeldDisk(self, directory)

    def usage(self, path: Path) -> DiskUsage:
        stat = os.statvfs(path)
        return DiskUsage(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)

    def lock(self, path: Path) -> Callable[[], None]:
        fd = self._spares.open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise
        os.ftruncate(fd, 0)
        os.write(fd, b"%d\n" % os.getpid())
        return lambda: os.close(fd)

    def write_back(self) -> None:
        os.sync()

    def mutex(self) -> Mutex:
        return threading.Lock()

    async def run_blocking(self, work: Callable[[], T]) -> T:
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: a cancelled caller waits until its files are no longer in use.
            await asyncio.wait([future])
            raise

    async def start_worker(self, make: MakeAnswer, argument: object, *, bytes_per_second: float) -> Worker:
        return await ProcessWorker.start(make, argument, bytes_per_second=bytes_per_second)

    def close(self) -> None:
        """Wait for work under way and end the worker threads."""
        self._executor.shutdown(wait=True)
        self._spares.close()


class HeldDisk(RealDisk):
    """A real disk on which paths in one directory are resolved in the directory that had this path at first.

    Subdirectories are not supported: logs have only files.
    """

    def __init__(self, disk: RealDisk, directory: Path) -> None:
        self._executor, self._spares = disk._executor, disk._spares
        self._directory = directory
        self._fd = -1
        self._fd = self._spares.open(directory, os.O_RDONLY | os.O_DIRECTORY)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def _at(self, path: Path) -> tuple[str | Path, int | None]:
        """The path for a system call, and the descriptor of its directory."""
        return (path.name, self._fd) if path.parent == self._directory else (path, None)

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        name, beside = self._at(path)
        return RealFile(path, self._spares.open(name, flags, beside))

    def exists(self, path: Path) -> bool:
        name, beside = self._at(path)
        try:
            os.stat(name, dir_fd=beside)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: Path) -> int:
        name, beside = self._at(path)
        return os.stat(name, dir_fd=beside).st_size

    def list_dir(self, path: Path) -> list[str]:
        if path != self._directory:
            return super().list_dir(path)
        return sorted(os.listdir(self._fd))  # noqa: PTH208 - a descriptor has no path

    def rename(self, source: Path, target: Path) -> None:
        (old, left), (new, entered) = self._at(source), self._at(target)
        os.rename(old, new, src_dir_fd=left, dst_dir_fd=entered)

    def remove(self, path: Path) -> None:
        name, beside = self._at(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=beside)

    def sync_dir(self, path: Path) -> None:
        if path == self._directory:
            os.fsync(self._fd)
        else:
            super().sync_dir(path)


class RealListener:
    """One bound asyncio server."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        server = self._server
        is_asyncios: bool = isinstance(server, asyncio.base_events.Server)  # else it is uvloop's
        if is_asyncios:
            # A connection that was accepted in this turn of the loop is made in the next. If the server were closed by
            # then, asyncio would forget the socket, open, and its peer would wait on it.
            loop = server.get_loop()
            for sock in server.sockets:
                loop.remove_reader(sock.fileno())
            loop.call_soon(server.close)
        else:
            server.close()


class RealNetwork:
    """TCP through the running event loop."""

    async def listen(
        self, factory: ProtocolFactory, host: str, port: int, *, tls: ssl.SSLContext | None = None, backlog: int = 50
    ) -> Listener:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(factory, host or None, port, ssl=tls, backlog=backlog, reuse_address=True)
        return RealListener(server)

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        loop = asyncio.get_running_loop()
        if tls is None:
            return await loop.create_connection(factory, host, port)
        from odradek.common.real_tls import start_tls  # as `ssl` itself, where there is TLS

        transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
        protocol = factory()
        secured = await start_tls(transport, protocol, tls, server_hostname=host)
        if secured is None:
            raise ConnectionResetError("the peer ended the connection amid the handshake")
        protocol.connection_made(secured)
        return secured, protocol


def machine_id() -> str:
    """The id of this machine: 32 digits from systemd's id, else its host name.

    systemd's id is confidential: machine-id(5) recommends a keyed hash of it.
    """
    try:
        found = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        found = ""
    if not found or found == "uninitialized":
        return socket.gethostname()
    return hmac.new(found.encode(), b"odradek broker.host", hashlib.sha256).hexdigest()[:32]


def machine_limits() -> MachineLimits:
    """The limits of this process as they are now."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_cgroup_memory(_OWN_CGROUPS, _CGROUPS)]
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY:
        found.append(space)
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MachineLimits(min(found), None if descriptors == resource.RLIM_INFINITY else descriptors)


def open_descriptors() -> int:
    """The number of open descriptors of this process; 0 if unknown."""
    try:
        return len(os.listdir("/dev/fd")) - 1  # noqa: PTH208 - the number alone is wanted
    except OSError:
        return 0


def _cgroup_memory(own: Path, root: Path) -> Iterator[int]:
    """The limits of the control groups around a process, of either version; "max" is no limit."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, file = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        group = top / name.lstrip("/")
        for directory in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):
                yield int((directory / file).read_text())
            if directory == top:
                break
