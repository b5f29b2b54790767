"""A log as its readers see it: which segments hold an offset, a time, an aborted transaction.

Nothing here changes the log. What is read are slices of files, so that no record passes through Python, but for
bytes that are older than this start: those are verified once before they are served. The searches that must look at
single records come in steps for another thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.log_lines import get_logger
from odradek.log.checkpoints import TopicPartition
from odradek.log.config import LogConfig
from odradek.log.epoch_cache import EpochCache
from odradek.log.files import FileCache, FileSlice
from odradek.log.index import AbortedTransaction
from odradek.log.recovery import LoadedLog
from odradek.log.search import FoundTimestamp, TimestampSearch, take_aborted
from odradek.log.segment import DamagedBatchError, Segment
from odradek.log.summary import Summary
from odradek.log.transactions import rebuild_transactions

_log = get_logger("log.reading")


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What a read found: slices of files, nothing copied; empty at the end of what may be read."""

    chunks: list[FileSlice]
    size_bytes: int


NOTHING = ReadResult([], 0)
FETCHED_AGAIN = "nothing: it is fetched from another replica"
BY_HAND = (
    "stop this node and restore the file from a copy; or, with other replicas, remove the partition's directory, so "
    "that it is fetched again; or delete the records up to beyond it"
)


class _DamageError(Exception):
    def __init__(self, segment: Segment, position: int) -> None:
        super().__init__()
        self.segment = segment
        self.position = position


class ReadableLog:
    """The segments of one partition, in order; the last is the active one. Marks and config as `log.Log` has them."""

    config: LogConfig

    def __init__(self, files: FileCache, directory: Path, topic_partition: TopicPartition, loaded: LoadedLog) -> None:
        self._files = files
        self.directory = directory
        self.log_dir = directory.parent
        self.topic_partition = topic_partition
        self._segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._summary = Summary(self._segments, self._bases)
        for segment in loaded.segments[:-1]:
            segment.is_sealed = True
        self.epochs: EpochCache = loaded.epochs
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.has_left = False  # its directory is no partition's any more, or its disk failed
        self.repair_count = 0
        self._told_damage: set[tuple[int, int]] = set()
        # Called with each damaged batch that a reader wanted; says whether it will be repaired from elsewhere.
        self.on_damage: Callable[[Segment, int], bool] = lambda segment, position: False

    def share_files(self, files: FileCache) -> None:
        """Open files of these from now on: a log that another thread opened comes to the loop."""
        self._files = files
        for segment in self._segments:
            segment.share_files(files)

    @property
    def segments(self) -> Sequence[Segment]:
        """In order; the last is the active one. They change with the next append, roll or cut."""
        return self._segments

    @property
    def segment_starts(self) -> list[int]:
        """Base offsets of the segments; the last is the active one."""
        return self._bases

    @property
    def size_bytes(self) -> int:
        return self._summary.size_bytes

    def end_of(self, segment: Segment) -> int:
        """Where a segment of this log ends (exclusive offset)."""
        index = bisect_right(self._bases, segment.base_offset)
        return self._bases[index] if index < len(self._bases) else self.log_end_offset

    def read(
        self, offset: int, *, max_bytes: int, upper_offset: int | None = None, at_least_one: bool = True
    ) -> ReadResult:
        """Batches from the one that holds `offset` on, out of one segment.

        Args:
            upper_offset: exclusive; None for the log's end. Batches that reach beyond are left out.
            at_least_one: the first batch is given whole, even when it is larger than `max_bytes`.
        Returns:
            Slices of at most `max_bytes`; the last batch may be cut off, as Kafka's clients expect.
        Raises:
            ApiError: OFFSET_OUT_OF_RANGE below the log start or above the log end; CORRUPT_MESSAGE where the first
                batch is not what was written: no reader gets it. StorageError.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in [{self.log_start_offset}, {self.log_end_offset}] of {self.topic_partition}",
            )
        upper = self.log_end_offset if upper_offset is None else min(upper_offset, self.log_end_offset)
        if offset >= upper or (max_bytes <= 0 and not at_least_one):
            return NOTHING
        try:
            return self._read(offset, max_bytes, upper, at_least_one)
        except _DamageError as damage:
            raise self._damaged(damage.segment, damage.position, offset) from None
        except OSError as error:
            raise StorageError(self.log_dir, f"{self.directory}: {error}") from error

    def _read(self, offset: int, max_bytes: int, upper: int, at_least_one: bool) -> ReadResult:
        for index in range(max(0, bisect_right(self._bases, offset) - 1), len(self._segments)):
            segment = self._segments[index]
            if segment.base_offset >= upper:
                break
            found = segment.locate(offset)
            if found is None:
                if segment.scan_end < segment.size_bytes:
                    raise _DamageError(segment, segment.scan_end)
                continue
            position, first = found
            if first.base_offset >= upper:
                break
            end_position, end_offset = segment.size_bytes, self.end_of(segment)
            if upper < end_offset:
                beyond = segment.locate(upper)
                end_position = beyond[0] if beyond is not None else segment.scan_end
            try:
                piece = segment.read(
                    position,
                    first,
                    max_bytes=max_bytes,
                    end_position=end_position,
                    offset=offset,
                    end_offset=end_offset,
                    at_least_one=at_least_one,
                )
            except DamagedBatchError as error:
                raise _DamageError(segment, error.position) from None
            return NOTHING if piece is None else ReadResult([piece], piece.length)
        return NOTHING

    def _damaged(self, segment: Segment, position: int, offset: int) -> ApiError:
        """Tell of damage below the recovery point, in the log once for each place."""
        topic, partition_id = self.topic_partition
        text = f"the batch of offset {offset} of {topic}-{partition_id} is damaged at byte {position} of {segment.path}"
        is_mended = self.on_damage(segment, position)
        if (segment.base_offset, position) not in self._told_damage:
            self._told_damage.add((segment.base_offset, position))
            _log.error(
                "a damaged batch is not served",
                topic=topic,
                partition=partition_id,
                offset=offset,
                file=segment.path,
                position=position,
                what_to_do=FETCHED_AGAIN if is_mended else BY_HAND,
            )
        return ApiError(ErrorCode.CORRUPT_MESSAGE, text)

    def report_damage(self, segment: Segment, position: int, offset: int) -> None:
        """Damage was found where no reader was; as where one finds it."""
        self._damaged(segment, position, offset)

    def mended(self, segment: Segment, position: int) -> None:
        """What lay there is as it was written: damage at the same place would be news."""
        self.repair_count += 1
        self._told_damage.discard((segment.base_offset, position))
        self._summary.mended()

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that have records in [start, end), by first offset."""
        found: list[AbortedTransaction] = []
        first = self._bases[max(0, bisect_right(self._bases, start_offset) - 1)]
        for segment in self._summary.with_aborted(self._files.disk, self.directory, first):
            segment.load_indexes()
            if segment.transactions_damaged:
                rebuild_transactions(self._segments)
                self._summary.forget_aborted()
                return self.aborted_transactions(start_offset, end_offset)
            if take_aborted(segment, start_offset, end_offset, found):
                break
        return sorted(found, key=lambda entry: entry.first_offset)

    def search_timestamp(self, timestamp_ms: int | None) -> TimestampSearch:
        """The search for the first record that is at least so new; None seeks the newest of all (KIP-734)."""
        limit = self.config.batch_rules().max_decompressed_bytes
        return TimestampSearch(self._segments, self._bases, self._summary, timestamp_ms, self.log_start_offset, limit)

    def offset_for_timestamp(self, timestamp_ms: int) -> FoundTimestamp | None:
        """The same search at once; blocks. Raises OSError."""
        return self.search_timestamp(timestamp_ms).run()

    def max_timestamp_offset(self) -> FoundTimestamp | None:
        """The newest record, the first where several are; blocks. Raises OSError."""
        return self.search_timestamp(None).run()

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch not above the asked one, its end offset exclusive); (-1, -1) where undefined (KIP-279)."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)
