"""Checks a machine for a broker: its limits, its swap space, and the disks of its log directories."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.admin.finding import Finding, Severity

# Each partition takes a few descriptors for its segments and indexes, each client one for its connection.
FEW_DESCRIPTORS, ENOUGH_DESCRIPTORS = 10_000, 100_000
SLOW_SYNC_MS, VERY_SLOW_SYNC_MS = 20.0, 100.0
SLOW_WRITE_BYTES_S, VERY_SLOW_WRITE_BYTES_S = 100e6, 20e6
LITTLE_FREE, VERY_LITTLE_FREE = 0.15, 0.05
LOW_SWAPPINESS = 1
SYNCS = 20
SYNCED_BYTES = 4096
WRITTEN_BYTES = 64 << 20
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """The facts of one log directory.

    Attributes:
        problem: the error of a write; "" if it succeeded.
        device: the number of the disk.
        free_share: of the space that its file system has.
        sync_ms: each of some small writes with an fsync; write_bytes_s: of one long write, its fsync included.
    """

    path: Path
    problem: str = ""
    device: int = 0
    free_share: float = 1.0
    sync_ms: Sequence[float] = ()
    write_bytes_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The facts of one machine.

    Attributes:
        descriptors: the most that a process of this user may have; a node raises its own limit to it.
        swap_bytes: that the kernel may use; swappiness: how willingly it does.
    """

    descriptors: int
    swap_bytes: int
    swappiness: int
    directories: Sequence[DirectoryFacts] = ()


def inspect_machine(
    directories: Sequence[Path],
    *,
    proc: Path = Path("/proc"),
    descriptors: int | None = None,
    sync: Callable[[int], None] = os.fsync,
    written_bytes: int = WRITTEN_BYTES,
) -> MachineFacts:
    """Read the limits of this machine, and time writes to each directory. Blocks.

    Args:
        proc: the mount point of procfs.
        descriptors: instead of this user's own limit.
        sync: makes a file durable.
        written_bytes: for how fast the disk is; the file is removed.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1] if descriptors is None else descriptors
    return MachineFacts(
        descriptors=limit,
        swap_bytes=_swap_bytes(proc),
        swappiness=_number(proc / "sys" / "vm" / "swappiness"),
        directories=[_inspect_directory(path, sync, written_bytes) for path in directories],
    )


def _swap_bytes(proc: Path) -> int:
    with contextlib.suppress(OSError):
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("SwapTotal:"):
                return int(line.split()[1]) * 1024
    return 0


def _number(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return 0


def _inspect_directory(path: Path, sync: Callable[[int], None], written_bytes: int) -> DirectoryFacts:
    try:
        # A node makes its directory; until then the disk is that of the one above.
        there = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
        probe = there / f".odradek-doctor-{os.getpid()}"
        if not there.is_dir():
            return DirectoryFacts(path, problem="it is not a directory")
        usage = shutil.disk_usage(there)
        with _opened(probe) as descriptor:
            sync_ms = _time_syncs(descriptor, sync)
            speed = _time_writes(descriptor, sync, min(written_bytes, usage.free // 2))
        device = there.stat().st_dev
    except OSError as error:
        return DirectoryFacts(path, problem=error.strerror or str(error))
    return DirectoryFacts(path, "", device, usage.free / max(1, usage.total), sync_ms, speed)


@contextlib.contextmanager
def _opened(probe: Path) -> Iterator[int]:
    descriptor = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        probe.unlink(missing_ok=True)


def _time_syncs(descriptor: int, sync: Callable[[int], None]) -> list[float]:
    taken = []
    for index in range(SYNCS):
        started = time.perf_counter()
        os.pwrite(descriptor, os.urandom(SYNCED_BYTES), index * SYNCED_BYTES)
        sync(descriptor)
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def _time_writes(descriptor: int, sync: Callable[[int], None], size: int) -> float:
    block = os.urandom(BLOCK_BYTES)
    started = time.perf_counter()
    for place in range(0, size, BLOCK_BYTES):
        os.pwrite(descriptor, block, place)
    sync(descriptor)
    return size / max(1e-9, time.perf_counter() - started)


def check_machine(facts: MachineFacts) -> Iterator[Finding]:
    """The findings for a machine."""
    yield from _check_limits(facts)
    for directory in facts.directories:
        yield from _check_directory(directory)
    shared = _sharing_disks(facts.directories)
    if shared:
        yield Finding(
            Severity.WARNING,
            "shared-disk",
            "log directories share one disk",
            "they fail together and share its speed; a node loses nothing by having one directory there",
            "give each directory of log.dirs a disk of its own",
            shared,
        )


def _check_limits(facts: MachineFacts) -> Iterator[Finding]:
    unlimited = facts.descriptors in (-1, resource.RLIM_INFINITY)
    if facts.descriptors < ENOUGH_DESCRIPTORS and not unlimited:
        yield Finding(
            Severity.BAD if facts.descriptors < FEW_DESCRIPTORS else Severity.WARNING,
            "file-limit",
            f"a process may open {facts.descriptors:,} files (RLIMIT_NOFILE)",
            "each partition takes some, each connection one; a node without any refuses clients",
            f"allow {ENOUGH_DESCRIPTORS:,}: LimitNOFILE= of the systemd unit, or /etc/security/limits.conf",
        )
    if facts.swap_bytes and facts.swappiness > LOW_SWAPPINESS:
        yield Finding(
            Severity.WARNING,
            "swap",
            f"the machine swaps: {facts.swap_bytes / 2**30:.1f} GiB, vm.swappiness {facts.swappiness}",
            "a node whose memory is on disk stalls for seconds, and falls out of the in-sync sets",
            f"turn swap off, or set vm.swappiness={LOW_SWAPPINESS}",
        )


def _check_directory(facts: DirectoryFacts) -> Iterator[Finding]:
    where = [str(facts.path)]
    if facts.problem:
        yield Finding(
            Severity.BAD,
            "log-directory",
            f"a log directory cannot be written to ({facts.problem})",
            "a node does not start on it, or loses what is there",
            "make it writable for the user of the node",
            where,
        )
        return
    typical, slowest = statistics.median(facts.sync_ms), max(facts.sync_ms)
    if typical > SLOW_SYNC_MS:
        yield Finding(
            Severity.BAD if typical > VERY_SLOW_SYNC_MS else Severity.WARNING,
            "fsync",
            f"an fsync takes {typical:.1f} ms (median of {len(facts.sync_ms)}, at most {slowest:.1f} ms)",
            "votes and the metadata log wait for it, and every topic with flush.messages",
            "use a local SSD, and no disk that other machines share",
            where,
        )
    if facts.write_bytes_s < SLOW_WRITE_BYTES_S:
        yield Finding(
            Severity.BAD if facts.write_bytes_s < VERY_SLOW_WRITE_BYTES_S else Severity.WARNING,
            "disk-speed",
            f"the disk takes {facts.write_bytes_s / 1e6:.0f} MB/s",
            "it bounds what all partitions there can take, copies from other brokers included",
            "use a faster disk, or several directories on disks of their own",
            where,
        )
    if facts.free_share < LITTLE_FREE:
        yield Finding(
            Severity.BAD if facts.free_share < VERY_LITTLE_FREE else Severity.WARNING,
            "disk-space",
            f"{facts.free_share:.0%} of the disk is free",
            "a full disk refuses producers",
            "lower retention.bytes or retention.ms, move partitions away, or add a disk",
            where,
        )


def _sharing_disks(directories: Sequence[DirectoryFacts]) -> list[str]:
    devices = [each.device for each in directories if not each.problem]
    return [str(each.path) for each in directories if not each.problem and devices.count(each.device) > 1]
