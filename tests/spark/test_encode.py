"""Rows to record batches: read back by the reader of the broker, and placed as the Java client places them."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.record.batch import BatchHeader, crc_is_valid, stamp_producer
from odradek.record.reader import read_batches, read_records
from odradek.record.record import Record
from odradek.record.validation import BatchRules, validate_produced
from odradek.record.varint import read_zigzag
from pyspark_odradek.errors import OptionError
from pyspark_odradek.record.encode import BatchFormat, EncodedBatch, RowEncoder, varint_sizes, varints
from pyspark_odradek.record.partitioner import murmur2, partitions_of

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

blobs = st.none() | st.binary(max_size=300)
headers = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)


PLAIN = BatchFormat()


def encoder(form: BatchFormat = PLAIN, topic: str | None = "t", partitions: int = 4, first: int = 0) -> Any:
    return RowEncoder(topic, lambda _: partitions, form, first)


def records_of(batch: EncodedBatch) -> list[Record]:
    ((_, header),) = list(read_batches(batch.data))
    assert crc_is_valid(batch.data, header)
    assert header.record_count == batch.record_count
    return read_records(batch.data, header)


@given(st.lists(st.tuples(blobs, blobs, headers), min_size=1, max_size=40), st.sampled_from(["none", "lz4", "zstd"]))
@settings(deadline=None, max_examples=60)
def test_encoded_values_are_read_back(rows: list[tuple[Any, Any, Any]], codec: str) -> None:
    batch = pa.record_batch(
        {
            "key": pa.array([row[0] for row in rows], pa.binary()),
            "value": pa.array([row[1] for row in rows], pa.binary()),
            "headers": pa.array([row[2] for row in rows], HEADERS),
        }
    )
    encoded = encoder(BatchFormat(compression=codec, batch_bytes=500)).encode(batch, NOW_MS)
    found = [(r.key, r.value, r.headers) for one in encoded for r in records_of(one)]
    expected = [(key, value, tuple(pairs or ())) for key, value, pairs in rows]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    for one in encoded:
        assert all(record.timestamp_ms == NOW_MS for record in records_of(one))
        validate_produced(one.data, BatchRules(), now_ms=NOW_MS)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300), min_size=1, max_size=20))
def test_varints_are_those_of_records(numbers: list[int]) -> None:
    import numpy as np

    array = np.array(numbers, np.int64)
    (joined,) = varints(array[None, :]).to_pylist()
    position, found = 0, []
    while position < len(joined):
        value, behind = read_zigzag(joined, position)
        found.append((value, behind - position))
        position = behind
    assert found == list(zip(numbers, varint_sizes(array).tolist(), strict=True))


def test_rows_of_one_key_keep_their_order_over_batches_and_chunks() -> None:
    source = random.Random(1)
    coder = encoder(BatchFormat(batch_bytes=2000), partitions=3)
    seen: dict[bytes, list[int]] = {}
    expected: dict[bytes, list[int]] = {}
    for chunk in range(3):
        keys = [b"k%d" % source.randrange(10) for _ in range(500)]
        batch = pa.record_batch(
            {"key": pa.array(keys, pa.binary()), "value": pa.array([b"%d" % n for n in range(500)], pa.binary())}
        )
        for number, key in enumerate(keys):
            expected.setdefault(key, []).append(chunk * 500 + number)
        encoded = coder.encode(batch, NOW_MS)
        assert len({one.partition_id for one in encoded[:3]}) == 3, "batches of the partitions come in turn"
        for one in encoded:
            assert len(one.data) < 2500
            for record in records_of(one):
                assert record.key is not None and record.value is not None
                seen.setdefault(record.key, []).append(chunk * 500 + int(record.value))
    assert seen == expected


def test_a_row_says_its_topic_partition_and_time() -> None:
    batch = pa.record_batch(
        {
            "value": pa.array([b"1", b"2", b"3", b"4"], pa.binary()),
            "topic": ["b", "a", "b", "a"],
            "partition": pa.array([1, None, 0, 3], pa.int32()),
            "timestamp": pa.array([5_000_000, None, 7_000_000, 1_000_000], pa.timestamp("us", "UTC")),
        }
    )
    found = {
        (one.topic, one.partition_id, record.value, record.timestamp_ms)
        for one in encoder(topic=None, first=2).encode(batch, NOW_MS)
        for record in records_of(one)
    }
    assert found == {("b", 1, b"1", 5000), ("a", 2, b"2", NOW_MS), ("b", 0, b"3", 7000), ("a", 3, b"4", 1000)}


def test_rows_that_cannot_be_placed_are_refused() -> None:
    values = pa.array([b"1"], pa.binary())
    with pytest.raises(OptionError, match="column topic is null"):
        encoder(topic=None).encode(pa.record_batch({"value": values, "topic": pa.array([None], pa.string())}), 0)
    for partition in (-1, 4):
        rows = pa.record_batch({"value": values, "partition": pa.array([partition], pa.int32())})
        with pytest.raises(OptionError, match=f"asks for partition {partition} of topic t, which has 4"):
            encoder().encode(rows, 0)
    null_name = pa.array([[(None, b"v")]], HEADERS)
    with pytest.raises(OptionError, match="a header has no key"):
        encoder().encode(pa.record_batch({"value": values, "headers": null_name}), 0)


def test_records_without_a_key_are_spread_and_stay_together_for_a_while() -> None:
    rows = pa.record_batch({"value": pa.array([b"x" * 1000] * 1000, pa.binary())})
    coder = encoder(first=1)
    first = coder.encode(rows, NOW_MS)
    counts = {one.partition_id: one.record_count for one in first}
    assert set(counts) == {0, 1, 2, 3}
    assert min(counts.values()) > 100
    (single,) = coder.encode(rows.slice(0, 1), NOW_MS)
    (following,) = coder.encode(rows.slice(0, 1), NOW_MS)
    assert following.partition_id == (single.partition_id + 1) % 4


def test_keys_are_placed_as_kafkas_java_client_does() -> None:
    """Vectors of Kafka's own test of its hash."""
    vectors = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    hashes = murmur2(pa.array(list(vectors), pa.binary()))
    assert [int(h) for h in hashes] == [value & 0xFFFFFFFF for value in vectors.values()]
    sliced = pa.array([b"x", *vectors], pa.binary()).slice(1)
    assert partitions_of(sliced, 7).tolist() == [(value & 0x7FFFFFFF) % 7 for value in vectors.values()]


def test_a_producer_is_stamped_into_a_batch() -> None:
    (one,) = encoder(partitions=1).encode(pa.record_batch({"value": pa.array([b"1"], pa.binary())}), NOW_MS)
    data = bytearray(one.data)
    stamp_producer(data, producer_id=7, producer_epoch=3, base_sequence=9, transactional=True)
    header = BatchHeader.read(data)
    assert crc_is_valid(data, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 9)
    assert header.is_transactional and not header.is_control
    assert [record.value for record in read_records(data, header)] == [b"1"]
