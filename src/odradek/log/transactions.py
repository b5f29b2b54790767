"""Applies transaction markers to the producers of a log and to the index of aborted transactions."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Buffer
from odradek.log.producer_state import ProducerState
from odradek.log.segment import Segment
from odradek.record.batch import BatchHeader, crc_is_valid
from odradek.record.control import ControlType, control_type, marker_coordinator_epoch
from odradek.record.reader import read_records


def apply_control_batch(
    producers: ProducerState, segment: Segment, batch: Buffer, header: BatchHeader, last_stable_offset: int
) -> None:
    """Apply a control batch in `segment` to the producers and the index.

    The batch must be decoded, because the header lacks its type. A batch without records is a marker that compaction
    has emptied. A control batch without a producer ends a mirror (ADR 0020).

    Raises:
        ApiError: CORRUPT_MESSAGE, the marker cannot be decoded.
    """
    if not header.has_producer_id:
        producers.remove_ended()
        return
    if header.record_count == 0:
        return
    record = read_records(batch, header)[0]
    kind = control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return
    epoch = marker_coordinator_epoch(record)
    aborted = producers.end_transaction(header, kind, epoch, last_stable_offset)
    if aborted is not None:
        segment.indexes.load()
        entries = segment.indexes.transactions.entries
        if not entries or entries[-1].last_offset < aborted.last_offset:  # otherwise it was written before a crash
            segment.indexes.transactions.append(aborted)


def replay_batch(state: ProducerState, segment: Segment, position: int, header: BatchHeader, notes: list[str]) -> None:
    """Apply one batch of a file to the producers.

    A damaged marker ends no transaction: its records stay unstable, which is safe, and the log can be opened.
    """
    if not header.is_control:
        state.update(header)
        return
    try:
        marker = segment.batch_bytes(position, header)
        if not crc_is_valid(marker, header):
            # Read it again: an error in memory or transfer does not repeat.
            marker = segment.batch_bytes(position, header)
        # Nothing has verified it below the recovery point, and one bit distinguishes a commit from an abort.
        if not crc_is_valid(marker, header):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "its CRC does not match")
        apply_control_batch(state, segment, marker, header, header.base_offset)
    except ApiError as error:
        notes.append(f"{segment.path}: the marker at offset {header.base_offset} cannot be read: {error.message}")


def rebuild_transactions(segments: Sequence[Segment]) -> None:
    """Rebuild the indexes of aborted transactions from the whole log."""
    state = ProducerState()
    for segment in segments:
        segment.indexes.transactions.clear()
        segment.indexes.transactions_damaged = False
        for position, header in segment.indexes.surviving_headers(0):
            replay_batch(state, segment, position, header, [])
