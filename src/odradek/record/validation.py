"""The checks of a produced batch before it may enter the log.

    size, magic, CRC, counts, offsets, attributes, producer -> every record (`walk`) -> timestamps against the limits

A batch that Kafka refuses is refused, and the largest timestamp of a header is corrected as in Kafka. Only a broker
that is set to trust its producers does not check the records of a batch, unless a setting of the topic needs it: see
docs/adr/0005-what-produce-checks.md for the time that this saves.

Source: Kafka's ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.numbers import INT32_MAX, INT64_MAX
from odradek.common.ports import Buffer
from odradek.record.batch import (
    CLIENT_ATTRIBUTES,
    COMPRESSION_MASK,
    CREATE_TIME,
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    BatchHeader,
    crc_is_valid,
    pack_header,
    read_max_timestamp,
    seal,
)
from odradek.record.reader import RecordOutline, outline_records, records_bytes
from odradek.record.walk import TimeDeltas, walk

# Limits of batches that are checked on the loop: about a millisecond of records that differ in size. Larger batches
# are checked in a thread, which releases the interpreter to decompress.
ON_LOOP_RECORDS = 2000
ON_LOOP_COMPRESSED_BYTES = 256 * 1024
ON_LOOP_OUTPUT_BYTES = 1024 * 1024
# Records that are larger than this on average are read in place; a copy of smaller ones costs less.
COPIED_RECORD_BYTES = 4096
# The decompressed size that any batch may have, however small max.message.bytes is, and as a multiple of that setting.
MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024
DECOMPRESSED_FACTOR = 4
# Length, attributes, both deltas, two lengths and the header count of a record are at least a byte each.
MIN_RECORD_BYTES = 7
ZSTD = 4
# The first Produce version whose clients are known to read zstd (KIP-110).
FIRST_ZSTD_VERSION = 7
NEVER_MS = INT64_MAX


@dataclass(frozen=True, slots=True)
class RecordError:
    """A record of a batch that is refused (KIP-467)."""

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
        before_max_ms, after_max_ms: how far a timestamp may be behind and ahead of the broker's clock.
        max_decompressed_bytes: of the records of one batch.
        max_record_bytes: of one record of a compressed batch (max.decompressed.message.bytes).
        trusted: producers are believed that a batch holds what its header says.
    """

    max_message_bytes: int = 1_048_588
    compacted: bool = False
    create_time: bool = True
    before_max_ms: int = NEVER_MS
    after_max_ms: int = 3_600_000
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    max_record_bytes: int = INT32_MAX
    trusted: bool = False

    @property
    def must_see_records(self) -> bool:
        """Whether the topic's settings are about single records."""
        return self.compacted or (self.create_time and self.before_max_ms != NEVER_MS)


class TooLongForLoopError(Exception):
    """The batch decompresses to so much that it is for a thread: nothing is said of it yet."""


def admit(
    data: Buffer, rules: BatchRules, *, now_ms: int, api_version: int, on_loop: bool = False
) -> tuple[Buffer, BatchHeader]:
    """A client's batch as it may enter the log: the same bytes, or a corrected copy.

    Raises as `validate_produced`.
    """
    header = validate_produced(data, rules, now_ms=now_ms, api_version=api_version, on_loop=on_loop)
    if header.max_timestamp == read_max_timestamp(data):
        return data, header
    changed = bytearray(data)
    changed[:HEADER_BYTES] = pack_header(header)
    seal(changed)
    return changed, BatchHeader.read(changed)


def validate_produced(
    data: Buffer,
    rules: BatchRules,
    *,
    now_ms: int,
    api_version: int = 13,
    from_client: bool = True,
    on_loop: bool = False,
) -> BatchHeader:
    """Validate the records of a partition in a Produce request; returns the header of their batch.

    The header has the largest timestamp of the records, whatever the producer set.

    Args:
        data: the `records` field; must be exactly one batch of format v2.
        now_ms: the broker's wall clock, for limits on timestamps.
        api_version: of the request; zstd needs 7.
        from_client: False for what the broker itself writes (coordinators, markers).
        on_loop: look into nothing that takes long.
    Raises:
        ApiError: INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, INVALID_TIMESTAMP;
            as InvalidRecordsError where records are to blame.
        TooLongForLoopError: only where it is `on_loop`.
    """
    header = _read_single_header(data)
    if len(data) > rules.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append is {len(data)} bytes which exceeds the maximum configured "
            f"value of {rules.max_message_bytes}.",
        )
    if not crc_is_valid(data, header):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc})")
    _check_header(header, api_version, from_client=from_client)
    if from_client and (not rules.trusted or rules.must_see_records):
        return _check_records(data, header, rules, now_ms, on_loop=on_loop)
    if rules.create_time and header.max_timestamp > now_ms + rules.after_max_ms:
        message = _too_late(header.max_timestamp, now_ms + rules.after_max_ms)
        raise InvalidRecordsError(ErrorCode.INVALID_TIMESTAMP, message, [])
    return header


def is_long_walk(data: Buffer, rules: BatchRules) -> bool:
    """Whether to look into this batch takes so long that it belongs off the loop."""
    if len(data) <= ON_LOOP_RECORDS * MIN_RECORD_BYTES or data[16] != MAGIC:
        return False
    if rules.trusted and not rules.must_see_records:
        return False
    header = BatchHeader.read(data)
    return header.record_count > ON_LOOP_RECORDS or (header.compression != 0 and len(data) > ON_LOOP_COMPRESSED_BYTES)


def _read_single_header(data: Buffer) -> BatchHeader:
    if len(data) < HEADER_BYTES:
        if len(data) > 16 and data[16] != MAGIC:
            raise _other_format(data[16])
        raise _invalid(f"a record batch of {len(data)} bytes is shorter than its header")
    magic = data[16]
    if magic != MAGIC:
        raise _other_format(magic)
    header = BatchHeader.read(data)
    size = header.size_bytes
    if size < HEADER_BYTES:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record batch says that it has {size} bytes")
    if size > len(data):
        raise _invalid(f"a record batch says that it has {size} bytes, {len(data)} came")
    if size < len(data):
        raise ApiError(ErrorCode.INVALID_RECORD, "Produce requests must contain exactly one record batch per partition")
    return header


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
    if from_client:
        if header.attributes & ~CLIENT_ATTRIBUTES:
            _check_client_attributes(header)
        if header.producer_id != NO_PRODUCER_ID or header.attributes & ~COMPRESSION_MASK:
            _check_producer(header)


def _check_client_attributes(header: BatchHeader) -> None:
    if header.is_control:
        raise _invalid("Clients are not allowed to write control records")
    if header.has_delete_horizon:
        raise _invalid("Clients are not allowed to set the delete horizon of a record batch")
    if header.timestamp_type != CREATE_TIME:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "Invalid timestamp type in a produced batch: it must be CreateTime")


def _check_producer(header: BatchHeader) -> None:
    if header.has_producer_id:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise _invalid(
                f"Invalid sequence number {header.base_sequence} or epoch {header.producer_epoch} in record batch with "
                f"producer id {header.producer_id}"
            )
    elif header.is_transactional:
        raise _invalid("A transactional record batch needs a producer id")


def _check_records(data: Buffer, header: BatchHeader, rules: BatchRules, now_ms: int, *, on_loop: bool) -> BatchHeader:
    """Check each record of a batch whose header is valid; returns the header with the largest timestamp."""
    payload = _decompressed(data, header, rules, on_loop=on_loop) if header.compression else _uncompressed(data, header)
    deltas = walk(payload, header.record_count, keyed=rules.compacted)
    if deltas is None or (len(payload) > rules.max_record_bytes and header.compression):
        deltas = _validate_records(payload, header, rules)
    first_ms, last_ms = header.base_timestamp + deltas[0], header.base_timestamp + deltas[1]
    if not -(2**63) <= first_ms <= last_ms < 2**63:
        raise _invalid("a timestamp of the batch has more than 64 bits")
    if rules.create_time and not (now_ms - rules.before_max_ms <= first_ms and last_ms <= now_ms + rules.after_max_ms):
        _check_times(outline_records(payload, header), rules, now_ms)
    if not rules.create_time:
        return header  # the log gives it its own time
    # Kafka counts no timestamp below -1, which stands for none.
    last_ms = max(last_ms, -1)
    return header if last_ms == header.max_timestamp else header._replace(max_timestamp=last_ms)


def _uncompressed(data: Buffer, header: BatchHeader) -> bytes | memoryview:
    """The records of an uncompressed batch, copied where they are small on average."""
    records = memoryview(data)[HEADER_BYTES:]
    return bytes(records) if len(records) < header.record_count * COPIED_RECORD_BYTES else records


def _decompressed(data: Buffer, header: BatchHeader, rules: BatchRules, *, on_loop: bool) -> Buffer:
    limit = rules.max_decompressed_bytes
    if on_loop:
        limit = min(limit, ON_LOOP_OUTPUT_BYTES)
    try:
        return records_bytes(data, header, max_output_bytes=limit)
    except ApiError as error:
        if error.code is ErrorCode.INVALID_RECORD and limit < rules.max_decompressed_bytes:
            raise TooLongForLoopError from None
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            # Its checksum is right: to send it again, as clients do where it is not, would not help.
            raise _invalid(error.message) from None
        raise


def _validate_records(payload: Buffer, header: BatchHeader, rules: BatchRules) -> TimeDeltas:
    """Validate records that `walk` does not know; returns the same, and names the invalid ones."""
    try:
        outlines = outline_records(payload, header)
    except ApiError as error:
        raise _invalid(error.message) from None
    errors = []
    for index, record in enumerate(outlines):
        if record.offset != index:  # the offsets in a produced batch begin at 0
            errors.append(RecordError(index, f"offset delta {record.offset}, not {index}"))
        elif rules.compacted and record.key_bytes < 0:
            errors.append(RecordError(index, "Compacted topic cannot accept message without key."))
        elif header.compression and max(record.key_bytes, 0) + max(record.value_bytes, 0) > rules.max_record_bytes:
            errors.append(RecordError(index, f"it decompresses to more than {rules.max_record_bytes} bytes"))
    _refuse(ErrorCode.INVALID_RECORD, errors)
    times = [record.timestamp_ms - header.base_timestamp for record in outlines]
    return min(times), max(times)


def _check_times(outlines: list[RecordOutline], rules: BatchRules, now_ms: int) -> None:
    """Raises InvalidRecordsError; not where a record is only as old as those that have no timestamp."""
    earliest, latest = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    errors = []
    for index, record in enumerate(outlines):
        time = record.timestamp_ms
        if time > latest:
            errors.append(RecordError(index, _too_late(time, latest)))
        elif 0 <= time < earliest:
            errors.append(RecordError(index, f"Timestamp {time} is too far in the past"))
    _refuse(ErrorCode.INVALID_TIMESTAMP, errors)


def _too_late(timestamp_ms: int, latest: int) -> str:
    return f"Timestamp {timestamp_ms} is out of range: it must be at most {latest}"


def _refuse(code: ErrorCode, errors: list[RecordError]) -> None:
    if errors:
        raise InvalidRecordsError(code, f"One or more records have been rejected: {errors[0].message}", errors)


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, message)
