"""Verifies a leader's response before the follower writes any of it.

A follower stores batches unchanged, and serves them once it leads. So the whole response is verified first, and
appended as a whole or not at all. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.numbers import INT32_MAX
from odradek.common.ports import Buffer
from odradek.record.batch import HEADER_BYTES, MAGIC, BatchHeader, compute_crc, read_size
from odradek.record.control import ControlType, control_type, marker_coordinator_epoch
from odradek.record.reader import read_records

Batch = tuple[memoryview, BatchHeader]
# The range of a segment's indexes (`segment.MAX_RELATIVE_OFFSET`).
MAX_SPANNED_OFFSETS = INT32_MAX


def read_replicated(
    data: Buffer, *, next_offset: int, latest_epoch: int, leader_epoch: int, is_empty: bool = False
) -> list[Batch]:
    """The whole batches of a response, each with its header; an incomplete last batch is omitted.

    Args:
        next_offset: the follower's log end offset. Offsets may have gaps, as after compaction, and never decrease.
        latest_epoch: the largest leader epoch in the follower's log; -1 if it has none.
        leader_epoch: the epoch of the request's leader. A batch of a later epoch was written while the response was
            being sent: the leader's file has changed.
        is_empty: the follower's log has no records; then the first batch may hold `next_offset` inside it.
    Raises:
        ApiError: CORRUPT_MESSAGE for batches that no leader has: a wrong checksum, format or length, decreasing offsets
            or epochs, a control record that cannot be decoded. A batch without an epoch (-1) may be anywhere.
    """
    batches: list[Batch] = []
    for chunk in _split(data):
        header = BatchHeader.read(chunk)
        if compute_crc(chunk) != header.crc:
            raise _corrupt(header, f"its checksum is not {header.crc}")
        if header.record_count < 0 or header.last_offset_delta < max(0, header.record_count - 1):
            raise _corrupt(header, f"{header.record_count} records up to offset {header.last_offset}")
        holds_next = is_empty and not batches and header.last_offset >= next_offset
        if header.base_offset < next_offset and not holds_next:
            raise _corrupt(header, f"offset {next_offset} or above was expected")
        if 0 <= header.partition_leader_epoch < latest_epoch:
            raise _corrupt(header, f"its leader epoch {header.partition_leader_epoch} follows {latest_epoch}")
        if header.partition_leader_epoch > leader_epoch:
            raise _corrupt(header, f"its leader epoch {header.partition_leader_epoch} is above {leader_epoch}")
        if header.is_control:
            try:
                read_marker(chunk, header)
            except ApiError as error:
                raise _corrupt(header, error.message) from None
        batches.append((chunk, header))
        next_offset = header.last_offset + 1
        latest_epoch = max(latest_epoch, header.partition_leader_epoch)
    return batches


def in_portions(batches: Sequence[Batch], max_bytes: int) -> Iterator[Sequence[Batch]]:
    """Divide batches into runs of at most `max_bytes` that fit into one segment; a larger batch is a run of its own.
    The leader's segments may be larger than the follower's."""
    portion: list[Batch] = []
    size = 0
    for batch in batches:
        length = len(batch[0])
        if portion and (
            size + length > max_bytes or batch[1].last_offset - portion[0][1].base_offset > MAX_SPANNED_OFFSETS
        ):
            yield portion
            portion, size = [], 0
        portion.append(batch)
        size += length
    if portion:
        yield portion


def _split(data: Buffer) -> Iterator[memoryview]:
    view = memoryview(data)
    position = 0
    while len(view) - position >= HEADER_BYTES:
        base_offset, size = read_size(view, position)
        if size < HEADER_BYTES:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the leader sent a batch of {size} bytes at {base_offset}")
        if view[position + 16] != MAGIC:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE, f"the leader sent format {view[position + 16]} at offset {base_offset}"
            )
        if size > len(view) - position:
            return
        yield view[position : position + size]
        position += size


def read_marker(chunk: Buffer, header: BatchHeader) -> tuple[ControlType, int] | None:
    """The type (ABORT or COMMIT) and coordinator epoch of a transaction marker.

    None for other control records, and for a batch without records, which compaction may leave.

    Raises:
        ApiError: CORRUPT_MESSAGE.
    """
    for record in read_records(chunk, header):
        kind = control_type(record)
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            return kind, marker_coordinator_epoch(record)
    return None


def _corrupt(header: BatchHeader, why: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"the leader sent a bad batch at offset {header.base_offset}: {why}")
