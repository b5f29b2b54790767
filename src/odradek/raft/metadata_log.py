"""The files of the metadata log: `__cluster_metadata-0/<base offset>.log`, in Kafka's format.

It is simpler and stricter than a topic's log. The position of each batch is kept in memory: there are few batches,
because snapshots keep the log short. At start every checksum is verified. A loss of power may tear records that were
not synced, in any order: such a tail is truncated. Synced records must be intact: a log that is damaged or ends below
the offset in `synced-offset` is not opened, and the error names the position (Apache Kafka 4.3 reads past a flipped bit
there). That file is written after each flush and not synced itself, so after a loss of power it may be some seconds
old, but never too high. In a directory of Apache Kafka, which has no such file, a log is not opened if whole batches
follow the damage.

Durability: `append` writes, `flush` makes durable; `flush` may run off the loop while the loop appends. After a failed
write or flush all further writes are refused. Not thread-safe otherwise.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.ports import Disk, File, is_disk_full, read_file, write_file_durably
from odradek.common.topic_names import METADATA_LOG
from odradek.raft.batches import DecodedBatch, decode_batches
from odradek.record.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_is_valid
from odradek.record.reader import read_batches

DIRECTORY = METADATA_LOG
# The metadata topic's id in text form: UUID 1.
_PARTITION_METADATA = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
_NAME = re.compile(r"(\d{20})\.log\Z")
SYNCED_OFFSET = "synced-offset"
# The offset and a checksum of its digits. Earlier versions wrote no checksum.
_SYNCED_TEXT = re.compile(rb"(?P<offset>\d{20})( (?P<check>[0-9a-f]{8}))?\n\Z")


@dataclass(frozen=True, slots=True)
class _BatchPosition:
    """The position of one batch; offsets are inclusive."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    segment_offset: int
    position: int
    size_bytes: int


class MetadataLog:
    """An open metadata log. `log_start_offset` is inclusive, `log_end_offset` exclusive."""

    def __init__(self, disk: Disk, directory: Path, *, covered_offset: int = 0) -> None:
        """Open or create the log, verify every batch and truncate a torn tail.

        Args:
            covered_offset: records below it (exclusive) are in a snapshot too. If a crash interrupted `restart_at`,
                some of these are missing, and the rest is removed.
        Raises:
            StorageError: damage other than a torn write, a gap between segments, or the disk fails.
        """
        self._disk = disk
        self.directory = directory
        self._batches: list[_BatchPosition] = []
        self._bases: list[int] = []  # base offset of each place, for bisect
        self._files: dict[int, File] = {}
        self._unsynced: set[int] = set()
        self._failed: StorageError | None = None
        self._synced_offset: int | None = None
        self._synced_file: File | None = None
        self._covered_offset = covered_offset
        self.cut_bytes = 0
        try:
            self._open()
        except OSError as error:
            raise self._fail(error) from error

    @property
    def log_start_offset(self) -> int:
        return min(self._files)

    @property
    def log_end_offset(self) -> int:
        return self._batches[-1].last_offset + 1 if self._batches else max(self._files)

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch; 0 for an empty log."""
        return self._batches[-1].leader_epoch if self._batches else 0

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self._batches)

    def bytes_from(self, offset: int) -> int:
        """The size in bytes of all batches at and above `offset`."""
        return sum(entry.size_bytes for entry in self._batches[self._index_of(offset) :])

    def append(self, batches: Sequence[bytes]) -> int:
        """Write batches that continue the log; returns the new end offset (exclusive).

        Raises:
            ApiError: KAFKA_STORAGE_ERROR, the disk is full; the log is unchanged, and a later append may fit.
            StorageError: the disk failed, now or before.
        """
        if self._failed is not None:
            raise self._failed
        headers = [BatchHeader.read(batch) for batch in batches]
        self._check_continues(headers)
        segment_offset = max(self._files)
        file = self._files[segment_offset]
        position = file.size()
        try:
            file.write_at(position, batches)
        except OSError as error:
            if is_disk_full(error):
                self._undo_append(file, position)
                self._unsynced.add(segment_offset)
                raise ApiError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"No space left on the device of {self.directory}"
                ) from None
            raise self._fail(error) from error
        for header in headers:
            self._add_batch(header, segment_offset, position)
            position += header.size_bytes
        self._unsynced.add(segment_offset)
        return self.log_end_offset

    def _check_continues(self, headers: Sequence[BatchHeader]) -> None:
        """Check before the write that recovery (`_load_segment`) will not take these batches for damage."""
        end_offset, last_epoch = self.log_end_offset, self.last_epoch
        for header in headers:
            assert header.base_offset == end_offset, f"a batch of {header.base_offset} at the end {end_offset}"
            assert header.last_offset >= end_offset, f"a batch of {header.base_offset} ends at {header.last_offset}"
            assert header.partition_leader_epoch >= last_epoch, f"epoch {header.partition_leader_epoch} < {last_epoch}"
            end_offset, last_epoch = header.last_offset + 1, header.partition_leader_epoch

    def _undo_append(self, file: File, position: int) -> None:
        try:
            file.truncate(position)
        except OSError as error:
            raise self._fail(error) from error

    def begin_flush(self) -> Callable[[], None]:
        """Prepare, on the loop, a flush of all records appended so far.

        The returned function blocks: run it off the loop. It raises StorageError if the disk failed; the flush is never
        retried.
        """
        if self._failed is not None:
            raise self._failed
        files = [self._files[segment_offset] for segment_offset in sorted(self._unsynced)]
        self._unsynced = set()

        def sync() -> None:
            try:
                for file in files:
                    file.sync()
            except OSError as error:
                raise self._fail(error) from error

        return sync

    def flush(self) -> None:
        """Flush all appended records. Blocks. Raises StorageError as `begin_flush`."""
        self.begin_flush()()
        self.mark_synced(self.log_end_offset)

    def mark_synced(self, offset: int) -> None:
        """Record that all below `offset` (exclusive) is durable, or was truncated on purpose. Raises StorageError."""
        assert self._synced_file is not None
        assert offset <= self.log_end_offset, f"{offset} is durable of a log that ends at {self.log_end_offset}"
        self._synced_offset = offset
        try:
            self._synced_file.write_at(0, [_synced_text(offset)])
        except OSError as error:
            if not is_disk_full(error):  # a `synced-offset` that is too low is safe
                raise self._fail(error) from error

    def _lower_synced(self, offset: int) -> None:
        assert self._synced_file is not None
        self._synced_offset = offset
        try:
            self._synced_file.write_at(0, [_synced_text(offset)])
            self._synced_file.sync()
        except OSError as error:
            raise self._fail(error) from error

    def read(self, offset: int, max_bytes: int, *, upper_offset: int | None = None) -> bytes:
        """Read whole batches from the one that holds `offset` on, at least one, below `upper_offset` (exclusive).

        Raises:
            StorageError: the disk cannot be read.
        """
        pieces: list[bytes] = []
        size = 0
        for entry in self._batches[self._index_of(offset) :]:
            if upper_offset is not None and entry.last_offset >= upper_offset:
                break
            if pieces and size + entry.size_bytes > max_bytes:
                break
            pieces.append(self._read(entry))
            size += entry.size_bytes
        return b"".join(pieces)

    def _read(self, entry: _BatchPosition) -> bytes:
        try:
            return self._files[entry.segment_offset].read_at(entry.position, entry.size_bytes)
        except OSError as error:
            raise StorageError(self.directory, f"the metadata log cannot be read: {error}") from error

    def batches(self, offset: int) -> Iterator[DecodedBatch]:
        """Yield decoded batches from `offset` on.

        Raises:
            StorageError: the disk cannot be read, or a batch is not valid metadata.
        """
        for entry in self._batches[self._index_of(offset) :]:
            data = self._read(entry)
            try:
                yield from decode_batches(data)
            except ValueError as error:
                where = f"{entry.segment_offset:020d}.log at byte {entry.position}"
                raise StorageError(self.directory, f"the metadata log is damaged: {where}: {error}") from None

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch up to `leader_epoch`, its end offset exclusive); (-1, -1) if there is none (KIP-101)."""
        # Every fetch calls this: a bisection, not a scan of all batches. Epochs never decrease.
        count = bisect_right(self._batches, leader_epoch, key=lambda entry: entry.leader_epoch)
        if not count:
            return (-1, -1)
        last = self._batches[count - 1]
        return (last.leader_epoch, last.last_offset + 1)

    def truncate_to(self, offset: int) -> None:
        """Remove all batches that reach to or above `offset`. For followers; never below the high watermark.

        Raises:
            StorageError: the disk failed.
        Durability: the synced offset is lowered durably before the truncation: after a crash in between, or a later
            loss of power, a log without the batches must not look like one that lost them. Blocks for that.
        """
        if self._synced_offset is not None and offset < self._synced_offset:
            self._lower_synced(offset)
        try:
            self._cut(offset)
        except OSError as error:
            raise self._fail(error) from error

    def _cut(self, offset: int) -> None:
        while self._batches and self._batches[-1].last_offset >= offset:
            entry = self._batches.pop()
            self._bases.pop()
            self._files[entry.segment_offset].truncate(entry.position)
            self._unsynced.add(entry.segment_offset)
        for segment_offset in sorted(self._files, reverse=True)[:-1]:
            if segment_offset >= self.log_end_offset and segment_offset > offset:
                self._remove_segment(segment_offset)
        assert self.log_end_offset <= max(offset, self.log_start_offset), f"cut to {self.log_end_offset}, not {offset}"

    def roll(self) -> None:
        """Begin a new segment at the log end offset, unless the active one is empty."""
        end_offset = self.log_end_offset
        if end_offset not in self._files:
            try:
                self._create_segment(end_offset)
            except OSError as error:
                if not is_disk_full(error):  # the active segment stays in use
                    raise

    def delete_before(self, offset: int) -> int:
        """Remove segments whose records are all below `offset` (exclusive); returns how many."""
        segments = sorted(self._files)
        removed = 0
        for segment_offset, following in pairwise(segments):
            if following <= offset:
                self._batches = [entry for entry in self._batches if entry.segment_offset != segment_offset]
                self._remove_segment(segment_offset)
                removed += 1
        self._bases = [entry.base_offset for entry in self._batches]
        if removed:
            self.write_checkpoints()
        return removed

    def epoch_of(self, offset: int) -> int | None:
        """The leader epoch of the record at `offset`; None if the log does not have that record."""
        index = self._index_of(offset)
        if index >= len(self._batches) or self._batches[index].base_offset > offset:
            return None
        return self._batches[index].leader_epoch

    def restart_at(self, offset: int) -> None:
        """Remove all records and continue at `offset`: the log ended before a snapshot.

        Raises:
            OSError: a new segment cannot be created; the records below `offset` are unchanged.
            StorageError: the disk failed later. The next start continues from the remaining files and the snapshot.
        """
        if self.log_end_offset > offset:  # a diverging log
            self.truncate_to(offset)
        if offset not in self._files:
            self._create_segment(offset)
        try:
            self._drop_before(offset)
        except OSError as error:
            raise self._fail(error) from error
        self.mark_synced(offset)

    def _drop_before(self, offset: int) -> None:
        """Discard the state of all batches read so far, and remove segments below `offset`."""
        for segment_offset in [each for each in self._files if each < offset]:
            self._remove_segment(segment_offset)
        self._batches, self._bases = [], []

    def write_checkpoints(self) -> None:
        """Write `leader-epoch-checkpoint` for other readers of this directory; this class keeps epochs in memory."""
        starts: dict[int, int] = {}
        for entry in self._batches:
            starts.setdefault(entry.leader_epoch, entry.base_offset)
        lines = ["0", str(len(starts)), *(f"{epoch} {start}" for epoch, start in starts.items())]
        text = "\n".join(lines) + "\n"
        try:
            write_file_durably(self._disk, self.directory / "leader-epoch-checkpoint", text.encode())
        except OSError as error:
            if not is_disk_full(error):  # an old checkpoint is harmless
                raise

    def close(self) -> None:
        """Close all files, without a flush."""
        for file in self._files.values():
            file.close()
        if self._synced_file is not None:
            self._synced_file.close()

    def _open(self) -> None:
        self._disk.make_dirs(self.directory)
        if not self._disk.exists(self.directory / "partition.metadata"):
            write_file_durably(self._disk, self.directory / "partition.metadata", _PARTITION_METADATA)
        names = self._disk.list_dir(self.directory)
        segments = sorted(int(match[1]) for match in map(_NAME.match, names) if match)
        synced_path = self.directory / SYNCED_OFFSET
        if segments and self._disk.exists(synced_path):
            self._synced_offset = _read_synced(read_file(self._disk, synced_path))
        for number, segment_offset in enumerate(segments):
            whole = self._load_segment(segment_offset, last=number == len(segments) - 1)
            if not whole:
                for lost in segments[number + 1 :]:
                    self._disk.remove(self._segment_path(lost))
                break
        if not segments:
            self._create_segment(0)
        certain_offset = self._synced_offset or 0
        if self.log_end_offset < certain_offset and self._covered_offset < certain_offset:
            raise StorageError(
                self.directory,
                f"the metadata log ends at offset {self.log_end_offset}, and was durable up to {self._synced_offset}. "
                "Nothing was changed; restore its files from a copy",
            )
        self._make_durable()
        write_file_durably(self._disk, synced_path, _synced_text(self.log_end_offset))
        self._synced_offset = self.log_end_offset
        self._synced_file = self._disk.open(synced_path)
        self._disk.sync_dir(self.directory.parent)

    def _make_durable(self) -> None:
        """Make the batches durable that a crash left in the page cache: from now on the log builds upon them.

        They are rewritten before the sync: after a failed fsync the page cache has data that the disk does not, and the
        next fsync reports success.
        """
        unsure = self._batches[self._index_of(self._synced_offset or 0) :]
        for entry in unsure:
            file = self._files[entry.segment_offset]
            batch = file.read_at(entry.position, entry.size_bytes)
            if not crc_is_valid(batch, BatchHeader.read(batch)):
                # A bit that flipped during the read must not be stored.
                raise StorageError(self.directory, f"offset {entry.base_offset} was whole, and is read damaged")
            file.write_at(entry.position, [batch])
        # A segment that was rolled before it was synced is included, though it begins below the synced offset.
        for segment_offset in sorted({*(entry.segment_offset for entry in unsure), max(self._files)}):
            self._files[segment_offset].sync()

    def _load_segment(self, segment_offset: int, *, last: bool) -> bool:
        """Read a segment and truncate a torn tail; returns whether it is whole, so that the next segment follows."""
        path = self._segment_path(segment_offset)
        if self._files and segment_offset != self.log_end_offset:
            given_up = self._discard_segment(segment_offset)
            if given_up is not None:
                self._disk.remove(path)
                return given_up
        data = read_file(self._disk, path)
        file = self._disk.open(path)
        self._files[segment_offset] = file
        end = 0
        for position, header in read_batches(data):
            expected_offset = self._batches[-1].last_offset + 1 if self._batches else segment_offset
            follows = expected_offset == header.base_offset <= header.last_offset
            batch = memoryview(data)[position : position + header.size_bytes]
            # The checksum covers neither offset nor leader epoch; both only rise: a fall shows a flipped bit there.
            follows = follows and header.partition_leader_epoch >= self.last_epoch
            if header.magic != MAGIC or not follows:
                break
            # Read again from the disk: damage on the disk is permanent, a bit that flipped during the read is not.
            if not crc_is_valid(batch, header) and not crc_is_valid(file.read_at(position, len(batch)), header):
                break
            self._add_batch(header, segment_offset, position)
            end = position + header.size_bytes
        if end == len(data):
            return True
        if self._synced_offset is None:
            certain = not last or _whole_batch_after(data, end, self.log_end_offset)
        else:
            certain = not self._may_be_torn()
        if certain:
            raise StorageError(
                self.directory,
                f"the metadata log is damaged: {path.name} at byte {end} (offset {self.log_end_offset}), where it was "
                "durable, so this is not a torn write. Nothing was changed; restore the file from a copy",
            )
        self.cut_bytes = len(data) - end
        file.truncate(end)
        file.sync()
        return last

    def _discard_segment(self, segment_offset: int) -> bool | None:
        """Decide what to do with a segment that does not begin where the one before it ends.

        Returns:
            None: the segments before it are removed and it stays. True: it is removed, and those behind it may still
            follow. False: it is removed, and those behind it too.
        Raises:
            StorageError: records between the two segments are missing.
        """
        end_offset, covered = self.log_end_offset, self._covered_offset
        path = self._segment_path(segment_offset)
        if segment_offset < end_offset and not self._disk.size(path):
            return True  # its name was not durable when it was created, and the segment was abandoned
        if segment_offset == covered or (segment_offset < covered and end_offset <= covered):
            self._drop_before(segment_offset)  # the earlier records are in the snapshot, or diverge
            return None
        if self._may_be_torn():
            return False
        raise StorageError(
            self.directory,
            f"the metadata log has a gap: {path.name} follows a segment that ends at offset {end_offset}",
        )

    def _may_be_torn(self) -> bool:
        """Whether the bytes behind the batches read so far may never have been synced."""
        return self._synced_offset is not None and self.log_end_offset >= self._synced_offset

    def _add_batch(self, header: BatchHeader, segment_offset: int, position: int) -> None:
        entry = _BatchPosition(
            header.base_offset,
            header.last_offset,
            header.partition_leader_epoch,
            segment_offset,
            position,
            header.size_bytes,
        )
        self._batches.append(entry)
        self._bases.append(entry.base_offset)

    def _index_of(self, offset: int) -> int:
        index = max(0, bisect_right(self._bases, offset) - 1)
        if self._batches and self._batches[index].last_offset < offset:
            index += 1
        return index

    def _segment_path(self, segment_offset: int) -> Path:
        return self.directory / f"{segment_offset:020d}.log"

    def _create_segment(self, segment_offset: int) -> None:
        path = self._segment_path(segment_offset)
        file = self._disk.open(path, create=True)
        try:
            self._disk.sync_dir(self.directory)
        except OSError:
            # The next start would treat the file as durable, though no later sync makes its name durable.
            file.close()
            with suppress(OSError):
                self._disk.remove(path)
            raise
        self._files[segment_offset] = file

    def _remove_segment(self, segment_offset: int) -> None:
        self._files.pop(segment_offset).close()
        self._unsynced.discard(segment_offset)
        for suffix in ("log", "index", "timeindex", "txnindex", "snapshot"):
            self._disk.remove(self.directory / f"{segment_offset:020d}.{suffix}")

    def _fail(self, error: OSError) -> StorageError:
        self._failed = StorageError(self.directory, f"the metadata log failed: {error}")
        return self._failed


def _synced_text(offset: int) -> bytes:
    digits = b"%020d" % offset
    return b"%s %08x\n" % (digits, zlib.crc32(digits))


def _read_synced(data: bytes) -> int | None:
    """Parse `_synced_text`; None for anything else, such as a mix of two texts after a failed write."""
    match = _SYNCED_TEXT.match(data)
    if match is None or (match["check"] and int(match["check"], 16) != zlib.crc32(match["offset"])):
        return None
    return int(match["offset"])


def _whole_batch_after(data: bytes, position: int, offset: int) -> bool:
    """Whether any undamaged batch of a later offset begins behind `position`."""
    magic = bytes((MAGIC,))
    # The magic byte is 16 bytes behind the begin of a batch: check each position where a batch could begin.
    found = data.find(magic, position + 17)
    while found >= 0:
        start = found - 16
        if len(data) - start >= HEADER_BYTES:
            header = BatchHeader.read(data, start)
            sane = HEADER_BYTES <= header.size_bytes <= len(data) - start and header.base_offset > offset
            if sane and crc_is_valid(memoryview(data)[start : start + header.size_bytes], header):
                return True
        found = data.find(magic, found + 1)
    return False
