"""Metrics of the cleaner and of compacted logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.common.errors import StorageError
from odradek.common.metrics import Family, Sample

if TYPE_CHECKING:
    from odradek.log.compaction.cleaner import Cleaner
    from odradek.log.compaction.plan import Dirtiness
    from odradek.log.log import Log


def cleaner_families(cleaner: Cleaner, logs: list[Log]) -> Iterator[Family]:
    """The cleaner's metrics; `logs` are all logs of the broker."""
    counts = cleaner.counts
    counter, gauge = Family.counter, Family.gauge
    yield counter("odradek_cleaner_runs", "Completed cleanings.", counts.cleanings)
    yield counter(
        "odradek_cleaner_runs_aborted", "Cleanings that were aborted because the log changed.", counts.aborted
    )
    yield counter("odradek_cleaner_read_bytes", "Bytes that cleanings read.", counts.read_bytes)
    yield counter("odradek_cleaner_written_bytes", "Bytes that cleanings wrote.", counts.written_bytes)
    yield counter("odradek_cleaner_records", "Records that cleanings read.", counts.records_read)
    yield counter("odradek_cleaner_records_removed", "Records that cleanings removed.", counts.records_removed)
    yield gauge("odradek_cleaner_last_seconds", "Duration of the last cleaning.", counts.last_ms / 1000)
    yield gauge("odradek_cleaner_longest_seconds", "Duration of the longest cleaning.", counts.longest_ms / 1000)
    yield gauge(
        "odradek_cleaner_max_buffer_utilization",
        "Maximum use of the memory for keys, 0 to 1.",
        counts.max_buffer_utilization,
    )
    yield gauge("odradek_cleaner_running", "Running cleanings.", len(cleaner.running))
    examined = list(_examined(cleaner, logs))
    overdue_ms = max((dirtiness.overdue_ms for _, dirtiness in examined), default=0)
    yield gauge(
        "odradek_cleaner_overdue_seconds",
        "Maximum time for which a log has exceeded max.compaction.lag.ms.",
        overdue_ms / 1000,
    )
    uncleanable = [log for log, _ in examined if cleaner.reason_uncleanable(log)]
    yield gauge("odradek_cleaner_uncleanable_logs", "Logs that cannot be cleaned.", len(uncleanable))
    labelled = [
        ((("topic", log.topic_partition[0]), ("partition", str(log.topic_partition[1]))), log, dirtiness)
        for log, dirtiness in examined
    ]
    yield Family(
        "odradek_log_cleaned_offset",
        "gauge",
        "Offset up to which a log is compacted.",
        tuple(Sample(log.cleaned_offset, labels) for labels, log, _ in labelled),
    )
    yield Family(
        "odradek_log_dirty_ratio",
        "gauge",
        "Ratio of a log's cleanable bytes that are not compacted, 0 to 1.",
        tuple(Sample(dirtiness.ratio, labels) for labels, _, dirtiness in labelled),
    )
    yield Family(
        "odradek_log_dirty_bytes",
        "gauge",
        "Bytes of a log whose keys the next cleaning reads.",
        tuple(Sample(dirtiness.dirty_bytes, labels) for labels, _, dirtiness in labelled),
    )


def _examined(cleaner: Cleaner, logs: list[Log]) -> Iterator[tuple[Log, Dirtiness]]:
    for log in logs:
        if log.config.compacted:
            try:
                yield log, cleaner.examine(log)
            except StorageError:
                continue  # its directory is going offline: the next write to it reports that
