"""Parquet files that a task writes for a table: one or more for each combination of partition values.

An open file costs a descriptor and memory, so their number is limited: rows are buffered and sorted by partition value,
and the least recently written file is closed. A value that comes again gets a further file.

The files are invisible to readers until a commit of the table names them.
"""

from __future__ import annotations

import errno
import logging
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_odradek.errors import StagingError
from pyspark_odradek.micro_batch.staging import open_place
from pyspark_odradek.micro_batch.task import Task
from pyspark_odradek.table_sinks.table_sink import LeftRows

log = logging.getLogger("pyspark_odradek")

COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")
MOST_OPEN = 100  # files of a task that are being written
_NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)
GATHERED_BYTES = 32 << 20  # rows that a task holds before it divides them by value


@dataclass
class WrittenFile:
    """A Parquet file that no commit names yet; `values` are those of the partition columns.

    `with_nulls` are the columns, including partition columns, in which a row has no value.
    """

    name: str
    size_bytes: int
    rows: int
    values: dict[str, Any] = field(default_factory=dict)
    with_nulls: frozenset[str] = frozenset()


@dataclass
class _OpenFile:
    name: str
    stream: Any
    writer: Any
    rows: int = 0
    with_nulls: set[str] = field(default_factory=set)


@dataclass
class LeftFiles(LeftRows):
    """The files that a task has written."""

    files: list[WrittenFile]

    def is_empty(self) -> bool:
        return not self.files


class Folder(Protocol):
    """The folder of the files."""

    def create(self, name: str) -> Any:
        """A stream into a new file. Raises OSError."""

    def size_bytes(self, name: str) -> int:
        """The size of a complete file. Raises OSError."""

    def remove(self, name: str) -> None:
        """Delete a file. Raises OSError."""


class PlaceFolder:
    """A folder by its path, or by a URI of pyarrow's file systems."""

    def __init__(self, place: str) -> None:
        self._system, self._root = open_place(place, "path")

    def create(self, name: str) -> Any:
        self._system.create_dir(self._root, recursive=True)
        return self._system.open_output_stream(f"{self._root}/{name}")

    def size_bytes(self, name: str) -> int:
        return int(self._system.get_file_info(f"{self._root}/{name}").size)

    def remove(self, name: str) -> None:
        self._system.delete_file(f"{self._root}/{name}")


class ParquetFiles:
    """The files of one task.

    Args:
            folder: the folder of the files.
            schema: the Arrow schema of the rows.
            partition_columns: each file has one combination of their values; a combination may have several files.
            compression: one of COMPRESSIONS.
            keep_values: write the partition columns too, which Iceberg requires and Delta does not.
    """

    def __init__(
        self, folder: Folder, schema: Any, partition_columns: list[str], compression: str, *, keep_values: bool = False
    ) -> None:
        self._folder = folder
        self._columns = partition_columns
        self._left_out = [] if keep_values else partition_columns
        self._schema = pa.schema([each for each in schema if each.name not in self._left_out])
        self._compression = compression
        self._gathered: list[Any] = []
        self._gathered_bytes = 0
        self._open: dict[tuple[Any, ...], _OpenFile] = {}  # the one that was written to longest ago is the first
        self._complete: list[WrittenFile] = []

    def add(self, rows: Any) -> None:
        """Write an Arrow table, now or with the next ones."""
        if not self._columns:
            self._write((), rows)
            return
        self._gathered.append(rows)
        self._gathered_bytes += rows.nbytes
        if self._gathered_bytes >= GATHERED_BYTES:
            self._divide()

    def close(self) -> list[WrittenFile]:
        """Complete the files; returns them."""
        self._divide()
        while self._open:
            self._close_first()
        return self._complete

    def discard(self) -> None:
        """Remove the files; those that cannot be removed stay invisible to readers."""
        ends: list[tuple[str, Any]] = []
        for file in self._open.values():
            ends += [(file.name, file.writer.close), (file.name, file.stream.close)]
        names = [file.name for file in self._open.values()] + [file.name for file in self._complete]
        for name, end in [*ends, *((name, partial(self._folder.remove, name)) for name in names)]:
            try:
                end()
            except (OSError, pa.ArrowException) as error:  # a full disk fails the ends too, and not the removal
                log.warning("%s could not be removed: %s", name, error)

    def _divide(self) -> None:
        """Write the buffered rows, each to a file of its partition values; values of open files are written first."""
        if not self._gathered:
            return
        rows = pa.concat_tables(self._gathered)
        self._gathered, self._gathered_bytes = [], 0
        positions: dict[tuple[Any, ...], list[int]] = {}
        for position, key in enumerate(zip(*(rows.column(name).to_pylist() for name in self._columns), strict=True)):
            positions.setdefault(key, []).append(position)
        keys = sorted(positions, key=lambda each: each not in self._open)
        if len(keys) > 1:  # of one piece, from which slices cost nothing
            rows = rows.combine_chunks().take([position for key in keys for position in positions[key]])
        first = 0
        for key in keys:
            self._write(key, rows.slice(first, len(positions[key])))
            first += len(positions[key])

    def _close_first(self) -> None:
        key, file = next(iter(self._open.items()))
        file.writer.close()
        file.stream.close()
        size_bytes = self._folder.size_bytes(file.name)
        values = dict(zip(self._columns, key, strict=True))
        self._complete.append(WrittenFile(file.name, size_bytes, file.rows, values, frozenset(file.with_nulls)))
        del self._open[key]

    def _write(self, key: tuple[Any, ...], rows: Any) -> None:
        if key in self._open:
            self._open[key] = self._open.pop(key)
        else:
            if len(self._open) >= MOST_OPEN:
                self._close_first()
            name = f"part-{uuid.uuid4()}.{self._compression}.parquet"
            stream = self._folder.create(name)
            writer = pq.ParquetWriter(stream, self._schema, compression=self._compression)
            self._open[key] = _OpenFile(name, stream, writer)
        file = self._open[key]
        file.with_nulls.update(name for name in rows.column_names if rows.column(name).null_count)
        file.writer.write_table(rows.drop_columns(self._left_out).cast(self._schema))
        file.rows += rows.num_rows


def write_files(task: Task, files: ParquetFiles, batches: Iterator[Any], schema: Any, where: str) -> LeftFiles:
    """Write all rows of a task; after an error its files are removed. Raises StagingError."""
    try:
        for batch in batches:
            if batch.num_rows:
                files.add(pa.Table.from_batches([batch]).cast(schema))
        return LeftFiles(task, files.close())
    except OSError as error:
        files.discard()
        advice = "Raise the limit of open files (ulimit -n)" if error.errno in _NO_MORE_FILES else "Make room there"
        raise StagingError(
            f"a task cannot write to {where}: {error}. {advice}; nothing of this batch is in the table."
        ) from None
    except BaseException:
        files.discard()
        raise


def all_files(found: Iterable[LeftRows]) -> list[WrittenFile]:
    """The files of all tasks."""
    return [file for left in found if isinstance(left, LeftFiles) for file in left.files]
