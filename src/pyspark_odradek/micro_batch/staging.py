"""Files in which tasks stage rows for the driver's commit, on storage that both can reach.

A place is a path of the local disk, a `file:` URI, or a URI that pyarrow's file systems know (s3, gs, hdfs, abfss;
Hadoop's s3a is s3). If the driver writes, nothing here has to survive a crash: a batch whose commit did not happen
is computed and staged again. If tasks write, a decided batch may have to be completed from it: `durable`.
"""

from __future__ import annotations

import logging
import os
import posixpath
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_odradek.errors import OptionError, StagingError

log = logging.getLogger("pyspark_odradek")


class StagedFile(NamedTuple):
    """One file of one task."""

    path: str
    size_bytes: int


class Staging:
    """A folder for staged files. Picklable: the file system is opened where it is used.

    Args:
        place: a path or URI.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        open_place(place)  # an invalid place is reported at once

    def create(self, folder: str, name: str) -> StagingFile:
        """Open a new file `<place>/<folder>/<name>-<random>`. Raises StagingError."""
        system, root = open_place(self.place)
        path = posixpath.join(root, folder, f"{name}-{uuid.uuid4().hex[:12]}")
        try:
            system.create_dir(posixpath.dirname(path), recursive=True)
            return StagingFile(self.place, system, path, system.open_output_stream(path))
        except OSError as error:
            raise _refused(self.place, error) from None

    def open(self, staged: StagedFile) -> Any:
        """A stream over a staged file, to be closed. Raises StagingError."""
        system, _ = open_place(self.place)
        try:
            return system.open_input_stream(staged.path)
        except OSError as error:
            raise StagingError(
                f"what a task staged in {staged.path} cannot be read: {error}. The option stagingLocation must name "
                "storage that driver and executors share"
            ) from None

    def remove(self, folder: str) -> None:
        """Delete a folder and all in it; one that does not exist is no error. Raises OSError."""
        system, root = open_place(self.place)
        path = posixpath.join(root, folder)
        from pyarrow.fs import FileType

        if system.get_file_info(path).type == FileType.Directory:
            system.delete_dir(path)

    def remove_empty(self, folder: str) -> None:
        """Delete a folder of this machine where nothing is in it, nor comes into it meanwhile. Others may stay."""
        system, root = open_place(self.place)
        if system.type_name == "local":
            with suppress(OSError):
                Path(root, folder).rmdir()

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder. Raises OSError."""
        from pyarrow.fs import FileSelector, FileType

        system, root = open_place(self.place)
        selector = FileSelector(posixpath.join(root, folder), allow_not_found=True)
        return sorted(info.base_name for info in system.get_file_info(selector) if info.type == FileType.Directory)


class StagingFile:
    """A file that a task is writing."""

    def __init__(self, place: str, system: Any, path: str, stream: Any) -> None:
        self._place = place
        self._system = system
        self._path = path
        self._stream = stream
        self._size_bytes = 0

    def write(self, pieces: list[bytes]) -> None:
        """Append. Raises StagingError."""
        try:
            for piece in pieces:
                self._stream.write(piece)
                self._size_bytes += len(piece)
        except OSError as error:
            raise _refused(self._place, error) from None

    def close(self, *, durable: bool = False) -> StagedFile:
        """Complete the file; with `durable`, sync it if it is on this machine. Raises StagingError."""
        try:
            self._stream.close()
            if durable and self._system.type_name == "local":
                _flush(self._path)
                folder, root = posixpath.dirname(self._path), open_place(self._place)[1]
                # Those of the query, its run and the batch may be new: each is a name in the one above it.
                while folder.startswith(root) and folder != "/":
                    _flush(folder)
                    folder = posixpath.dirname(folder)
        except OSError as error:
            raise _refused(self._place, error) from None
        return StagedFile(self._path, self._size_bytes)

    def discard(self) -> None:
        """Remove the file, as far as it can be."""
        for end in (self._stream.close, partial(self._system.delete_file, self._path)):
            try:
                end()
            except OSError as error:  # a full disk fails the end too, and not the removal
                log.warning("%s could not be removed: %s", self._path, error)


def _flush(path: str) -> None:
    """Wait until a file or folder of this machine is on its disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refused(place: str, error: OSError) -> StagingError:
    return StagingError(
        f"a task cannot stage its records in {place}: {error}. Make room there, or set the option stagingLocation to "
        "storage that driver and executors share; nothing of this batch was written."
    )


def open_place(place: str, option: str = "stagingLocation") -> tuple[Any, str]:
    """(the file system of a path or URI, the path in it). Raises OptionError, in which `option` is named."""
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem, LocalFileSystem

    if "://" not in place and not place.startswith("file:"):
        return LocalFileSystem(), posixpath.abspath(place)
    uri = place.replace("s3a://", "s3://", 1)
    if uri.startswith("file:"):
        return LocalFileSystem(), "/" + uri.removeprefix("file:").lstrip("/")
    key = (os.getpid(), uri)
    if key not in _OPEN:
        try:
            _OPEN[key] = FileSystem.from_uri(uri)
        except (OSError, ArrowException) as error:
            raise OptionError(f"{option}={place}: {error}") from None
    return _OPEN[key]


# Clients of stores that are not this machine's disk, by process and URI: a fork must not use its parent's.
_OPEN: dict[tuple[int, str], tuple[Any, str]] = {}
