"""A disk that forgets what was not synced, as a machine that loses power does.

Every file has what readers see (volatile) and what is on the platter (durable), with the writes between the two in
order. Names live in directories and have the same two states: creating, renaming and removing a file is durable only
after `sync_dir` of its directory. `lose_power` draws what survives: a prefix of the writes, torn at sectors, sometimes
a later one without an earlier one, sometimes a length without its bytes (zeros); names likewise.

A failed sync drops the writes that it should have kept, though readers still see them: what Linux does to a page
that could not be written.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from odradek.common.ports import Buffer, DiskUsage, File, MakeAnswer, Worker

T = TypeVar("T")

SECTOR_BYTES = 512
UNLIMITED_BYTES = 1 << 40


@dataclass
class DiskFaults:
    """How often what goes wrong; all rates are probabilities for one operation."""

    write_error: float = 0.0
    sync_error: float = 0.0
    read_error: float = 0.0
    flipped_bit: float = 0.0
    slow_sync: float = 0.0
    sync_ms: tuple[float, float] = (0.1, 5.0)
    slow_sync_ms: tuple[float, float] = (100.0, 2000.0)
    capacity_bytes: int = UNLIMITED_BYTES


@dataclass
class Write:
    """One change to a file's bytes that is not durable yet; `data` None is a truncation to `position`."""

    position: int
    data: bytes | None


@dataclass
class Inode:
    """The bytes of one file, whatever its names."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)
    modified_ms: int = 0

    def write(self, position: int, data: bytes) -> None:
        apply_write(self.seen, Write(position, data))
        self.pending.append(Write(position, data))

    def truncate(self, size: int) -> None:
        apply_write(self.seen, Write(size, None))
        self.pending.append(Write(size, None))

    def survive(self, random: Random) -> None:
        """Become what a power loss leaves."""
        content = bytearray(self.durable)
        kept = random.randint(0, len(self.pending))
        for number, write in enumerate(self.pending):
            if number < kept:
                apply_write(content, write)
            elif number == kept and write.data is not None:
                apply_write(content, torn(write, bytes(content), random))
            elif random.random() < 0.1:
                apply_write(content, write)
        self.seen = content
        self.durable = bytearray(content)
        self.pending.clear()

    def sync(self) -> None:
        """Make durable what is pending; writes that an earlier failed sync dropped stay dropped, though still seen."""
        for write in self.pending:
            apply_write(self.durable, write)
        self.pending.clear()


def apply_write(content: bytearray, write: Write) -> None:
    """Change bytes as the system call did; a gap is filled with zeros."""
    if write.data is None:
        if write.position < len(content):
            del content[write.position :]
        else:
            content.extend(bytes(write.position - len(content)))
        return
    if write.position > len(content):
        content.extend(bytes(write.position - len(content)))
    content[write.position : write.position + len(write.data)] = write.data


def torn(write: Write, content: bytes, random: Random) -> Write:
    """A write of which only whole sectors from its front arrived, with or without the length of the rest, or all but
    its front, or its length without its bytes, or nothing.

    Bytes that were there before stay what they were or become what was written: only new length can be empty.
    """
    assert write.data is not None, "a truncation is done or not"
    shape = random.random()
    if shape < 0.2:
        end = write.position + len(write.data)
        return Write(write.position, content[write.position : end].ljust(len(write.data), b"\0"))
    first_boundary = SECTOR_BYTES - write.position % SECTOR_BYTES
    boundary = random.choice([0, *range(first_boundary, len(write.data), SECTOR_BYTES)])
    before = content[write.position : write.position + len(write.data)].ljust(len(write.data), b"\0")
    if shape < 0.4:
        return Write(write.position, write.data[:boundary] + before[boundary:])
    if shape < 0.5:
        return Write(write.position, before[:boundary] + write.data[boundary:])
    return Write(write.position, write.data[:boundary])


@dataclass
class NameChange:
    """One change to a directory that is not durable yet; `inode` None removes the name."""

    path: Path
    inode: Inode | None
    # A rename takes a name away and gives another one at once: both or neither.
    joined_with_next: bool = False


class SimDisk:
    """The disk of one host. It outlives crashes of its process; `lose_power` is the machine's.

    Args:
        random: draws faults and what survives.
        faults: rates, exchanged while running when the faults end.
        now_ms: the wall clock, for modification times.
    """

    def __init__(self, random: Random, faults: DiskFaults, now_ms: Callable[[], int]) -> None:
        self._random = random
        self.faults = faults
        self._now_ms = now_ms
        self._names: dict[Path, Inode] = {}
        self._durable_names: dict[Path, Inode] = {}
        self._pending_names: list[NameChange] = []
        self._dirs: dict[Path, None] = {Path("/"): None}
        self._locks: dict[Path, object] = {}
        self.generation = 0
        self.operations = 0
        # Whether a fault that was drawn is to happen.
        self.happens: Callable[[str], bool] = lambda fault: True
        # Gets every write (kind, path, position, bytes), cut and sync, so that runs can be compared.
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

    def process_died(self) -> None:
        """kill -9: descriptors and locks are gone, the page cache stays."""
        self.generation += 1
        self._locks.clear()

    def lose_power(self) -> None:
        """The machine went dark: only what was synced is certain."""
        self.process_died()
        changes, self._pending_names = self._pending_names, []
        names = dict(self._durable_names)
        kept = self._random.randint(0, len(changes))
        while kept and changes[kept - 1].joined_with_next:
            kept -= 1
        for change in changes[:kept]:
            apply_name(names, change)
        inodes = {id(inode): inode for inode in [*self._names.values(), *names.values()]}
        for inode in inodes.values():
            inode.survive(self._random)
        self._names = names
        self._durable_names = dict(names)

    def snapshot(self) -> dict[Path, bytes]:
        """What readers see, by name: for a restart with an older disk, and for checks after the run."""
        return {path: bytes(inode.seen) for path, inode in self._names.items()}

    def restore(self, files: dict[Path, bytes]) -> None:
        """Put back an older state of the disk, as a restored backup does."""
        self._names = {path: Inode(bytearray(data), bytearray(data)) for path, data in files.items()}
        self._durable_names = dict(self._names)
        self._pending_names.clear()

    def used_bytes(self) -> int:
        return sum(len(inode.seen) for inode in self._names.values())

    # -- the port -----------------------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        inode = self._names.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
            if path.parent not in self._dirs:
                raise FileNotFoundError(errno.ENOENT, "No such directory", str(path.parent))
            if self.faults.capacity_bytes < UNLIMITED_BYTES and self.used_bytes() >= self.faults.capacity_bytes:
                raise OSError(errno.ENOSPC, "simulated full disk", str(path))
            inode = Inode(modified_ms=self._now_ms())
            self._change_name(NameChange(path, inode))
        return SimFile(self, path, inode, read_only=read_only)

    def exists(self, path: Path) -> bool:
        return path in self._names or path in self._dirs

    def is_dir(self, path: Path) -> bool:
        return path in self._dirs

    def is_link(self, path: Path) -> bool:
        return False

    def size(self, path: Path) -> int:
        return len(self._inode(path).seen)

    def modified_ms(self, path: Path) -> int:
        return self._inode(path).modified_ms

    def list_dir(self, path: Path) -> list[str]:
        if path not in self._dirs:
            raise FileNotFoundError(errno.ENOENT, "No such directory", str(path))
        return sorted(entry.name for entry in [*self._names, *self._dirs] if entry.parent == path and entry != path)

    def make_dirs(self, path: Path) -> None:
        for directory in [*reversed(path.parents), path]:
            if directory in self._names:
                raise FileExistsError(errno.EEXIST, "Not a directory", str(directory))
            self._dirs[directory] = None

    def rename(self, source: Path, target: Path) -> None:
        if source in self._dirs:
            self._rename_dir(source, target)
            return
        inode = self._inode(source)
        self._change_name(NameChange(source, None, joined_with_next=True))
        self._change_name(NameChange(target, inode))

    def remove(self, path: Path) -> None:
        if path in self._names:
            self._change_name(NameChange(path, None))

    def remove_tree(self, path: Path) -> None:
        for name in [name for name in self._names if path in name.parents]:
            self._change_name(NameChange(name, None))
        for directory in [entry for entry in self._dirs if entry == path or path in entry.parents]:
            del self._dirs[directory]

    def sync_dir(self, path: Path) -> None:
        rest = []
        for change in self._pending_names:
            if change.path.parent == path:
                apply_name(self._durable_names, change)
            else:
                rest.append(change)
        self._pending_names = rest

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
        """What is written back is not certain before it is synced."""

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Blocking work takes simulated time, before and after it touches the disk, so that others run meanwhile."""
        low, high = self.faults.sync_ms
        if self.hit("slow sync", self.faults.slow_sync):
            low, high = self.faults.slow_sync_ms
        delay_s = self._random.uniform(low, high) / 1000
        await asyncio.sleep(delay_s / 2)
        result = work()
        await asyncio.sleep(delay_s / 2)
        return result

    async def start_worker(self, make: MakeAnswer, argument: object, *, bytes_per_second: float) -> Worker:
        return SimWorker(self, make(self, lambda size_bytes: None, argument))

    # -- inside -------------------------------------------------------------------------------------------------

    def _inode(self, path: Path) -> Inode:
        inode = self._names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return inode

    def _change_name(self, change: NameChange) -> None:
        apply_name(self._names, change)
        self._pending_names.append(change)

    def _rename_dir(self, source: Path, target: Path) -> None:
        """A directory's files move with it, at once and durably: journalled file systems do no less."""
        moved = {name: inode for name, inode in self._names.items() if source in name.parents}
        for name, inode in moved.items():
            new = target / name.relative_to(source)
            del self._names[name]
            self._names[new] = inode
            if self._durable_names.pop(name, None) is not None:
                self._durable_names[new] = inode
        for change in self._pending_names:
            if source in change.path.parents:
                change.path = target / change.path.relative_to(source)
        for directory in [entry for entry in self._dirs if entry == source or source in entry.parents]:
            del self._dirs[directory]
            self._dirs[target / directory.relative_to(source)] = None


class SimWorker:
    """Answers inline, in simulated time; a crash of the process between two questions is one of the worker too."""

    def __init__(self, disk: SimDisk, answer: Callable[[Any], Any]) -> None:
        self._disk = disk
        self._answer = answer

    async def ask(self, question: object) -> Any:
        return await self._disk.off_loop(lambda: self._answer(question))

    async def close(self) -> None:
        """Nothing of it is left."""


def apply_name(names: dict[Path, Inode], change: NameChange) -> None:
    """Change a directory as the system call did."""
    if change.inode is None:
        names.pop(change.path, None)
    else:
        names[change.path] = change.inode


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
        if data and self._disk.hit("flipped bit", faults.flipped_bit):
            damaged = bytearray(data)
            bit = self._disk._random.randrange(len(data) * 8)
            damaged[bit // 8] ^= 1 << bit % 8
            return bytes(damaged)
        return data

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
            raise OSError(errno.ENOSPC, "simulated full disk", str(self._path))
        if self._disk.hit("write error", self._disk.faults.write_error):
            self._inode.write(position, data[: self._disk._random.randint(0, len(data))])
            raise OSError(errno.EIO, "simulated write error", str(self._path))
        self._inode.write(position, data)
        self._inode.modified_ms = self._disk._now_ms()
        return len(data)

    def truncate(self, size: int) -> None:
        self._check()
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
