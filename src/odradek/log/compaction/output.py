"""One new segment while it is written, under `.cleaned` names that a start after a crash removes."""

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
# Of who mends a segment while the cleaner may be at it, too.
REPAIRED = ".mended" + CLEANED
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
# Positions in an index have 31 bits.
MAX_SEGMENT_BYTES = INT32_MAX
_WRITE_BYTES = 1 << 20


class CleanedSegment:
    """A segment in the making; batches come in order."""

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
            files.forget(path)
            files.disk.remove(path)  # of a cleaning that was given up
        self._segment.open(create=True)
        self._position = 0
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0

    def add(self, header: BatchHeader, batch: Buffer) -> None:
        """Raises ApiError(KAFKA_STORAGE_ERROR) where the disk is full, StorageError, OSError."""
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
        """Make all of it durable, but for its names; returns the size in bytes. Errors as `add`.

        All four files exist then, the transaction index even when it is empty: what is missing is no file of this set.
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
    """The files of a segment in the making, the log itself last."""
    return [segment_path(directory, base_offset, kind + suffix) for kind in (*INDEX_SUFFIXES, ".log")]
