"""The dirtiness of a log, and the extent of a cleaning. Pure.

The clean part of a log ends at its cleaned offset. Behind it, closed segments may be cleaned that are entirely below
the last stable offset, durable, and older than min.compaction.lag.ms.

Kafka does not require that they are durable. A removed record is replaced by a newer one, which a loss of power must
not remove.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from odradek.log.compaction.batches import LastOfProducer
from odradek.log.compaction.cleaning import CleaningPlan, SegmentPlan
from odradek.log.compaction.config import CleanerConfig
from odradek.log.config import NEVER
from odradek.log.index import AbortedTransaction
from odradek.log.log import Log
from odradek.log.search import collect_aborted
from odradek.log.segment import Segment
from odradek.log.transactions import rebuild_transactions


@dataclass(frozen=True, slots=True)
class Dirtiness:
    """The extent of a possible cleaning.

    Attributes:
        first_dirty_offset, end_offset: the range that may be cleaned; the end is exclusive.
        clean_bytes, dirty_bytes: of the segments before and behind the first dirty offset, up to the end offset.
        overdue_ms: the time since the oldest dirty record reached max.compaction.lag.ms; 0 if it has not.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int = 0

    @property
    def ratio(self) -> float:
        """The ratio of dirty bytes to all bytes that may be cleaned, 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, log: Log) -> bool:
        """Whether the log is dirty enough, or overdue."""
        return self.dirty_bytes > 0 and (self.overdue_ms > 0 or self.ratio > log.config.min_cleanable_dirty_ratio)


def cleanable_end(log: Log, first_dirty_offset: int, now_ms: int) -> int:
    """The offset (exclusive) up to which closed segments may be cleaned. Raises OSError: timestamps may have to be
    read."""
    limit = min(log.last_stable_offset, log.recovery_point)
    lag_ms = log.config.min_compaction_lag_ms
    segments = log.segments
    end = segments[0].base_offset
    for segment, following in pairwise(segments):
        if following.base_offset > limit:
            break
        if lag_ms > 0 and following.base_offset > first_dirty_offset and _newest_ms(segment) > now_ms - lag_ms:
            break
        end = following.base_offset
    return end


def examine(log: Log, now_ms: int) -> Dirtiness:
    """The dirtiness of a log. Raises OSError."""
    first = log.cleaned_offset
    if not log.log_start_offset <= first <= log.log_end_offset:
        first = log.log_start_offset
    end = cleanable_end(log, first, now_ms)
    clean = dirty = overdue_ms = 0
    for segment, following in pairwise(log.segments):
        if following.base_offset > end:
            break
        if following.base_offset <= first:
            clean += segment.size_bytes
            continue
        dirty += segment.size_bytes
        if not overdue_ms:
            overdue_ms = _overdue_ms(log, segment, now_ms)
    return Dirtiness(first, end, clean, dirty, overdue_ms)


def active_is_overdue(log: Log, now_ms: int) -> bool:
    """Whether the active segment must be closed so that its oldest record is compacted in time. Raises OSError."""
    active = log.segments[-1]
    return active.size_bytes > 0 and _overdue_ms(log, active, now_ms) > 0


def _overdue_ms(log: Log, segment: Segment, now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= NEVER or lag_ms <= 0:
        return 0
    first_ms = segment.first_timestamp_ms()
    return max(0, now_ms - first_ms - lag_ms) if first_ms is not None and first_ms >= 0 else 0


def _newest_ms(segment: Segment) -> int:
    segment.indexes.load()
    return segment.indexes.max_timestamp_ms if segment.indexes.max_timestamp_ms >= 0 else segment.created_ms


def make_plan(log: Log, dirtiness: Dirtiness, config: CleanerConfig, now_ms: int) -> CleaningPlan:
    """The plan of one cleaning. Raises OSError."""
    segments, end = log.segments, dirtiness.end_offset
    count = sum(following.base_offset <= end for following in segments[1:])
    plans = [
        SegmentPlan(segment.base_offset, following.base_offset, segment.size_bytes)
        for segment, following in pairwise(segments[: count + 1])
    ]
    producers = {
        entry.producer_id: LastOfProducer(entry.last_offset, entry.producer_epoch)
        for entry in log.producers.producers.values()
        if entry.last_offset < end
    }
    return CleaningPlan(
        directory=log.directory,
        segments=tuple(plans),
        first_dirty_offset=dirtiness.first_dirty_offset,
        aborted=_aborted_from(segments, count, end),
        producers=producers,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        table_bytes=config.table_bytes,
        read_bytes=config.read_bytes,
    )


def _aborted_from(segments: Sequence[Segment], first: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions with records below `end_offset` whose markers are in segment number `first` or later.

    Raises OSError.
    """
    found: list[AbortedTransaction] = []
    for segment in segments[first:]:
        segment.indexes.load()
        if segment.indexes.transactions_damaged:
            rebuild_transactions(segments)
        if collect_aborted(segment, 0, end_offset, found):
            break
    return tuple(sorted(found, key=lambda entry: entry.first_offset))
