"""Metadata records and control records as record batches: encoding and decoding.

Control records hold the quorum's own state: the leader, the voters, the header and footer of a snapshot. Their key is
(int16 version 0, int16 type), as in every control batch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from odradek.common.errors import ApiError, ErrorCode, ProtocolError
from odradek.common.ports import Buffer
from odradek.common.turns import in_slices
from odradek.metadata.features import record_version
from odradek.protocol.codec import decode, encode
from odradek.protocol.declare import Message
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.k_raft_version_record import KRaftVersionRecord
from odradek.protocol.messages.leader_change_message import LeaderChangeMessage
from odradek.protocol.messages.snapshot_footer_record import SnapshotFooterRecord
from odradek.protocol.messages.snapshot_header_record import SnapshotHeaderRecord
from odradek.protocol.messages.voters_record import VotersRecord
from odradek.protocol.record_types import decode_metadata_record, encode_metadata_record
from odradek.record.batch import MAGIC, BatchHeader, crc_is_valid
from odradek.record.builder import build_batch
from odradek.record.reader import read_batches, read_records
from odradek.record.record import Record

CONTROL_TYPES: dict[int, type[Message]] = {
    2: LeaderChangeMessage,
    3: SnapshotHeaderRecord,
    4: SnapshotFooterRecord,
    5: KRaftVersionRecord,
    6: VotersRecord,
}
Prepared = tuple[Sequence[Message], Sequence[bytes], bool]
# Kafka's limit for one batch of the metadata log.
MAX_BATCH_BYTES = 8 * 1024 * 1024
# How many records are encoded in one step, some 5 us each.
RECORDS_PER_STEP = 1000
_CONTROL_KEYS = {cls: (0).to_bytes(2, "big") + number.to_bytes(2, "big") for number, cls in CONTROL_TYPES.items()}


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """One batch of the metadata log.

    Attributes:
        base_offset, last_offset: inclusive.
        position, size_bytes: of the batch, in the bytes that were read.
        records: (offset, record); of a control batch the control messages of known types.
    """

    base_offset: int
    last_offset: int
    leader_epoch: int
    timestamp_ms: int
    position: int
    size_bytes: int
    control: bool
    records: tuple[tuple[int, Message], ...]


def data_batch(values: Sequence[bytes], *, base_offset: int, leader_epoch: int, now_ms: int) -> bytes:
    """Return a batch of encoded metadata records."""
    records = [Record(key=None, value=value, timestamp_ms=now_ms) for value in values]
    return bytes(build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch))


def control_batch(messages: Sequence[Message], *, base_offset: int, leader_epoch: int, now_ms: int) -> bytes:
    """Return a batch of control messages; each is encoded in the version of its `version` field."""
    records = [
        Record(
            key=_CONTROL_KEYS[type(message)],
            value=encode(message, message.version),  # type: ignore[attr-defined]  # each of _CONTROL_KEYS has it
            timestamp_ms=now_ms,
        )
        for message in messages
    ]
    return bytes(build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, control=True))


def prepare(records: Sequence[Message], *, atomic: bool, metadata_version: int) -> Generator[None, None, Prepared]:
    """Encode one operation's records, in steps of `RECORDS_PER_STEP`.

    Returns:
        The records, their encoding, and whether they must be in one batch.

    Args:
        metadata_version: finalized before this operation; a record that finalizes another applies to all.
    Raises:
        ApiError: MESSAGE_TOO_LARGE for an atomic operation above 8 MiB.
    """
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == "metadata.version":
            metadata_version = record.feature_level
    values: list[bytes] = []
    for some in in_slices(records, RECORDS_PER_STEP):
        if values:
            yield
        values += [encode_metadata_record(record, record_version(record, metadata_version)) for record in some]
    if atomic and sum(map(len, values)) + 16 * len(values) > MAX_BATCH_BYTES:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, "one request changes more metadata than fits into one batch")
    return records, values, atomic


def pack(
    groups: Sequence[Prepared], *, base_offset: int, leader_epoch: int, now_ms: int
) -> tuple[list[bytes], list[tuple[int, Message]]]:
    """Pack operations' records into batches: several operations share a batch, an atomic one is never split.

    Args:
        groups: for each operation its records, their encoding, and whether it is atomic; an atomic one fits a batch.
    Returns:
        The batches, and the records with their offsets.
    """
    offset = base_offset
    batches: list[bytes] = []
    values: list[bytes] = []
    size = 0
    decoded: list[tuple[int, Message]] = []

    def seal() -> None:
        nonlocal values, size
        if values:
            first = offset - len(values)
            batches.append(data_batch(values, base_offset=first, leader_epoch=leader_epoch, now_ms=now_ms))
            values, size = [], 0

    for records, encoded, atomic in groups:
        group_bytes = sum(map(len, encoded)) + 16 * len(encoded)
        if atomic and size + group_bytes > MAX_BATCH_BYTES:
            seal()
        for record, value in zip(records, encoded, strict=True):
            if size + len(value) > MAX_BATCH_BYTES:
                seal()
            values.append(value)
            size += len(value) + 16
            decoded.append((offset, record))
            offset += 1
    seal()
    return batches, decoded


def decode_batches(data: Buffer) -> Iterator[DecodedBatch]:
    """Decode whole batches in order and verify the length and checksum of each.

    Raises:
        ValueError: a batch is incomplete or damaged; the text has its position.
    """
    end = 0
    view = memoryview(data)
    for position, header in read_batches(data):
        batch = view[position : position + header.size_bytes]
        if header.magic != MAGIC:
            raise ValueError(f"byte {position}: record format {header.magic}, not {MAGIC}")
        if not crc_is_valid(batch, header):
            raise ValueError(f"byte {position}: the checksum of the batch at offset {header.base_offset} is wrong")
        if header.last_offset < header.base_offset:
            raise ValueError(f"byte {position}: a batch at offset {header.base_offset} ends at {header.last_offset}")
        try:
            records = tuple(_decode_records(batch, header))
        except (ApiError, ProtocolError) as error:
            raise ValueError(f"byte {position}: {error}") from None
        end = position + header.size_bytes
        yield DecodedBatch(
            header.base_offset,
            header.last_offset,
            header.partition_leader_epoch,
            header.max_timestamp,
            position,
            header.size_bytes,
            header.is_control,
            records,
        )
    if end < len(data):
        raise ValueError(f"byte {end}: no whole record batch")


def _decode_records(batch: Buffer, header: BatchHeader) -> Iterator[tuple[int, Message]]:
    for record in read_records(batch, header):
        if not header.is_control:
            if record.value is None:
                raise ProtocolError(f"the metadata record at offset {record.offset} has no value")
            yield record.offset, decode_metadata_record(record.value)[0]
        elif (cls := _control_type(record.key)) is not None and record.value is not None:
            version = int.from_bytes(bytes(record.value[:2]), "big")
            yield record.offset, decode(cls, record.value, min(version, cls.VERSIONS.last))


def _control_type(key: Buffer | None) -> type[Message] | None:
    """The message type of a control record; None for a type that this version does not know."""
    return CONTROL_TYPES.get(int.from_bytes(key[2:4], "big")) if key is not None and len(key) >= 4 else None
