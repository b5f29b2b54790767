"""Bugs to plant into the log, each beside what finds it: random walks, moves that die, or one test by name."""

from __future__ import annotations

from tests.sim.planted import Bug

_TRUNCATION, _FLUSH = "log.truncation:", "log.flush_state:FlushState."
_RECOVERY, _INDEX, _EPOCHS = "log.recovery:", "log.index:", "log.epoch_cache:EpochCache."
_SUMMARY = "log.summary:SegmentSummary."

# Found by random walks beside a plain model.
IN_WALKS = (
    Bug(
        "transaction index not read before it is kept",
        "log.segment_indexes:SegmentIndexes.clear",
        "if not self.is_loaded:",
        "self.is_loaded = True\nif False:",
        "after a kill, readers of committed data are given aborted records",
    ),
    Bug(
        "recovery point not taken back at a cut",
        _TRUNCATION + "_after_truncation",
        "log.on_truncated()",
        "pass",
        "after a cut and a loss of power, what was written behind the cut is believed to be durable",
    ),
    Bug(
        "snapshot not durable before what it replaces goes",
        "log.retention:begin_delete",
        'make_durable(disk, [], [segment_path(directory, base, ".snapshot")], [directory])',
        "pass",
        "retention, then a loss of power: open transactions are forgotten",
    ),
    Bug(
        "recovery trusts the active segment",
        "log.verification:check_batches",
        "if len(batch) < size or not crc_is_valid(batch, header):",
        "if len(batch) < size:",
        "a torn batch at the end is served",
    ),
    Bug(
        "recovery skips one segment too many",
        _RECOVERY + "_recover",
        "if following is not None and following <= recovery_point and not may_overflow(segment, following):",
        "if following is not None:",
        "a segment that was torn is not looked at",
    ),
    Bug(
        "later segments stay behind a cut",
        _RECOVERY + "_recover",
        "del segments[number + 1 :]",
        "pass",
        "records follow on records that are lost",
    ),
    Bug(
        "cut leaves the epochs",
        _TRUNCATION + "_after_truncation",
        "log.epochs.truncate_from_end(end)",
        "pass",
        "a follower gets epochs that were truncated",
    ),
    Bug(
        "cut leaves the producers",
        _TRUNCATION + "_after_truncation",
        "known, log.producers = log.producers, producers",
        "known = log.producers",
        "a batch that was cut off is taken for a duplicate",
    ),
    Bug(
        "cut keeps the batch that it falls on",
        "log.segment_list:SegmentList.truncate",
        "truncate_segment(active, position, end_offset, held)",
        "truncate_segment(active, position + next(active.headers(position))[1].size_bytes, end_offset, held)",
        "an offset is given twice",
    ),
    Bug(
        "retention by the oldest record",
        "log.retention:_is_too_old",
        "newest = segment.indexes.max_timestamp_ms",
        "newest = segment.first_timestamp_ms() or -1",
        "fresh records go with old ones",
    ),
    Bug(
        "retention counts one segment too many",
        "log.retention:count_deletable",
        "is_excess = config.deletes and config.retention_bytes >= 0 and excess >= segment.size_bytes",
        "is_excess = config.deletes and config.retention_bytes >= 0 and excess > 0",
        "less than retention.bytes is kept",
    ),
    Bug(
        "epoch of an offset off by one",
        _EPOCHS + "epoch_for_offset",
        "index = bisect_right(self._starts, offset) - 1",
        "index = bisect_right(self._starts, offset - 1) - 1",
        "the first record of a leader epoch is answered under the epoch before it",
    ),
    Bug(
        "epochs not durable with their records",
        _FLUSH + "begin",
        "epochs = None if self.epochs_are_written else self._epochs.lines()",
        "epochs = None",
        "a clean start knows nothing of the last epochs",
    ),
    Bug(
        "newest times outlive their segments",
        _SUMMARY + "dropped",
        "self._newest.clear()",
        "pass",
        "after retention a time is looked for in the wrong segment",
    ),
    Bug(
        "newest times outlive a cut",
        _SUMMARY + "truncated",
        "del self._newest[len(self._segments) - 1 :]",
        "pass",
        "a time is looked for where it was before the cut",
    ),
    Bug(
        "aborted transactions of a new segment not looked for",
        _SUMMARY + "record_aborted",
        "insort(self._aborted, self._bases[-1])",
        "pass",
        "readers of committed data are given aborted records",
    ),
)
# Found by moves between directories that die, or lose power, before one of their changes.
IN_MOVES = (
    Bug(
        "swapped before it is durable",
        "replica.log_dir_driver:LogDirMoves._flush",
        "await self._manager.disk.run_blocking(work)",
        "pass",
        "what was acknowledged as durable is lost with the power",
    ),
    Bug(
        "copied what was cut meanwhile",
        "replica.log_dir_move:LogDirMove.append",
        "if token != source.truncation_count or source is future:",
        "if False:",
        "the copy has records that the log never had there",
    ),
    Bug(
        "copy not aligned",
        "replica.log_dir_move:LogDirMove.begin_read",
        "_align(future, source)",
        "pass",
        "the copy keeps what an election took from the log",
    ),
)

# Random walks meet these too seldom: each has a test of its own.
IN_POWER_LOSSES = (
    Bug(
        "aborted transactions of lost markers stay",
        _RECOVERY + "load_producers",
        "_truncate_aborted(segments, newest)",
        "pass",
        "a loss of power takes a marker and leaves its entry: committed records are passed over",
    ),
)
