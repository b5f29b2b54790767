"""Control records: records that the broker itself writes between users' records.

The key of a record in a control batch has its kind: version (int16) and type (int16). Transaction markers
(KIP-98) end a transaction; the others exist in the metadata log alone (KIP-595, KIP-630, KIP-853).
"""

from __future__ import annotations

import struct
from enum import IntEnum

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.codec import encode
from odradek.protocol.declare import Message
from odradek.record.builder import build_batch
from odradek.record.record import Record

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlType(IntEnum):
    """The types of control records."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_key(kind: ControlType) -> bytes:
    """The key of a control record."""
    return _KEY.pack(0, kind)


def control_type(record: Record) -> ControlType | None:
    """The type of a record in a control batch; None for a type that this release does not know.

    Raises:
        ApiError: CORRUPT_MESSAGE for a key that is no control key.
    """
    if record.key is None or len(record.key) < _KEY.size:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a control record without a control key")
    _, kind = _KEY.unpack_from(record.key)
    try:
        return ControlType(kind)
    except ValueError:
        return None


def marker_coordinator_epoch(record: Record) -> int:
    """Under which epoch the coordinator wrote a transaction marker."""
    if record.value is None or len(record.value) < _MARKER.size:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a transaction marker without a value")
    epoch: int = _MARKER.unpack_from(record.value)[1]
    return epoch


def marker_value(coordinator_epoch: int) -> bytes:
    """The value of a transaction marker's record."""
    return _MARKER.pack(0, coordinator_epoch)


def transaction_marker(
    *, commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """One control batch that ends a producer's transaction in a partition."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    record = Record(control_key(kind), marker_value(coordinator_epoch), timestamp_ms=timestamp_ms)
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def control_batch(
    messages: list[tuple[ControlType, Message]], *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    """One control batch of the metadata log or of a snapshot; messages are written in version 0."""
    records = [Record(control_key(kind), encode(message, 0), timestamp_ms=timestamp_ms) for kind, message in messages]
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, control=True)
