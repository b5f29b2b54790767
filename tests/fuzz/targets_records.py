"""The bytes of producers: compressed data, batches, and validation by Produce."""

from __future__ import annotations

import struct
from random import Random

from odradek.common.errors import ApiError
from odradek.record.batch import HEADER_BYTES, BatchHeader, compute_crc, crc_is_valid, pack_header, read_size, seal
from odradek.record.builder import build_batch
from odradek.record.compression import compress, decompress
from odradek.record.control import control_type, marker_coordinator_epoch, transaction_marker
from odradek.record.reader import outline_records, read_batches, read_records
from odradek.record.recompression import recompress
from odradek.record.record import Record
from odradek.record.validation import BatchRules, validate_produced
from odradek.record.varint import zigzag
from odradek.record.walk import walk
from tests.fuzz.engine import Target

NOW_MS = 1_767_225_600_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CAP_BYTES = 256 * 1024
# Bits of a batch input's first byte.
RESEAL, COMPACTED, LOG_APPEND_TIME, OLD_CLIENT, LIMITED_AGE = 1, 2, 4, 8, 16
INT64 = range(-(2**63), 2**63)
LIES = (-1, 2**31 - 1, 2**63 - 1, -(2**63), 2**40, -2, 1000)


# -- compression ----------------------------------------------------------------------------------------------------


def generate_compressed(rng: Random) -> bytes:
    codec = rng.randrange(5)
    size = rng.choice((0, 1, 20, 300, 3000, 40_000))
    plain = rng.choice((bytes(size), rng.randbytes(min(size, 3000)), b"abcdefg" * (size // 7)))
    if rng.random() < 0.05:
        plain = bytes(rng.randrange(CAP_BYTES - 2, 4 * CAP_BYTES))
    if codec == 2 and rng.random() < 0.5:
        import cramjam

        return bytes((codec,)) + bytes(cramjam.snappy.compress_raw(plain))
    return bytes((codec,)) + compress(codec, plain)


def run_compressed(data: bytes) -> None:
    if not data:
        return
    codec = data[0] % 6
    try:
        plain = decompress(codec, data[1:], CAP_BYTES)
    except ApiError:
        return
    assert len(plain) <= CAP_BYTES
    assert decompress(codec, compress(codec, plain), CAP_BYTES) == plain


# -- batches --------------------------------------------------------------------------------------------------------


def _blob(rng: Random) -> bytes | None:
    return None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 1, 5, 60, 200)))


def _record(rng: Random) -> Record:
    headers = tuple((rng.choice(("", "h", "é")), _blob(rng)) for _ in range(rng.choice((0, 0, 0, 1, 3))))
    return Record(_blob(rng), _blob(rng), headers, timestamp_ms=NOW_MS - rng.randrange(10_000))


def _lying_batch(rng: Random) -> bytes:
    """A batch whose records are of the right lengths, and say what no honest producer says."""

    def number(usual: int) -> bytes:
        return zigzag(rng.choice(LIES) if rng.random() < 0.15 else usual)

    count = rng.choice((1, 1, 2, 3))
    payload = b""
    for index in range(count):
        body = b"\0" + number(index) + number(index) + number(1) + b"k" + number(1) + b"v" + number(0)
        payload += number(len(body)) + body
    template = BatchHeader.read(build_batch([Record(b"k", b"v", timestamp_ms=NOW_MS)] * count))
    codec = rng.choice((0, 0, 3))
    payload = compress(codec, payload)
    header = template._replace(
        attributes=codec,
        batch_length=HEADER_BYTES - 12 + len(payload),
        base_timestamp=rng.choice((*LIES, *[NOW_MS] * 12)),
        max_timestamp=rng.choice((*LIES[:4], *[NOW_MS] * 12)),
    )
    return pack_header(header) + payload


def generate_batches(rng: Random) -> bytes:
    """A byte of flags, then mostly one batch as Produce wants it, sometimes several, sometimes a marker."""
    flags = rng.choice((0, RESEAL, RESEAL, RESEAL, RESEAL | COMPACTED, RESEAL | LIMITED_AGE, rng.randrange(32)))
    if rng.random() < 0.25:
        return bytes((flags | RESEAL,)) + _lying_batch(rng)
    batches = []
    for _ in range(1 if rng.random() < 0.8 else rng.randrange(4)):
        producer_id = rng.choice((-1, -1, 5))
        if rng.random() < 0.05:
            marker = transaction_marker(
                commit=rng.random() < 0.5, producer_id=5, producer_epoch=0, coordinator_epoch=1, timestamp_ms=NOW_MS
            )
            batches.append(marker)
            continue
        batches.append(
            build_batch(
                [_record(rng) for _ in range(rng.choice((1, 1, 2, 5, 20)))],
                compression=rng.choice(CODECS),
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=0 if producer_id >= 0 else -1,
                transactional=producer_id >= 0 and rng.random() < 0.3,
            )
        )
    return bytes((flags,)) + b"".join(batches)


def resealed(data: bytes) -> bytes:
    """The first batch with its length and checksum made right: a producer can always do that, so checks must not rely
    on it."""
    if len(data) < HEADER_BYTES:
        return data
    batch = bytearray(data)
    _, size = read_size(batch)
    if not HEADER_BYTES <= size <= len(batch):
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        size = len(batch)
    whole = memoryview(batch)[:size]
    seal(whole)
    assert compute_crc(whole) == BatchHeader.read(whole).crc
    return bytes(batch)


def run_batches(data: bytes) -> None:
    if not data:
        return
    flags, batches = data[0], data[1:]
    if flags & RESEAL:
        batches = resealed(batches)
    for position, header in read_batches(batches):
        _read(batches[position : position + header.size_bytes], header)
    rules = BatchRules(
        compacted=bool(flags & COMPACTED),
        create_time=not flags & LOG_APPEND_TIME,
        before_max_ms=3_600_000 if flags & LIMITED_AGE else BatchRules().before_max_ms,
        max_decompressed_bytes=CAP_BYTES,
    )
    try:
        header = validate_produced(batches, rules, now_ms=NOW_MS, api_version=6 if flags & OLD_CLIENT else 13)
    except ApiError:
        return
    _check_accepted(batches, header, rules)


def _read(batch: bytes, header: BatchHeader) -> None:
    try:
        records = read_records(batch, header, max_output_bytes=CAP_BYTES)
        for record in records:
            assert record.offset in INT64, f"offset {record.offset}"
            assert record.timestamp_ms in INT64, f"timestamp {record.timestamp_ms}"
            if header.is_control:
                control_type(record)
                marker_coordinator_epoch(record)
    except ApiError:
        return
    assert len(records) == header.record_count


def _check_accepted(batch: bytes, header: BatchHeader, rules: BatchRules) -> None:
    """A batch that Produce accepts is what it claims to be, and stays so in another codec."""
    assert crc_is_valid(batch, header) and header.size_bytes == len(batch)
    assert header.base_offset == 0 and not header.is_control
    records = read_records(batch, header, max_output_bytes=CAP_BYTES)
    assert [record.offset for record in records] == list(range(header.record_count))
    assert not rules.compacted or all(record.key is not None for record in records)
    if rules.create_time:
        assert header.max_timestamp == max(-1, *(record.timestamp_ms for record in records))
    for codec in range(5):
        try:
            changed, changed_header = recompress(
                batch, header, codec, level=None, max_output_bytes=CAP_BYTES, max_batch_bytes=2 * CAP_BYTES
            )
        except ApiError:
            continue
        assert crc_is_valid(changed, changed_header) and changed_header.compression == codec
        assert changed_header.last_offset == header.last_offset
        assert read_records(changed, changed_header, max_output_bytes=CAP_BYTES) == records


# -- the quick walk -------------------------------------------------------------------------------------------------


def generate_walk(rng: Random) -> bytes:
    """A count, then the records of a batch: many of one size or of all sizes, mostly with one byte changed."""
    count = rng.choice((1, 20, 70, 100))
    shape = rng.choice((0, 0, 1, 100))
    headers = rng.choice(((), (), (("h", b"v"),), (("h", b""),)))
    key = rng.choice((None, b"key"))
    records = [
        Record(key, bytes(10 + rng.randrange(shape + 1)), headers, timestamp_ms=NOW_MS + index * rng.choice((0, 3)))
        for index in range(count)
    ]
    payload = bytearray(build_batch(records)[HEADER_BYTES:])
    if rng.random() < 0.7:
        payload[rng.randrange(len(payload))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes((count + rng.choice((0, 0, 0, 0, 1, -1)),)) + bytes(payload)


def run_walk(data: bytes) -> None:
    """Check that the slow walk accepts each batch that the quick one accepts, for each type of buffer."""
    if not data or not data[0]:
        return
    count, payload = data[0], data[1:]
    found = walk(payload, count)
    assert walk(bytearray(payload), count) == found == walk(memoryview(payload), count)
    keyed = walk(payload, count, keyed=True)
    assert keyed in (None, found)
    if found is None:
        return
    template = BatchHeader.read(build_batch([Record(b"k", b"v", timestamp_ms=0)]))
    header = template._replace(record_count=count, base_offset=0, base_timestamp=0)
    if not all(time in INT64 for time in found):
        return
    outlines = outline_records(payload, header)
    assert [each.offset for each in outlines] == list(range(count))
    assert found == (min(each.timestamp_ms for each in outlines), max(each.timestamp_ms for each in outlines))
    assert (keyed is not None) == all(each.key_bytes >= 0 for each in outlines)


TARGETS = (
    Target("walk", generate_walk, run_walk, (b"\x01", b"\x80\x01")),
    Target("compression", generate_compressed, run_compressed, (b"\x82SNAPPY\x00", b"\x1f\x8b", b"\x28\xb5\x2f\xfd")),
    Target(
        "batches", generate_batches, run_batches, (b"\x00\x00\x00\x00", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
    ),
)
