"""What a produced batch must be before it may enter the log.

Header checks cost the same for one record as for ten thousand and run for every batch: size, magic, CRC, counts,
offsets, attributes, producer fields, timestamps. Since the CRC covers everything behind it, a batch that passes holds
exactly what its producer sealed; what is left is a producer that lies. The records themselves are walked where the
topic's settings need each of them (compaction, limits on timestamps that the header cannot prove) and where they are so
few that it costs next to nothing (`WALKED_RECORDS`); docs/adr/0005-what-produce-checks.md has the measurement.

Source: Kafka's ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Buffer
from odradek.record.batch import (
    COMPRESSION_MASK,
    CREATE_TIME,
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    BatchHeader,
    crc_is_valid,
    read_size,
)
from odradek.record.reader import MAX_RECORDS_BYTES, RecordOutline, outline_records, records_bytes

# Batches of so few records are walked one by one, which catches a lying count, length or offset with its index.
WALKED_RECORDS = 16
WALKED_BYTES = 64 * 1024
# What such a small batch may decompress to; beyond it is left to its readers, who cap it too. A bomb costs this much.
WALKED_OUTPUT_BYTES = 1024 * 1024
# Length, attributes, both deltas, two lengths and the header count of a record are at least a byte each.
MIN_RECORD_BYTES = 7
ZSTD = 4
# The first Produce version whose clients are known to read zstd (KIP-110).
FIRST_ZSTD_VERSION = 7
NEVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RecordError:
    """Which record of a batch is refused (KIP-467)."""

    index: int
    message: str


class InvalidRecordsError(ApiError):
    """A batch is refused because of some of its records."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The settings of a topic that decide which batches may enter it.

    Attributes:
        max_message_bytes: of one batch as it is sent, compressed (max.message.bytes).
        compacted: every record needs a key.
        create_time: timestamps are the producer's, so their limits apply.
        before_max_ms, after_max_ms: how far a timestamp may lie behind and before the broker's clock.
        max_decompressed_bytes: what a batch may decompress to, where it must be decompressed.
    """

    max_message_bytes: int = 1_048_588
    compacted: bool = False
    create_time: bool = True
    before_max_ms: int = NEVER_MS
    after_max_ms: int = 3_600_000
    max_decompressed_bytes: int = MAX_RECORDS_BYTES


@dataclass(slots=True)
class _Walk:
    errors: list[RecordError] = field(default_factory=list)
    code: ErrorCode = ErrorCode.INVALID_RECORD


def validate_produced(
    data: Buffer, rules: BatchRules, *, now_ms: int, api_version: int = 13, from_client: bool = True
) -> BatchHeader:
    """Check what one Produce request brings for one partition; returns the header of its one batch.

    Args:
        data: the `records` field; must be exactly one batch of format v2.
        now_ms: the broker's wall clock, for limits on timestamps.
        api_version: of the request; zstd needs 7.
        from_client: False for what the broker itself writes (coordinators, markers).
    Raises:
        ApiError: INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, INVALID_TIMESTAMP;
            as InvalidRecordsError where records are to blame.
    """
    header = _read_single_header(data)
    if header.size_bytes > rules.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append is {header.size_bytes} bytes which exceeds the maximum configured "
            f"value of {rules.max_message_bytes}.",
        )
    if not crc_is_valid(data, header):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc})")
    _check_header(header, api_version, from_client=from_client)
    if rules.create_time:
        _check_timestamp(data, header, rules, now_ms)
    if from_client and needs_record_walk(header, rules):
        _walk_records(data, header, rules, now_ms)
    return header


def needs_record_walk(header: BatchHeader, rules: BatchRules) -> bool:
    """Whether this batch's records are looked at one by one."""
    return _must_see_records(rules) or (header.record_count <= WALKED_RECORDS and header.size_bytes <= WALKED_BYTES)


def is_long_walk(data: Buffer, rules: BatchRules) -> bool:
    """Whether a check of this batch looks at so many records that it belongs off the loop."""
    if not _must_see_records(rules) or len(data) < HEADER_BYTES or data[16] != MAGIC:
        return False
    return len(data) > WALKED_BYTES or BatchHeader.read(data).record_count > WALKED_RECORDS


def _must_see_records(rules: BatchRules) -> bool:
    """Whether a topic's settings are about single records."""
    return rules.compacted or (rules.create_time and rules.before_max_ms != NEVER_MS)


def _read_single_header(data: Buffer) -> BatchHeader:
    if len(data) < HEADER_BYTES:
        if len(data) > 16 and data[16] != MAGIC:
            raise _other_format(data[16])
        raise _invalid(f"a record batch of {len(data)} bytes is shorter than its header")
    magic = data[16]
    if magic != MAGIC:
        raise _other_format(magic)
    _, size = read_size(data)
    if size < HEADER_BYTES:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record batch says that it has {size} bytes")
    if size > len(data):
        raise _invalid(f"a record batch says that it has {size} bytes, {len(data)} came")
    if size < len(data):
        raise ApiError(ErrorCode.INVALID_RECORD, "Produce requests must contain exactly one record batch per partition")
    try:
        return BatchHeader.read(data)
    except struct.error as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def _other_format(magic: int) -> ApiError:
    if magic in (0, 1):
        return _invalid(f"records of format v{magic} are no longer taken: record batches have magic 2")
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")


def _check_header(header: BatchHeader, api_version: int, *, from_client: bool) -> None:
    if header.record_count <= 0:
        raise _invalid(f"Invalid reported count for record batch: {header.record_count}")
    if header.last_offset_delta + 1 != header.record_count:
        raise _invalid(
            f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}] and count of records "
            f"{header.record_count}"
        )
    if header.base_offset != 0 and from_client:
        raise _invalid(f"The base_offset of a record batch in an append must be 0, but it is {header.base_offset}")
    codec = header.compression
    if codec == 0 and header.record_count * MIN_RECORD_BYTES > header.size_bytes - HEADER_BYTES:
        raise _invalid(f"{header.record_count} records do not fit into {header.size_bytes} bytes")
    if codec > ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has number {codec}")
    if codec == ZSTD and api_version < FIRST_ZSTD_VERSION:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "Produce requests before version 7 must not use zstd (KIP-110)"
        )
    if from_client and (header.attributes & ~COMPRESSION_MASK or header.producer_id != NO_PRODUCER_ID):
        _check_client_attributes(header)


def _check_client_attributes(header: BatchHeader) -> None:
    if header.is_control:
        raise _invalid("Clients are not allowed to write control records")
    if header.has_delete_horizon:
        raise _invalid("Clients are not allowed to set the delete horizon of a record batch")
    if header.timestamp_type != CREATE_TIME:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "Invalid timestamp type in a produced batch: it must be CreateTime")
    if header.has_producer_id and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid(
            f"Invalid sequence number {header.base_sequence} or epoch {header.producer_epoch} in record batch with "
            f"producer id {header.producer_id}"
        )
    if header.is_transactional and not header.has_producer_id:
        raise _invalid("A transactional record batch needs a producer id")


def _check_timestamp(data: Buffer, header: BatchHeader, rules: BatchRules, now_ms: int) -> None:
    """The header's largest timestamp bounds all of them from above; from below only a walk can tell."""
    latest = now_ms + rules.after_max_ms
    if header.max_timestamp <= latest:
        return
    message = f"Timestamp {header.max_timestamp} of message is out of range: it must be at most {latest}"
    late = []
    if header.size_bytes <= WALKED_BYTES:
        late = [
            RecordError(index, f"Timestamp {record.timestamp_ms} is out of range: it must be at most {latest}")
            for index, record in enumerate(_outlines_of(data, header, rules) or ())
            if record.timestamp_ms > latest
        ]
    raise InvalidRecordsError(ErrorCode.INVALID_TIMESTAMP, message, late)


def _outlines_of(data: Buffer, header: BatchHeader, rules: BatchRules) -> list[RecordOutline] | None:
    """Where the records lie, of a batch whose header is right; None where none need be seen, and they are too large.

    Raises:
        ApiError: CORRUPT_MESSAGE where they cannot be decompressed, INVALID_RECORD where they are not what the header
            says, or too large on a topic that must see each of them.
    """
    limit = rules.max_decompressed_bytes
    if not _must_see_records(rules):
        limit = min(limit, WALKED_OUTPUT_BYTES)
    try:
        payload = records_bytes(data, header, max_output_bytes=limit)
    except ApiError as error:
        if error.code is ErrorCode.INVALID_RECORD and limit < rules.max_decompressed_bytes:
            return None
        raise
    try:
        return outline_records(payload, header)
    except ApiError as error:
        raise _invalid(error.message) from None


def _walk_records(data: Buffer, header: BatchHeader, rules: BatchRules, now_ms: int) -> None:
    walk = _Walk()
    for index, record in enumerate(_outlines_of(data, header, rules) or ()):
        if record.offset != header.base_offset + index:
            walk.errors.append(RecordError(index, f"offset delta {record.offset - header.base_offset}, not {index}"))
        elif rules.compacted and record.key_bytes < 0:
            walk.errors.append(RecordError(index, "Compacted topic cannot accept message without key."))
        elif rules.create_time and record.timestamp_ms >= 0 and record.timestamp_ms < now_ms - rules.before_max_ms:
            walk.code = ErrorCode.INVALID_TIMESTAMP
            walk.errors.append(RecordError(index, f"Timestamp {record.timestamp_ms} is too far in the past"))
    if walk.errors:
        message = "One or more records have been rejected"
        raise InvalidRecordsError(walk.code, f"{message}: {walk.errors[0].message}", walk.errors)


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, message)
