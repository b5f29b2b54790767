"""Rows in Arrow to Kafka's record batches, which a task of the exactly-once sink stages.

All length prefixes of a chunk of rows are computed by numpy at once, and Arrow joins them with keys and values; no
Python object is made for a record. The batches have no producer yet: the committing driver stamps its id, epoch and
sequences into their headers (`odradek.record.batch.stamp_producer`).

This module knows no socket, no file and no Spark session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.record.batch import (
    COMPRESSION_NAMES,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    batch_attributes,
    pack_header,
    seal,
)
from odradek.record.compression import compress
from pyspark_odradek.errors import OptionError
from pyspark_odradek.record.partitioner import binary_buffers, partitions_of

if TYPE_CHECKING:
    import numpy.typing as npt

# Records without a key go to one partition for so many bytes, then to the next: batches stay large and load is spread.
STICKY_BYTES = 64 << 10
RECORD_OVERHEAD_BYTES = 16  # about what lengths and deltas of one record take
_EMPTY = b""


class EncodedBatch(NamedTuple):
    """One sealed record batch without a producer, and where it goes."""

    topic: str
    partition_id: int
    record_count: int
    data: bytes


@dataclass(frozen=True)
class BatchFormat:
    """The form of batches: the codec (a name of Kafka's), its level, and about how large one may be uncompressed."""

    compression: str = "none"
    level: int | None = None
    batch_bytes: int = 768 << 10


class RowEncoder:
    """Encodes chunks of rows of one task.

    Args:
        topic: of all rows; None if each row names it in its column.
        partition_count: gives the number of partitions of a topic; raises ClusterError if there is no such topic.
        first_partition: of the first rows without a key; each task and batch should have another one.
    """

    def __init__(
        self,
        topic: str | None,
        partition_count: Callable[[str], int],
        form: BatchFormat,
        first_partition: int = 0,
    ) -> None:
        self.topic = topic
        self.form = form
        self._partition_count = partition_count
        self._sticky = first_partition

    def encode(self, rows: Any, now_ms: int) -> list[EncodedBatch]:
        """The batches of one chunk.

        Args:
            rows: an Arrow record batch with the columns value and, as wanted, key, headers, topic, partition and
                timestamp; keys and values of type binary.
            now_ms: the time of records that have none of their own, ms since 1970 UTC.
        Returns:
            Batches of several partitions in turn, so that a request can hold one of each; those of one partition are
            in the order of the rows.
        Raises:
            OptionError: a row has no topic, or asks for a partition that does not exist.
        """
        by_partition: list[list[EncodedBatch]] = []
        for topic, topic_rows in self._by_topic(rows):
            placed = self._place(topic, topic_rows)
            order = np.argsort(placed, kind="stable")
            placed = placed[order]
            if (np.diff(order) != 1).any():
                topic_rows = topic_rows.take(pa.array(order))
            sizes, pieces = _record_parts(topic_rows)
            cuts = np.flatnonzero(np.diff(placed)) + 1
            for first, last in pairwise([0, *cuts.tolist(), len(placed)]):
                one = slice(first, last)
                bounds = _cut(sizes[one], self.form.batch_bytes, first)
                batches = _batches(pieces, bounds, now_ms, self.form)
                partition_id = int(placed[first])
                by_partition.append([EncodedBatch(topic, partition_id, count, data) for count, data in batches])
        return [batch for turn in _in_turns(by_partition) for batch in turn]

    def _by_topic(self, rows: Any) -> Iterator[tuple[str, Any]]:
        if self.topic is not None:
            yield self.topic, rows
            return
        topics = rows.column("topic")
        if topics.null_count:
            raise OptionError("a row has no topic: its column topic is null, and the option topic is not set")
        names = pc.unique(topics).to_pylist()
        for name in sorted(names):
            yield name, rows if len(names) == 1 else rows.filter(pc.equal(topics, name))

    def _place(self, topic: str, rows: Any) -> npt.NDArray[np.int32]:
        count = self._partition_count(topic)
        names = rows.schema.names
        if "key" in names:
            keys = rows.column("key")
            placed = partitions_of(keys, count)
            unkeyed = _is_null(keys)
        else:
            placed = np.zeros(rows.num_rows, np.int32)
            unkeyed = np.ones(rows.num_rows, np.bool_)
        if unkeyed.any():
            sizes = _lengths(rows.column("value"))[unkeyed] + RECORD_OVERHEAD_BYTES
            turns = np.cumsum(sizes) // STICKY_BYTES
            placed[unkeyed] = (self._sticky + turns) % count
            self._sticky = (self._sticky + int(turns[-1]) + 1) % count
        if "partition" in names:
            asked = rows.column("partition")
            is_asked = ~_is_null(asked)
            wished = asked.fill_null(0).to_numpy(zero_copy_only=False)
            wrong = wished[is_asked & ((wished < 0) | (wished >= count))]
            if wrong.size:
                raise OptionError(f"a row asks for partition {wrong[0]} of topic {topic}, which has {count}")
            placed = np.where(is_asked, wished, placed).astype(np.int32)
        return placed


class _Parts(NamedTuple):
    """The parts from which the records of a chunk are joined, one entry for each record in each."""

    key: Any
    key_size: npt.NDArray[np.int64]
    value: Any
    value_size: npt.NDArray[np.int64]
    headers: Any
    headers_size: npt.NDArray[np.int64]
    timestamp_ms: npt.NDArray[np.int64] | None


def _record_parts(rows: Any) -> tuple[npt.NDArray[np.int64], _Parts]:
    """(about how many bytes each record takes, its parts)."""
    names = rows.schema.names
    key = rows.column("key") if "key" in names else pa.nulls(rows.num_rows, pa.binary())
    value = rows.column("value")
    headers = _encoded_headers(rows.column("headers")) if "headers" in names else None
    headers_size = _lengths(headers) if headers is not None else np.ones(rows.num_rows, np.int64)
    timestamp_ms = None
    if "timestamp" in names and rows.column("timestamp").null_count < rows.num_rows:
        micros = rows.column("timestamp").cast(pa.int64())
        refuse_before_1970(micros)
        timestamp_ms = np.where(_is_null(micros), -1, micros.fill_null(0).to_numpy(zero_copy_only=False) // 1000)
    parts = _Parts(key, _sizes(key), value, _sizes(value), headers, headers_size, timestamp_ms)
    bytes_each = np.maximum(parts.key_size, 0) + np.maximum(parts.value_size, 0) + headers_size
    return bytes_each + RECORD_OVERHEAD_BYTES, parts


def _batches(parts: _Parts, bounds: list[int], now_ms: int, form: BatchFormat) -> Iterator[tuple[int, bytes]]:
    """(record count, sealed batch) of each stretch of rows between two bounds."""
    for first, last in pairwise(bounds):
        rows = slice(first, last)
        count = last - first
        times = np.full(count, now_ms, np.int64) if parts.timestamp_ms is None else parts.timestamp_ms[rows]
        times = np.where(times < 0, now_ms, times)
        payload: Any = _payload(parts, first, count, times - times[0])
        codec = COMPRESSION_NAMES.index(form.compression)
        if codec:
            payload = compress(codec, bytes(payload), level=form.level)
        header = BatchHeader(
            base_offset=0,
            batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
            partition_leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=batch_attributes(compression=codec),
            last_offset_delta=count - 1,
            base_timestamp=int(times[0]),
            max_timestamp=int(times.max()),
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=count,
        )
        batch = bytearray(pack_header(header))
        batch += payload
        seal(batch)
        yield count, bytes(batch)


def _payload(parts: _Parts, first: int, count: int, deltas_ms: npt.NDArray[np.int64]) -> memoryview:
    """The bytes of `count` records: their length, no attributes, deltas, key, value and headers."""
    rows = slice(first, first + count)
    key_size, value_size = parts.key_size[rows], parts.value_size[rows]
    numbers = np.stack([deltas_ms, np.arange(count, dtype=np.int64), key_size], axis=1)
    prefix_size = varint_sizes(numbers).sum(axis=1)
    length = 1 + prefix_size + np.maximum(key_size, 0) + varint_sizes(value_size) + np.maximum(value_size, 0)
    length += parts.headers_size[rows]
    # The byte of attributes is 0, and so is the varint of the number 0.
    head = varints(np.concatenate([length[:, None], np.zeros((count, 1), np.int64), numbers], axis=1))
    headers = pa.scalar(b"\0") if parts.headers is None else parts.headers.slice(first, count)
    joined = pc.binary_join_element_wise(
        head,
        parts.key.slice(first, count),
        varints(value_size[:, None]),
        parts.value.slice(first, count),
        headers,
        _EMPTY,
        null_handling="replace",
        null_replacement=_EMPTY,
    )
    bounds, data = binary_buffers(joined)
    return memoryview(data)[int(bounds[0]) : int(bounds[-1])]  # type: ignore[arg-type]  # Arrow's buffer has bytes


def varint_sizes(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The size in bytes of the zig-zag varint of each number."""
    rest = _zigzag(numbers)
    sizes = np.ones(numbers.shape, np.int64)
    limit = 7
    while limit < 64 and (more := rest >> np.uint64(limit)).any():
        sizes += more > 0
        limit += 7
    return sizes


def varints(numbers: npt.NDArray[np.int64]) -> Any:
    """An Arrow array of type binary: the zig-zag varints of the numbers of each row, one after another."""
    flat = _zigzag(numbers).ravel()
    sizes = varint_sizes(numbers)
    at = np.concatenate(([0], np.cumsum(sizes.ravel())))
    data = np.empty(int(at[-1]), np.uint8)
    left = sizes.ravel()
    index, position, rest = np.arange(len(flat)), at[:-1], flat
    while index.size:
        more = left > 1
        data[position] = (rest & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        index, position, rest = index[more], position[more] + 1, rest[more] >> np.uint64(7)
        left = left[more] - 1
    bounds = at[:: numbers.shape[1]].astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def _zigzag(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    zigzag: npt.NDArray[np.int64] = (numbers << 1) ^ (numbers >> 63)
    return zigzag.view(np.uint64)


def _cut(sizes: npt.NDArray[np.int64], most_bytes: int, first: int) -> list[int]:
    """Bounds of stretches of at most `most_bytes` each, or of one row that is larger; counted from `first`."""
    total = np.cumsum(sizes)
    bounds, done = [0], 0
    while bounds[-1] < len(sizes):
        end = int(np.searchsorted(total, done + most_bytes, side="right"))
        bounds.append(max(end, bounds[-1] + 1))
        done = int(total[bounds[-1] - 1])
    return [first + bound for bound in bounds]


def _in_turns(lists: list[list[EncodedBatch]]) -> Iterator[list[EncodedBatch]]:
    for turn in range(max(map(len, lists), default=0)):
        yield [batches[turn] for batches in lists if turn < len(batches)]


def _encoded_headers(headers: Any) -> Any:
    """The headers of each record as bytes, their count in front; a null list is none."""
    lists = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = headers.flatten()
    names = pairs.field(0).cast(pa.binary())
    contents = pairs.field(1).cast(pa.binary())
    if names.null_count:
        raise OptionError("a header has no key: its key is null")
    each = pc.binary_join_element_wise(
        varints(_sizes(names)[:, None]),
        names,
        varints(_sizes(contents)[:, None]),
        contents,
        _EMPTY,
        null_handling="replace",
        null_replacement=_EMPTY,
    )
    bounds = np.concatenate(([0], np.cumsum(lists))).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds), each), _EMPTY)
    return pc.binary_join_element_wise(varints(lists[:, None]), joined, _EMPTY)


def refuse_before_1970(micros: Any) -> None:
    """Raise OptionError for a time that a record cannot have; `micros` are microseconds since 1970 UTC."""
    earliest = pc.min(micros).as_py()
    if earliest is not None and earliest < 0:
        raise OptionError(
            f"a row has a timestamp before 1970 ({earliest / 1_000_000:.3f} s), which a record cannot have: drop the "
            "column timestamp, or put the time into the value"
        )


def _is_null(array: Any) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _lengths(array: Any) -> npt.NDArray[np.int64]:
    """Bytes of each element; 0 where it is null."""
    lengths: npt.NDArray[np.int64] = (
        pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return lengths


def _sizes(array: Any) -> npt.NDArray[np.int64]:
    """Bytes of each element; -1 where it is null, as records have it."""
    return np.where(_is_null(array), np.int64(-1), _lengths(array))
