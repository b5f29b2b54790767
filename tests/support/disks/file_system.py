"""File systems of a test's own, which can be filled, broken and shut down. They need root and Linux."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path

import pytest


def run(*command: object) -> str:
    """Run a system command; raises CalledProcessError."""
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


def skip_unless_root(*tools: str) -> None:
    """Skip the test, saying why, where the machine does not let us make file systems."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    for tool in ("mount", "umount", *tools):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


class Ballast:
    """A file that takes all the space there is, until it is let go."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "ballast"

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Leave so much of the file system free; with 0, not a byte."""
        with self._path.open("ab", buffering=0) as file:
            while not self._allocate(file, leave_bytes):
                pass
            for piece in () if leave_bytes else (1 << 20, 512):
                with suppress(OSError):
                    while True:
                        file.write(bytes(piece))

    def _allocate(self, file: FileIO, leave_bytes: int) -> bool:
        """Whether all but `leave_bytes` is taken; nothing is where others wrote since the free space was counted."""
        stat = os.statvfs(self._path.parent)
        size = stat.f_bavail * stat.f_frsize - leave_bytes
        if size > 0:
            try:
                os.posix_fallocate(file.fileno(), file.tell(), size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return False
        return True

    def release(self) -> None:
        """Space is back."""
        self._path.unlink(missing_ok=True)


@contextmanager
def small_tmpfs(directory: Path, size_bytes: int) -> Iterator[Path]:
    """A file system in memory of so many bytes, mounted at `directory`."""
    skip_unless_root()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", directory)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"tmpfs cannot be mounted here: {error.stderr.strip()}")
    try:
        yield directory
    finally:
        run("umount", "-l", directory)


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Let nothing be written below a directory."""
    skip_unless_root()
    with ExitStack() as stack:
        try:
            run("mount", "--bind", directory, directory)
            stack.callback(run, "umount", "-l", directory)
            run("mount", "-o", "remount,ro,bind", directory)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"{directory} cannot be mounted here: {error.stderr.strip()}")
        yield


# _IOR('X', 125, __u32), of ext4 and XFS alike; the flag says that not even the journal is written.
_GOING_DOWN = 0x8004587D
_WITHOUT_JOURNAL = 2


class LoopDisk:
    """An ext4 file system in a file, which can lose its power while it is written to.

    Bytes that were not synced are lost then, as after a real loss of power, and every access fails with EIO until it
    is mounted again.
    """

    def __init__(self, image: Path, mount_point: Path, size_bytes: int) -> None:
        skip_unless_root("mkfs.ext4", "losetup")
        self._image = image
        self.path = mount_point
        image.parent.mkdir(parents=True, exist_ok=True)
        with image.open("wb") as file:
            file.truncate(size_bytes)
        mount_point.mkdir(parents=True, exist_ok=True)
        run("mkfs.ext4", "-q", "-F", image)

    def mount(self) -> LoopDisk:
        try:
            run("mount", "-o", "loop", self._image, self.path)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"an ext4 image cannot be mounted here: {error.stderr.strip()}")
        return self

    def lose_power(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _GOING_DOWN, struct.pack("I", _WITHOUT_JOURNAL))
        except OSError as error:
            pytest.skip(f"this kernel cannot shut ext4 down: {error}")
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        run("umount", self.path)

    def __enter__(self) -> LoopDisk:
        return self.mount()

    def __exit__(self, *_: object) -> None:
        run("umount", "-l", self.path)
