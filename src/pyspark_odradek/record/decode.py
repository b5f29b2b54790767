"""Raw record batches, as Fetch returns them, to Spark's columns in Arrow.

Python walks only the length of each record; everything inside a record is then read by numpy for all records of a
fetch at once, and Arrow's `take` copies keys and values out of the raw bytes. That is 4 to 8 times cheaper than a
Python object per record (`bench/spark_bench.py` measures it).

This module knows no socket and no Spark session: bytes and a range of offsets in, record batches of Arrow out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from odradek.common.errors import ApiError
from odradek.record.batch import COMPRESSION_NAMES, HEADER_BYTES, MAGIC, BatchHeader, crc_is_valid
from odradek.record.compression import NONE, decompress
from pyspark_odradek.errors import ClusterError

if TYPE_CHECKING:
    import numpy.typing as npt

Bytes: TypeAlias = "npt.NDArray[np.uint8]"
Longs: TypeAlias = "npt.NDArray[np.int64]"

MAX_ROWS = 20_000  # rows of one Arrow batch: 10 to 50 thousand is where Spark's JVM half is cheapest
MAX_GROUP_BYTES = 256 << 20  # decoded at once: int32 positions would allow 2 GiB
MAX_BATCH_BYTES = 1 << 30  # a batch that claims to decompress to more than this is refused
_MAGIC_AT = 16  # in batches of all formats

_GIVE_UP = (
    "give it up: delete the partition's records up to it, it included (kafka-delete-records), and set "
    "failOnDataLoss=false"
)
_DAMAGED = f"Repair the broker's log, from another replica where one has it whole; or {_GIVE_UP}"
_OLD = f"Let a client that reads the old format rewrite it into another topic; or {_GIVE_UP}"


class RecordFormatError(Exception):
    """The bytes of a record batch contradict themselves or its checksum, or are of a format that is not read.

    `advice` is a sentence for the log's reader.
    """

    def __init__(self, why: str, advice: str = _DAMAGED) -> None:
        super().__init__(why)
        self.advice = advice


@contextmanager
def locating_errors(topic: str, partition_id: int, offset: int) -> Iterator[None]:
    """Let RecordFormatError be the ClusterError that ends a query; `offset` is where reading stopped."""
    try:
        yield
    except RecordFormatError as error:
        message = f"{topic}-{partition_id} cannot be read from offset {offset} on: {error}. {error.advice}"
        raise ClusterError(message) from error


class AbortedTransaction(NamedTuple):
    """A transaction that was taken back: its records start at `first_offset` (inclusive) and end at its marker."""

    producer_id: int
    first_offset: int


class Batch(NamedTuple):
    """One batch and where its records, behind the header, lie in the fetched bytes."""

    header: BatchHeader
    position: int
    end: int

    @property
    def last_offset(self) -> int:
        """Inclusive."""
        return self.header.last_offset


def whole_batches(fetched: memoryview, *, check_crc: bool = True) -> Iterator[Batch]:
    """The headers of all complete batches; a broker may cut the last one at the size limit, which is left out.

    Raises:
        RecordFormatError: a checksum is wrong, or the format is older than v2 (Kafka before 0.11).
    """
    position = 0
    while position + _MAGIC_AT < len(fetched):
        magic = fetched[position + _MAGIC_AT]
        if magic < MAGIC:  # a record of an old format may be smaller than the header of a batch
            base_offset = int.from_bytes(fetched[position : position + 8], "big", signed=True)
            why = (
                f"the batch at offset {base_offset} has record format v{magic}; only v2 (Kafka 0.11 and later) is read"
            )
            raise RecordFormatError(why, _OLD)
        if position + HEADER_BYTES > len(fetched):
            return
        header = BatchHeader.read(fetched, position)
        where = f"the batch at offset {header.base_offset} is damaged"
        if magic != MAGIC:
            raise RecordFormatError(f"{where}: it has the unknown record format v{magic}")
        if header.size_bytes < HEADER_BYTES or header.record_count < 0 or header.compression >= len(COMPRESSION_NAMES):
            raise RecordFormatError(f"{where}: its length, record count or codec is impossible")
        end = position + header.size_bytes
        if end > len(fetched):
            return
        if check_crc and not crc_is_valid(fetched[position:end], header):
            raise RecordFormatError(f"{where}: its checksum does not fit its bytes")
        yield Batch(header, position + HEADER_BYTES, end)
        position = end


class VisibleBatches:
    """Selects the batches that a reader may see: no markers, and no records of aborted transactions.

    One instance serves one fetch response, whose list of aborted transactions it is given (empty for
    read_uncommitted). Source: KIP-98; a transaction's records are skipped from its first offset to its marker.
    """

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborting: set[int] = set()

    def shows(self, batch: Batch, fetched: memoryview) -> bool:
        """Whether the batch's records are to be returned; call it for every batch, in the order of the log."""
        while self._waiting and self._waiting[-1].first_offset <= batch.last_offset:
            self._aborting.add(self._waiting.pop().producer_id)
        header = batch.header
        if header.is_control:
            if header.producer_id in self._aborting and is_abort_marker(batch, fetched):
                self._aborting.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._aborting)


def is_abort_marker(batch: Batch, fetched: memoryview) -> bool:
    """Whether a control batch takes its transaction back. Raises RecordFormatError where it does not say."""
    data = np.frombuffer(fetched[batch.position : batch.end], np.uint8)
    try:
        records = _Records.read(data, [(0, len(data), batch)])
        if len(records.key_size) == 0 or records.key_size[0] < 4:
            raise RecordFormatError("it has no key")
    except RecordFormatError as error:
        why = f"the control batch at offset {batch.header.base_offset} is damaged: {error}"
        raise RecordFormatError(why) from error
    at = int(records.key_at[0]) + 2  # version, then type: 0 aborts, 1 commits
    return int.from_bytes(data[at : at + 2].tobytes(), "big") == 0


def _varints(data: Bytes, at: Longs) -> tuple[Longs, Longs]:
    """Read one zig-zag varint at each position; returns the values and the positions behind them."""
    byte = data[at].astype(np.uint64)
    value = byte & 0x7F
    behind = at + 1
    more = np.flatnonzero(byte > 0x7F)
    shift = 7
    while more.size:
        if shift > 63:
            raise RecordFormatError("a varint is longer than ten bytes")
        byte = data[behind[more]].astype(np.uint64)
        value[more] |= (byte & 0x7F) << np.uint64(shift)
        behind[more] += 1
        more = more[byte > 0x7F]
        shift += 7
    return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), behind


def _walk(data: memoryview, position: int, end: int, count: int, found: list[int]) -> None:
    """Append the position of each record's length; the loop that costs most, so nothing else is in it."""
    append = found.append
    for _ in range(count):
        append(position)
        byte = data[position]
        if byte < 0x80:
            position += 1 + (byte >> 1)
            continue
        value, shift, position = byte & 0x7F, 7, position + 1
        while True:
            byte = data[position]
            position += 1
            if byte < 0x80:
                break
            value |= (byte & 0x7F) << shift
            shift += 7
        position += (value | byte << shift) >> 1
    if position != end:
        raise RecordFormatError(f"records end at byte {position} and not at the batch's end, {end}")


class _Records(NamedTuple):
    """The positions of all records' fields in one buffer; each array has one entry for each record."""

    end: Longs
    timestamp_delta: Longs
    offset_delta: Longs
    key_at: Longs
    key_size: Longs
    value_at: Longs
    value_size: Longs
    headers_at: Longs
    header_count: Longs

    @classmethod
    def read(cls, data: Bytes, spans: Sequence[tuple[int, int, Batch]]) -> _Records:
        found: list[int] = []
        view = data.data
        try:
            for start, end, batch in spans:
                _walk(view, start, end, batch.header.record_count, found)
            lengths_at = np.array(found, np.int64)
            length, at = _varints(data, lengths_at)
            end_at = at + length
            timestamp_delta, at = _varints(data, at + 1)  # one byte of attributes, unused
            offset_delta, at = _varints(data, at)
            key_size, key_at = _varints(data, at)
            value_size, value_at = _varints(data, key_at + np.maximum(key_size, 0))
            header_count, headers_at = _varints(data, value_at + np.maximum(value_size, 0))
        except IndexError:
            raise RecordFormatError("a record reaches past the end of its batch") from None
        fits = (key_size >= -1) & (value_size >= -1) & (header_count >= 0) & (headers_at <= end_at)
        fits &= (header_count > 0) | (headers_at == end_at)
        if not fits.all():
            raise RecordFormatError("the fields of a record do not fill its length")
        return cls(
            end_at, timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, headers_at, header_count
        )


class Decoder:
    """Turns fetched bytes of one partition into Arrow batches of Spark's schema.

    Args:
        schema: of Spark, from `arrow_schema`; with or without the column `headers`.
        topic: goes into its column.
        partition_id: goes into its column.
        start_offset: inclusive; records below it are left out (a batch may begin before what was asked for).
        end_offset: exclusive.
    """

    def __init__(self, schema: Any, topic: str, partition_id: int, start_offset: int, end_offset: int) -> None:
        self.schema = schema
        self.topic = topic
        self.partition_id = partition_id
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.with_headers = "headers" in schema.names

    def decode(self, fetched: memoryview, batches: Sequence[Batch]) -> Iterator[Any]:
        """Arrow batches of at most MAX_ROWS rows, in the order of the log.

        Raises:
            RecordFormatError: the bytes contradict themselves.
        """
        group: list[Batch] = []
        size = 0
        for batch in batches:
            if (
                batch.header.record_count == 0
                or batch.last_offset < self.start_offset
                or batch.header.base_offset >= self.end_offset
            ):
                continue
            bytes_here = (batch.end - batch.position) * (1 if batch.header.compression == NONE else 4)
            if group and size + bytes_here > MAX_GROUP_BYTES:
                yield from self._decode_group(fetched, group)
                group, size = [], 0
            group.append(batch)
            size += bytes_here
        if group:
            yield from self._decode_group(fetched, group)

    def _decode_group(self, fetched: memoryview, group: Sequence[Batch]) -> Iterator[Any]:
        try:
            yield from self._rows_of(fetched, group)
        except RecordFormatError as error:
            if len(group) == 1:
                why = f"the batch at offset {group[0].header.base_offset} is damaged: {error}"
                raise RecordFormatError(why, error.advice) from error
            for batch in group:  # any of them may raise
                for _ in self._decode_group(fetched, [batch]):
                    pass
            raise

    def _rows_of(self, fetched: memoryview, group: Sequence[Batch]) -> Iterator[Any]:
        data, spans = _records_of(fetched, group)
        if len(data) >= 1 << 31:
            raise RecordFormatError(
                f"the batches from offset {group[0].header.base_offset} to {group[-1].last_offset} hold over 2 GiB",
                "Lower kafka.max.partition.fetch.bytes",
            )
        records = _Records.read(data, spans)
        counts = [batch.header.record_count for batch in group]
        offset = (
            np.repeat(np.array([batch.header.base_offset for batch in group], np.int64), counts) + records.offset_delta
        )
        timestamp_ms = np.repeat(_longs(group, "base_timestamp"), counts) + records.timestamp_delta
        timestamp_type = np.repeat(_longs(group, "timestamp_type"), counts)
        if timestamp_type.any():
            timestamp_ms = np.where(
                timestamp_type == 1, np.repeat(_longs(group, "max_timestamp"), counts), timestamp_ms
            )
        wanted = np.flatnonzero((offset >= self.start_offset) & (offset < self.end_offset))
        fields = _binary_slots(data, records)
        for first in range(0, len(wanted), MAX_ROWS):
            rows = wanted[first : first + MAX_ROWS]
            columns = {
                "key": _take(fields, rows * 4, records.key_size[rows] < 0),
                "value": _take(fields, rows * 4 + 2, records.value_size[rows] < 0),
                "topic": pa.repeat(pa.scalar(self.topic, pa.string()), len(rows)),
                "partition": pa.array(np.full(len(rows), self.partition_id, np.int32)),
                "offset": pa.array(offset[rows]),
                "timestamp": pa.array(timestamp_ms[rows] * 1000).cast(self.schema.field("timestamp").type),
                "timestampType": pa.array(timestamp_type[rows].astype(np.int32)),
            }
            if self.with_headers:
                columns["headers"] = _headers(data, records, rows, self.schema.field("headers").type)
            yield pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


def _longs(batches: Sequence[Batch], name: str) -> Longs:
    return np.array([getattr(batch.header, name) for batch in batches], np.int64)


def _records_of(fetched: memoryview, group: Sequence[Batch]) -> tuple[Bytes, list[tuple[int, int, Batch]]]:
    """One buffer that holds all records uncompressed, and where each batch's begin and end in it."""
    if all(batch.header.compression == NONE for batch in group):
        return np.frombuffer(fetched, np.uint8), [(batch.position, batch.end, batch) for batch in group]
    pieces: list[Any] = []
    spans = []
    position = 0
    for batch in group:
        piece: Any = fetched[batch.position : batch.end]
        if batch.header.compression != NONE:
            piece = _decompressed(batch, piece)
        pieces.append(piece)
        spans.append((position, position + len(piece), batch))
        position += len(piece)
    return np.frombuffer(b"".join(pieces), np.uint8), spans


def _decompressed(batch: Batch, piece: memoryview) -> bytes:
    try:
        return decompress(batch.header.compression, piece, max_output_bytes=MAX_BATCH_BYTES)
    except ApiError as error:
        raise RecordFormatError(str(error)) from error


def _binary_slots(data: Bytes, records: _Records) -> Any:
    """Arrow's view of the raw bytes: slot 4i is the key of record i and slot 4i + 2 its value."""
    bounds = np.empty(len(records.key_at) * 4 + 1, np.int32)
    bounds[0:-1:4] = records.key_at
    bounds[1::4] = records.key_at + np.maximum(records.key_size, 0)
    bounds[2::4] = records.value_at
    bounds[3::4] = records.value_at + np.maximum(records.value_size, 0)
    bounds[-1] = bounds[-2]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])


def _take(slots: Any, index: Longs, is_null: npt.NDArray[np.bool_]) -> Any:
    return slots.take(pa.array(index, mask=is_null if is_null.any() else None))


def _headers(data: Bytes, records: _Records, rows: Longs, column_type: Any) -> Any:
    """The column of headers: null where a record has none, as Spark's own Kafka source has it.

    Headers are read in rounds: the first one of every record that has one, then the second ones, and so on.
    """
    left = records.header_count[rows]
    row_count = len(rows)
    active = np.flatnonzero(left > 0)
    at = records.headers_at[rows[active]]
    rounds: list[tuple[Longs, Longs, Longs, Longs, Longs]] = []
    try:
        while active.size:
            key_size, key_at = _varints(data, at)
            value_size, value_at = _varints(data, key_at + np.maximum(key_size, 0))
            at = value_at + np.maximum(value_size, 0)
            if ((key_size < 0) | (value_size < -1) | (at > records.end[rows[active]])).any():
                raise RecordFormatError("a header reaches past the end of its record")
            rounds.append((active, key_at, key_size, value_at, value_size))
            keep = left[active] > len(rounds)
            active, at = active[keep], at[keep]
    except IndexError:
        raise RecordFormatError("a header reaches past the end of its batch") from None
    if not rounds:
        return pa.nulls(row_count, column_type)
    owner, key_at, key_size, value_at, value_size = (np.concatenate(parts) for parts in zip(*rounds, strict=True))
    order = np.argsort(owner, kind="stable")
    key_at, key_size, value_at, value_size = (part[order] for part in (key_at, key_size, value_at, value_size))
    fields = _binary_slots(
        data, records._replace(key_at=key_at, key_size=key_size, value_at=value_at, value_size=value_size)
    )
    slot = np.arange(len(order), dtype=np.int64) * 4
    struct_type = column_type.value_type
    pairs = pa.StructArray.from_arrays(
        [_text(_take(fields, slot, key_size < 0)), _take(fields, slot + 2, value_size < 0)],
        fields=[struct_type.field(0), struct_type.field(1)],
    )
    starts = np.concatenate(([0], np.cumsum(left))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(starts), pairs, type=column_type, mask=pa.array(left == 0))


def _text(names: Any) -> Any:
    """Names of headers as text; bytes that are not UTF-8 are replaced, since one bad name must not stop a query."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
