"""A new segment while it is written, with `.cleaned` names that a start after a crash removes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.numbers import INT32_MAX
from odradek.common.ports import Buffer
from odradek.log.files import FileCache
from odradek.log.index import AbortedTransaction
from odradek.log.segment import Segment
from odradek.log.segment_file import segment_path
from odradek.record.batch import BatchHeader

CLEANED = ".cleaned"
# The suffix of a repair, which may run while the cleaner writes the same segment.
REPAIRED = ".repaired" + CLEANED
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
# The range of positions in an index.
MAX_SEGMENT_BYTES = INT32_MAX
_WRITE_BYTES = 1 << 20


class CleanedSegment:
    """A new segment; batches are added in order."""

    def __init__(
        self,
        files: FileCache,
        directory: Path,
        base_offset: int,
        *,
        index_interval_bytes: int,
        suffix: str = CLEANED,
    ) -> None:
        """Raises OSError."""
        self._directory = directory
        self._index_interval_bytes = index_interval_bytes
        self._segment = Segment(files, directory, base_offset, created_ms=0, suffix=suffix)
        for path in self._segment.paths():
            files.invalidate(path)
            files.disk.remove(path)  # of an aborted cleaning
        self._segment.open(create=True)
        self._position = 0
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0

    def add(self, header: BatchHeader, batch: Buffer) -> None:
        """Append a batch. Raises ApiError(KAFKA_STORAGE_ERROR) if the disk is full, StorageError, OSError."""
        size = len(batch)
        if self._position + size > MAX_SEGMENT_BYTES:
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, "the new segment would be larger than 2 GiB")
        self._segment.index_batch(header, self._position, self._index_interval_bytes)
        self._position += size
        self._waiting.append(batch)
        self._waiting_bytes += size
        if self._waiting_bytes >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            self._segment.write(self._waiting)
            self._waiting, self._waiting_bytes = [], 0

    def finish(self, aborted: Sequence[AbortedTransaction]) -> int:
        """Make the segment durable, except for its names; returns its size in bytes. Errors as `add`.

        All four files exist afterwards, even an empty transaction index: a missing file belongs to another set.
        """
        self._write()
        for entry in aborted:
            self._segment.indexes.transactions.append(entry)
        self._segment.indexes.append_newest_timestamp()
        self._segment.seal()
        self._segment.indexes.transactions.flush(create=True)
        self._segment.indexes.flush(sync=True)
        self._segment.sync()
        return self._segment.size_bytes


def cleaned_paths(directory: Path, base_offset: int, suffix: str = CLEANED) -> list[Path]:
    """The files of a new segment, the `.log` file last."""
    return [segment_path(directory, base_offset, kind + suffix) for kind in (*INDEX_SUFFIXES, ".log")]
