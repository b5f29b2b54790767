"""The append of a follower: batches of its leader, with unchanged offsets and leader epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.log.append_info import AppendInfo
from odradek.log.replicated import in_portions, read_replicated
from odradek.log.truncation import truncate_fully_and_start_at

if TYPE_CHECKING:
    from odradek.common.ports import Buffer
    from odradek.log.log import Log


def append_as_follower(log: Log, data: Buffer, *, now_ms: int, leader_epoch: int = 2**31 - 1) -> AppendInfo | None:
    """Append batches of the leader of `leader_epoch`; returns None if `data` has no whole batch.

    Raises:
        ApiError: CORRUPT_MESSAGE, as `read_replicated`, and nothing was written; KAFKA_STORAGE_ERROR. StorageError.
    """
    start, end, latest = log.log_start_offset, log.log_end_offset, log.epochs.latest_epoch
    batches = read_replicated(
        data, next_offset=end, latest_epoch=latest, leader_epoch=leader_epoch, is_empty=start == end
    )
    if not batches:
        return None
    first = batches[0][1].base_offset
    if first < end:
        # The leader's log begins inside this batch (DeleteRecords); the files begin with the batch.
        truncate_fully_and_start_at(log, first, now_ms=now_ms)
    for portion in in_portions(batches, log.config.segment_bytes):
        log.append_with_offsets([chunk for chunk, _ in portion], [header for _, header in portion], now_ms)
    log.log_start_offset = max(log.log_start_offset, start)
    return AppendInfo(first, log.log_end_offset - 1)
