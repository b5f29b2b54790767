"""Truncates a log: after a divergence from the leader's log, or to restart at another offset.

First the producers' state below the new end is loaded: if a file cannot be opened, nothing changes. Then the segments
are truncated durably. Finally the offsets, leader epochs and producers are set to their values at the new end.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from odradek.common.log_lines import get_logger
from odradek.log.producer_state import ProducerState
from odradek.log.recovery import load_producers, snapshot_offsets
from odradek.log.segment import Segment
from odradek.log.segment_file import segment_path
from odradek.log.segment_removal import mark_deleted

_log = get_logger("log.truncation")

if TYPE_CHECKING:
    from odradek.log.log import Log


def truncate_to(log: Log, offset: int) -> bool:
    """Remove all records at or above `offset`; returns whether there were any. Raises StorageError.

    The log may end below `offset`: before a batch that holds `offset` inside it, as when the leader's log begins inside
    that batch (DeleteRecords), or before damage that may hide records to be removed.
    """
    if offset >= log.log_end_offset:
        # Remove the epoch of a leader that wrote nothing; otherwise the logs would seem to diverge here again.
        if log.epochs.truncate_from_end(log.log_end_offset):
            log.flush_state.write_epochs()
        return False
    if offset < log.segments.bases[0]:
        truncate_fully_and_start_at(log, offset)
        return True
    try:
        end, (producers, notes) = log.segments.truncate(offset, partial(_load, log), partial(_drop, log))
        # Records below the log start stay deleted.
        end = max(end, min(log.log_start_offset, offset))
        log.reset_offsets(min(log.log_start_offset, end), end)
        _after_truncation(log, producers, notes)
    except OSError as error:
        raise log.partition_dir.failed(error) from error
    return True


def truncate_fully_and_start_at(log: Log, offset: int, *, now_ms: int = 0) -> None:
    """Remove all records and begin at `offset`. Raises StorageError."""
    producers = ProducerState()
    producers.map_end_offset = offset
    try:
        snapshots = snapshot_offsets(log.partition_dir.files.disk, log.directory)
        log.segments.restart(offset, now_ms, partial(_drop, log), partial(_before_restart, log, offset, snapshots))
        log.reset_offsets(offset, offset)
        log.epochs.clear()
        _after_truncation(log, producers, [])
    except OSError as error:
        raise log.partition_dir.failed(error) from error


def _before_restart(log: Log, offset: int, snapshots: list[int]) -> None:
    """Lower the log start offset and remove producer snapshots, which a start after a crash would apply to the new log.

    With a higher log start offset the log would lack records that its leader has; an open transaction would stay open,
    because its marker is not among the new records.
    """
    if log.log_start_offset > offset:
        log.log_start_offset = offset
        log.on_truncated()
    for snapshot in snapshots:
        log.partition_dir.files.disk.remove(segment_path(log.directory, snapshot, ".snapshot"))


def _drop(log: Log, segment: Segment) -> None:
    log.remove_later(mark_deleted(segment))


def _load(log: Log, segments: list[Segment], end: int) -> tuple[ProducerState, list[str]]:
    notes = list[str]()
    return load_producers(log.partition_dir.files.disk, log.directory, segments, end, notes), notes


def _after_truncation(log: Log, producers: ProducerState, notes: list[str]) -> None:
    end = log.log_end_offset
    log.truncation_count += 1
    log.on_truncated()
    if log.cleaned_offset > end:
        log.cleaned_offset = end
        log.on_cleaned_range_truncated()
    log.epochs.truncate_from_end(end)
    log.flush_state.write_epochs()
    known, log.producers = log.producers, producers
    if log.producers.unreplayed_from is not None:
        log.producers.restore_known_batches(known, end)
    for note in notes:
        _log.warning("log recovery", note=note)
