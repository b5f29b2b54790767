"""Ends a mirror at the leader of a partition: aborts the source's open transactions, and removes its producers.

The leader writes an abort marker for each open transaction of the source, then one control batch without a producer, a
leader change. Every replica removes the earlier producers at this batch (`ProducerState.remove_ended`), at each start
too. Each step depends only on the log, so the next leader completes the work of one that dies (ADR 0020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError
from odradek.protocol.messages.leader_change_message import LeaderChangeMessage
from odradek.record.control import ControlType, control_batch, transaction_marker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.log.log import Log
    from odradek.log.producer_state import ProducerEntry
    from odradek.record.batch import BatchHeader
    from odradek.replica.partition import Partition


def end_mirror(partition: Partition, now_ms: int) -> None:
    """End the mirror, unless its log shows that this was done: the partition accepts records from now on.

    Args:
        now_ms: wall clock, for the markers.
    Raises:
        ApiError: KAFKA_STORAGE_ERROR, the disk is full; it is still a mirror. StorageError.
    """
    log = partition.log
    if not has_ended(log, partition.first_own_epoch, _own_from(partition)):
        try:
            _end(partition, now_ms)
        except ApiError:
            if log.epochs.truncate_from_end(log.log_end_offset):
                log.flush_state.epochs_are_written = False  # no batch of that epoch came, and it would be taken for one
            raise
    partition.is_mirror = False
    begin_epoch(partition)


def _end(partition: Partition, now_ms: int) -> None:
    for entry in _open_at_source(partition.log, _own_from(partition)):
        partition.append_control(
            transaction_marker(
                commit=False,
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                coordinator_epoch=max(0, entry.coordinator_epoch),
                timestamp_ms=now_ms,
            ),
            now_ms=now_ms,
        )
    partition.append_control(_end_of_mirror(partition, now_ms), now_ms=now_ms)


def begin_epoch(partition: Partition) -> None:
    """Note where a leadership begins: it shows followers where logs diverge.

    Alone, the first append of the leadership is early enough, and saves an fsync for each of ten thousand partitions at
    start.
    """
    if len(partition.assigned_replicas) > 1:
        partition.log.assign_epoch(partition.leader_epoch, partition.log.log_end_offset)


def has_ended(log: Log, first_own_epoch: int, own_from: int = -1) -> bool:
    """Whether the log has the batch that ends the mirror, or had it before retention. Raises StorageError.

    It is the first batch of the epochs from `first_own_epoch` on, except markers; records of clients follow it.
    Transactions that began below `own_from` (`first_own_epoch` if that is -1) are the source's. An epoch of this
    cluster that began before the log start had the batch, unless transactions of the source are still open.
    """
    start = next((offset for epoch, offset in log.epochs.entries() if epoch >= first_own_epoch), None)
    if start is None:
        return False
    has_markers = False
    try:
        for each in _headers_from(log, start):
            if not (each.is_control and each.has_producer_id):
                return True
            has_markers = True
    except OSError as error:
        raise log.partition_dir.failed(error) from error
    if not 0 < start <= log.log_start_offset:
        return False
    return not (has_markers and _open_at_source(log, first_own_epoch if own_from < 0 else own_from))


def _own_from(partition: Partition) -> int:
    return partition.first_own_epoch if partition.own_from < 0 else partition.own_from


def _open_at_source(log: Log, own_from: int) -> list[ProducerEntry]:
    """The open transactions of the source; after a cancelled failback without those of this cluster's coordinators."""
    return [entry for entry in log.producers.open_transactions() if log.epoch_of(entry.transaction_start) < own_from]


def _headers_from(log: Log, offset: int) -> Iterator[BatchHeader]:
    for segment in log.segments.from_offset(offset):
        for _, header in segment.headers(segment.position_of(offset)):
            yield header


def _end_of_mirror(partition: Partition, now_ms: int) -> bytes:
    change = LeaderChangeMessage(version=0, leader_id=partition.broker_id)
    return control_batch(
        [(ControlType.LEADER_CHANGE, change)],
        base_offset=partition.log.log_end_offset,
        leader_epoch=partition.leader_epoch,
        timestamp_ms=now_ms,
    )
