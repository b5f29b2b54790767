"""The 61-byte header of a record batch (format v2), which is all that the hot path reads.

`base_offset` and `partition_leader_epoch` lie before the bytes that the CRC covers, so the broker patches both in place
and the producer's CRC stays valid. Source: Kafka's message format v2 (KIP-98), DefaultRecordBatch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import crc32c as _crc32c

from odradek.common.numbers import INT32_MAX
from odradek.common.ports import Buffer

HEADER_BYTES: Final = 61
# base_offset and batch_length, which batch_length does not count.
LOG_OVERHEAD_BYTES: Final = 12
CRC_POSITION: Final = 17
CRC_START: Final = 21
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_POSITION: Final = 43
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
MAX_SEQUENCE: Final = INT32_MAX

_HEADER = struct.Struct(">qiibIhiqqqhii")
_SIZE = struct.Struct(">qi")
_LONG = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_PLACE = struct.Struct(">qii")
_CRC = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")

COMPRESSION_MASK: Final = 0x07
_TIMESTAMP_TYPE_MASK = 0x08
_TRANSACTIONAL_MASK = 0x10
_CONTROL_MASK = 0x20
_DELETE_HORIZON_MASK = 0x40
# The attributes that a client may set.
CLIENT_ATTRIBUTES: Final = COMPRESSION_MASK | _TRANSACTIONAL_MASK

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

COMPRESSION_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def advance_sequence(sequence: int, by: int) -> int:
    """The sequence `by` records after `sequence`; after 2**31 - 1 comes 0."""
    return (sequence + by) & MAX_SEQUENCE


class BatchHeader(NamedTuple):
    """The fields of a batch's header, in the order in which they lie in it.

    base_offset is inclusive; batch_length counts the bytes behind itself; timestamps are ms since 1970 UTC.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """Inclusive."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Inclusive; NO_SEQUENCE where the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return advance_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> int:
        """The codec's number: an index of COMPRESSION_NAMES, or 5 to 7 that do not exist."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME or LOG_APPEND_TIME."""
        return LOG_APPEND_TIME if self.attributes & _TIMESTAMP_TYPE_MASK else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL_MASK)

    @property
    def has_delete_horizon(self) -> bool:
        """base_timestamp says from when tombstones may be removed (KIP-534)."""
        return bool(self.attributes & _DELETE_HORIZON_MASK)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    def with_offset(self, base_offset: int, leader_epoch: int) -> BatchHeader:
        """This header as a leader writes it."""
        return tuple.__new__(BatchHeader, (base_offset, self.batch_length, leader_epoch, *self[3:]))

    @classmethod
    def read(cls, data: Buffer, position: int = 0) -> BatchHeader:
        """The header at `position`; struct.error where fewer than 61 bytes are there."""
        return tuple.__new__(cls, _HEADER.unpack_from(data, position))


def total_bytes(headers: Sequence[BatchHeader]) -> int:
    """The size of several whole batches."""
    if len(headers) == 1:
        return headers[0].batch_length + LOG_OVERHEAD_BYTES
    return sum(header.batch_length + LOG_OVERHEAD_BYTES for header in headers)


def batch_attributes(
    *, compression: int, timestamp_type: int = CREATE_TIME, transactional: bool = False, control: bool = False
) -> int:
    """The attributes field of these properties."""
    return (
        compression
        | (_TIMESTAMP_TYPE_MASK if timestamp_type == LOG_APPEND_TIME else 0)
        | (_TRANSACTIONAL_MASK if transactional else 0)
        | (_CONTROL_MASK if control else 0)
    )


def with_compression(attributes: int, compression: int) -> int:
    """These attributes with another codec."""
    return attributes & ~COMPRESSION_MASK | compression


def with_delete_horizon(attributes: int, *, wanted: bool = True) -> int:
    """These attributes saying that base_timestamp is a delete horizon, or that it is none (KIP-534)."""
    return attributes | _DELETE_HORIZON_MASK if wanted else attributes & ~_DELETE_HORIZON_MASK


def pack_header(header: BatchHeader) -> bytes:
    """The 61 bytes of a header."""
    return _HEADER.pack(*header)


def read_size(data: Buffer, position: int = 0) -> tuple[int, int]:
    """(base_offset, size in bytes of the whole batch) of the batch at `position`."""
    base_offset, length = _SIZE.unpack_from(data, position)
    return base_offset, length + LOG_OVERHEAD_BYTES


def read_max_timestamp(data: Buffer) -> int:
    """The largest timestamp in the header of the batch at the start of `data`."""
    found: int = _LONG.unpack_from(data, MAX_TIMESTAMP_POSITION)[0]
    return found


def compute_crc(batch: Buffer) -> int:
    """CRC-32C over everything behind the CRC field of one whole batch."""
    return int(_crc32c.crc32c(memoryview(batch)[CRC_START:]))


def crc_is_valid(batch: Buffer, header: BatchHeader) -> bool:
    """Whether the bytes of one whole batch are those that its writer sealed."""
    return compute_crc(batch) == header.crc


def patch_base_offset(batch: bytearray | memoryview, base_offset: int, *, position: int = 0) -> None:
    """Set the base offset of the batch at `position`; the CRC does not cover it."""
    _LONG.pack_into(batch, position, base_offset)


def patch_leader_epoch(batch: bytearray | memoryview, leader_epoch: int, *, position: int = 0) -> None:
    """Set the leader epoch of the batch at `position`; the CRC does not cover it."""
    _EPOCH.pack_into(batch, position + LOG_OVERHEAD_BYTES, leader_epoch)


def patch_place(batch: bytearray | memoryview, header: BatchHeader) -> None:
    """Set the base offset and the leader epoch of one whole batch to those of its header, with one write: the length
    between the two is written as it is."""
    _PLACE.pack_into(batch, 0, header.base_offset, header.batch_length, header.partition_leader_epoch)


def stamp_log_append_time(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Make one whole batch bear the broker's time, and update its CRC, which covers the time."""
    attributes = struct.unpack_from(">h", batch, CRC_START)[0] | _TIMESTAMP_TYPE_MASK
    struct.pack_into(">h", batch, CRC_START, attributes)
    _LONG.pack_into(batch, MAX_TIMESTAMP_POSITION, timestamp_ms)
    seal(batch)


def stamp_producer(
    batch: bytearray | memoryview, *, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
) -> None:
    """Make one whole batch the producer's, and update the CRC, which covers all of it."""
    attributes = struct.unpack_from(">h", batch, CRC_START)[0]
    attributes = attributes | _TRANSACTIONAL_MASK if transactional else attributes & ~_TRANSACTIONAL_MASK
    struct.pack_into(">h", batch, CRC_START, attributes)
    _PRODUCER.pack_into(batch, PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    seal(batch)


def seal(batch: bytearray | memoryview) -> None:
    """Compute the CRC of one whole batch and write it into its header."""
    _CRC.pack_into(batch, CRC_POSITION, compute_crc(batch))
