"""A disk that loses bytes that were not synced, as a machine that loses power does, and that fails as disks do.

Every file has the bytes that readers see (volatile) and those on the platter (durable), with the writes between the two
in order. Names are in directories and have the same two states: creating, renaming and removing a file or a directory
is durable only after `sync_dir` of the directory of the name. `lose_power` draws the writes that survive: a prefix of
them, torn at sectors, sometimes a later one without an earlier one, sometimes a length without its bytes (zeros); names
likewise, see `inodes`.

A failed sync drops the writes that it should have made durable, though readers still see them, as Linux does with a
page that could not be written.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

from odradek.common.ports import Buffer, Disk, DiskUsage, File, MakeAnswer, Mutex, Worker
from odradek.record.batch import HEADER_BYTES
from odradek.record.reader import read_batches
from tests.sim.inodes import SECTOR_BYTES as SECTOR_BYTES
from tests.sim.inodes import Directory, Inode, Node, Tree

T = TypeVar("T")

UNLIMITED_BYTES = 1 << 40


@dataclass
class DiskFaults:
    """The probabilities of faults, each for one operation.

    Attributes:
        names_are_dropped: the names that a failed sync of a directory should have made durable are lost for good,
            though readers see them and the next sync succeeds; without it, the next sync makes them durable. A file
            system with a journal does one or the other: it writes its journal later, or refuses all further writes.
        too_many_files: a file cannot be opened, as sockets hold all descriptors.
        flips_records: bits flip in the records of logs alone, under their checksums. A header that is read by itself,
            or a checkpoint, has none in Kafka's formats, and every broker believes what it reads there.
    """

    write_error: float = 0.0
    short_write: float = 0.0
    sync_error: float = 0.0
    read_error: float = 0.0
    truncate_error: float = 0.0
    rename_error: float = 0.0
    sync_dir_error: float = 0.0
    names_are_dropped: bool = False
    flipped_bit: float = 0.0
    flips_records: bool = False
    too_many_files: float = 0.0
    slow_sync: float = 0.0
    sync_ms: tuple[float, float] = (0.1, 5.0)
    slow_sync_ms: tuple[float, float] = (100.0, 2000.0)
    capacity_bytes: int = UNLIMITED_BYTES


class SimDisk:
    """The disk of one host. It outlives crashes of its process; `lose_power` is the machine's.

    Args:
        random: draws faults and the writes that survive.
        faults: the rates; they are replaced in a run when the faults end.
        now_ms: the wall clock, for modification times.
    """

    def __init__(self, random: Random, faults: DiskFaults, now_ms: Callable[[], int]) -> None:
        self._random = random
        self.faults = faults
        self._now_ms = now_ms
        self._tree = Tree()
        self._locks: dict[Path, object] = {}
        self.generation = 0
        self.operations = 0
        # Whether a fault that was drawn is to happen.
        self.happens: Callable[[str], bool] = lambda fault: True
        # Gets every write (kind, path, position, bytes), cut, sync, rename and removal, so that runs can be compared.
        self.on_change: Callable[[bytes, str, int, Buffer], None] = lambda kind, path, position, data: None
        self.injected: dict[str, int] = {}

    # -- faults -------------------------------------------------------------------------------------------------

    def hit(self, fault: str, rate: float) -> bool:
        """Whether this operation fails; counted by name."""
        self.operations += 1
        if rate and self._random.random() < rate and self.happens(fault):
            self.injected[fault] = self.injected.get(fault, 0) + 1
            return True
        return False

    def chance(self) -> float:
        """A number from 0 on, less than 1."""
        return self._random.random()

    def draw(self, below: int) -> int:
        """A number from 0 on, less than `below`."""
        return self._random.randrange(below)

    def process_died(self) -> None:
        """kill -9: descriptors and locks are gone, the page cache stays."""
        self.generation += 1
        self._locks.clear()

    def lose_power(self) -> None:
        """The machine went dark: only what was synced is certain."""
        self.process_died()
        self._tree.lose_power(self._random)

    def snapshot(self) -> dict[Path, bytes]:
        """The bytes of all files as readers see them: for a restart with an older disk, for checks after the run."""
        return {path: bytes(inode.seen) for path, inode in self._tree.files().items()}

    def directories(self) -> list[Path]:
        """Every directory, for a restart with an older disk."""
        return self._tree.directories()

    def uncertain(self) -> set[Path]:
        """The paths that a loss of power may change: names, and files, that are not durable yet."""
        return self._tree.uncertain()

    def restore(self, files: dict[Path, bytes], directories: Sequence[Path] = ()) -> None:
        """Put back an older state of the disk, as a restored backup does; empty, it is another disk."""
        self.process_died()
        self._tree.put(files, list(directories))

    def seen(self, path: Path) -> bytearray:
        """The bytes of one file as readers see them, not to be kept: for invariants."""
        return self._inode(path).seen

    def used_bytes(self) -> int:
        return sum(len(inode.seen) for inode in self._tree.files().values())

    # -- the port -----------------------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        node = self._tree.find(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
            parent = self._directory(path.parent)
            if self.faults.capacity_bytes < UNLIMITED_BYTES and self.used_bytes() >= self.faults.capacity_bytes:
                raise self._full(path)
            self._need_descriptor(path)
            node = Inode(modified_ms=self._now_ms())
            self._tree.change((parent, path.name, node))
        else:
            self._need_descriptor(path)
        return SimFile(self, path, node, read_only=read_only)

    def exists(self, path: Path) -> bool:
        return self._tree.find(path) is not None

    def is_dir(self, path: Path) -> bool:
        return self._tree.directory(path) is not None

    def is_link(self, path: Path) -> bool:
        return False

    def size(self, path: Path) -> int:
        return len(self._inode(path).seen)

    def modified_ms(self, path: Path) -> int:
        return self._inode(path).modified_ms

    def list_dir(self, path: Path) -> list[str]:
        return sorted(self._directory(path).seen)

    def is_taken(self, path: Path) -> bool:
        return self.exists(path)

    def make_dirs(self, path: Path) -> None:
        for each in [*reversed(path.parents), path]:
            node = self._tree.find(each)
            if node is None:
                self._tree.change((self._directory(each.parent), each.name, Directory()))
            elif not isinstance(node, Directory):
                raise FileExistsError(errno.EEXIST, "Not a directory", str(each))

    def rename(self, source: Path, target: Path) -> None:
        node = self._node(source)
        if self.hit("rename error", self.faults.rename_error):
            raise OSError(errno.EIO, "simulated error of a rename", str(source))
        before = self._tree.find(target)
        if isinstance(before, Directory) and before.seen:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(target))
        left, entered = self._directory(source.parent), self._directory(target.parent)
        self.on_change(b"m", str(source), 0, str(target).encode())
        self._tree.change((left, source.name, None), (entered, target.name, node))

    def remove(self, path: Path) -> None:
        if isinstance(self._tree.find(path), Inode):
            self.on_change(b"d", str(path), 0, b"")
            self._tree.change((self._directory(path.parent), path.name, None))

    def remove_tree(self, path: Path) -> None:
        directory = self._tree.directory(path)
        if directory is None:
            return
        for name in list(directory.seen):
            self.remove(path / name)
            self.remove_tree(path / name)
        self._tree.change((self._directory(path.parent), path.name, None))

    def sync_dir(self, path: Path) -> None:
        self._need_descriptor(path)
        self.sync_held_dir(path)

    def sync_held_dir(self, path: Path) -> None:
        """Sync a directory of which there is a descriptor."""
        directory = self._directory(path)
        if self.hit("directory sync error", self.faults.sync_dir_error):
            if self.faults.names_are_dropped:
                self._tree.discard(directory)
            raise OSError(errno.EIO, "simulated fsync error of a directory", str(path))
        self._tree.sync(directory)

    def hold(self, directory: Path) -> Disk:
        self._need_descriptor(directory)
        return cast("Disk", HeldSimDisk(self, directory, self._directory(directory)))

    def usage(self, path: Path) -> DiskUsage:
        return DiskUsage(self.faults.capacity_bytes, max(0, self.faults.capacity_bytes - self.used_bytes()))

    def lock(self, path: Path) -> Callable[[], None]:
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked", str(path))
        token = self._locks[path] = object()

        def release() -> None:
            if self._locks.get(path) is token:
                del self._locks[path]

        return release

    def write_back(self) -> None:
        """Bytes that are written back are not certain before they are synced."""

    def mutex(self) -> Mutex:
        return SimMutex()

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """Blocking work takes simulated time, before and after it touches the disk, so that others run meanwhile."""
        low, high = self.faults.sync_ms
        if self.hit("slow sync", self.faults.slow_sync):
            low, high = self.faults.slow_sync_ms
        delay_s = self._random.uniform(low, high) / 1000
        try:
            await asyncio.sleep(delay_s / 2)
        except asyncio.CancelledError:
            # Work that was begun is done, also when its caller is gone.
            with contextlib.suppress(Exception):
                work()
            raise
        result = work()
        await asyncio.sleep(delay_s / 2)
        return result

    async def start_worker(self, make: MakeAnswer, argument: object, *, bytes_per_second: float) -> Worker:
        await self.run_blocking(lambda: None)  # a process takes its time to begin
        return SimWorker(self, make(self, lambda size_bytes: None, argument))

    # -- inside -------------------------------------------------------------------------------------------------

    def _need_descriptor(self, path: Path) -> None:
        if self.faults.too_many_files and self.hit("too many files", self.faults.too_many_files):
            raise OSError(errno.EMFILE, "simulated want of descriptors", str(path))

    def _node(self, path: Path) -> Node:
        node = self._tree.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return node

    def _inode(self, path: Path) -> Inode:
        node = self._node(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
        return node

    def _directory(self, path: Path) -> Directory:
        directory = self._tree.directory(path)
        if directory is None:
            raise FileNotFoundError(errno.ENOENT, "No such directory", str(path))
        return directory

    def _full(self, path: Path) -> OSError:
        self.injected["no space"] = self.injected.get("no space", 0) + 1
        return OSError(errno.ENOSPC, "simulated full disk", str(path))


class HeldSimDisk:
    """A disk on which the names in one directory mean those in what had its name at first, wherever that is now."""

    def __init__(self, disk: SimDisk, directory: Path, node: Directory) -> None:
        self._disk = disk
        self._directory = directory
        self._node = node

    def _now(self, path: Path) -> Path:
        """The path that a name in the directory has now; one that nothing has where the directory is gone."""
        if self._directory not in (path, path.parent):
            return path
        there = self._directory
        if self._disk._tree.directory(there) is not self._node:
            named = (each for each in self._disk.directories() if self._disk._tree.directory(each) is self._node)
            there = next(named, Path("/removed"))
        return there / path.relative_to(self._directory)

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        return self._disk.open(self._now(path), create=create, read_only=read_only)

    def exists(self, path: Path) -> bool:
        return self._disk.exists(self._now(path))

    def size(self, path: Path) -> int:
        return self._disk.size(self._now(path))

    def list_dir(self, path: Path) -> list[str]:
        return self._disk.list_dir(self._now(path))

    def rename(self, source: Path, target: Path) -> None:
        self._disk.rename(self._now(source), self._now(target))

    def remove(self, path: Path) -> None:
        self._disk.remove(self._now(path))

    def sync_dir(self, path: Path) -> None:
        if path == self._directory:
            self._disk.sync_held_dir(self._now(path))
        else:
            self._disk.sync_dir(path)


class SimMutex:
    """Work off the loop is done in one piece, so that nothing ever waits for it."""

    def __init__(self) -> None:
        self._is_held = False

    def acquire(self, blocking: bool = True) -> bool:
        assert not (self._is_held and blocking), "one thread would wait for itself"
        was_held, self._is_held = self._is_held, True
        return not was_held

    def release(self) -> None:
        self._is_held = False


class SimWorker:
    """Answers inline, in simulated time; a crash of the process between two questions is one of the worker too."""

    def __init__(self, disk: SimDisk, answer: Callable[[Any], Any]) -> None:
        self._disk = disk
        self._answer = answer

    async def call(self, argument: object) -> Any:
        return await self._disk.run_blocking(lambda: self._answer(argument))

    async def close(self) -> None:
        """A process takes its time to end."""
        await self._disk.run_blocking(lambda: None)


class SimFile:
    """An open file; unusable once its process died."""

    __slots__ = ("_disk", "_generation", "_inode", "_path", "_read_only")

    def __init__(self, disk: SimDisk, path: Path, inode: Inode, *, read_only: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._read_only = read_only
        self._generation = disk.generation

    @property
    def path(self) -> Path:
        return self._path

    def size(self) -> int:
        return len(self._inode.seen)

    def read_at(self, position: int, length: int) -> bytes:
        self._check()
        faults = self._disk.faults
        if self._disk.hit("read error", faults.read_error):
            raise OSError(errno.EIO, "simulated read error", str(self._path))
        data = bytes(self._inode.seen[position : position + length])
        if not faults.flipped_bit or self._disk.chance() >= faults.flipped_bit:
            return data
        places = self._may_flip(position, data)
        if not places or not self._disk.hit("flipped bit", 1.0):
            return data
        damaged = bytearray(data)
        place = places[self._disk.draw(len(places))]
        damaged[place[self._disk.draw(len(place))]] ^= 1 << self._disk.draw(8)
        return bytes(damaged)

    def _may_flip(self, position: int, data: bytes) -> list[range]:
        """The ranges of the read bytes in which a bit may flip."""
        if not self._disk.faults.flips_records:
            return [range(len(data))] if data else []
        if self._path.suffix != ".log":
            return []
        found = []
        for start, header in read_batches(bytes(self._inode.seen)):
            first, last = start + HEADER_BYTES - position, start + header.size_bytes - position
            if inside := range(max(first, 0), min(last, len(data))):
                found.append(inside)
        return found

    def write_at(self, position: int, chunks: Sequence[Buffer]) -> int:
        self._check()
        assert not self._read_only, f"write to {self._path}, which is open for reading"
        data = b"".join(chunks)
        self._disk.on_change(b"w", str(self._path), position, data)
        growth = position + len(data) - len(self._inode.seen)
        capacity = self._disk.faults.capacity_bytes
        room = capacity - self._disk.used_bytes() if growth > 0 and capacity < UNLIMITED_BYTES else growth
        if growth > room:
            fits = max(0, len(data) - (growth - room))
            self._inode.write(position, data[:fits])
            raise self._disk._full(self._path)
        faults = self._disk.faults
        if self._disk.hit("write error", faults.write_error):
            self._inode.write(position, data[: self._disk.draw(len(data) + 1)])
            raise OSError(errno.EIO, "simulated write error", str(self._path))
        if len(data) > 1 and self._disk.hit("short write", faults.short_write):
            # The rest of the port's `write_at`: two system calls, and a power loss may keep the first alone.
            first = 1 + self._disk.draw(len(data) - 1)
            self._inode.write(position, data[:first])
            self._inode.write(position + first, data[first:])
        else:
            self._inode.write(position, data)
        self._inode.modified_ms = self._disk._now_ms()
        return len(data)

    def truncate(self, size: int) -> None:
        self._check()
        if self._disk.hit("truncate error", self._disk.faults.truncate_error):
            raise OSError(errno.EIO, "simulated error of a truncation", str(self._path))
        self._disk.on_change(b"c", str(self._path), size, b"")
        self._inode.truncate(size)

    def sync(self) -> None:
        self._check()
        self._disk.on_change(b"s", str(self._path), len(self._inode.seen), b"")
        if self._disk.hit("sync error", self._disk.faults.sync_error):
            self._inode.pending.clear()
            raise OSError(errno.EIO, "simulated fsync error", str(self._path))
        self._inode.sync()

    def close(self) -> None:
        """Closing syncs nothing."""

    def fileno(self) -> int | None:
        return None

    def _check(self) -> None:
        if self._generation != self._disk.generation:
            raise OSError(errno.EBADF, "the process that opened this file died", str(self._path))
