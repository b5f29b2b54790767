"""The 61 bytes of a batch's header: the position and meaning of each field, and the fields that a broker overwrites."""

from __future__ import annotations

import struct

import pytest

from odradek.record.batch import (
    COMPRESSION_NAMES,
    CREATE_TIME,
    LOG_APPEND_TIME,
    BatchHeader,
    advance_sequence,
    batch_attributes,
    compute_crc,
    crc_is_valid,
    pack_header,
    patch_base_offset,
    patch_leader_epoch,
    read_max_timestamp,
    read_size,
    seal,
    stamp_log_append_time,
    stamp_producer,
    total_bytes,
    with_compression,
    with_delete_horizon,
)
from tests.support.models.hand_made import header_fields

# name -> value, first byte, its bytes
FIELDS = {
    "base_offset": (0x0102030405060708, 0, "0102030405060708"),
    "batch_length": (0x00000033, 8, "00000033"),
    "partition_leader_epoch": (-2, 12, "fffffffe"),
    "magic": (2, 16, "02"),
    "crc": (0xF1F2F3F4, 17, "f1f2f3f4"),
    "attributes": (0x0113, 21, "0113"),
    "last_offset_delta": (0x21222324, 23, "21222324"),
    "base_timestamp": (0x3132333435363738, 27, "3132333435363738"),
    "max_timestamp": (0x4142434445464748, 35, "4142434445464748"),
    "producer_id": (0x5152535455565758, 43, "5152535455565758"),
    "producer_epoch": (0x6162, 51, "6162"),
    "base_sequence": (-3, 53, "fffffffd"),
    "record_count": (0x71727374, 57, "71727374"),
}
GOLDEN = bytes.fromhex("".join(text for _, _, text in FIELDS.values()))
HEADER = BatchHeader(**{name: value for name, (value, _, _) in FIELDS.items()})
# A whole batch: the header says that two bytes follow it.
BATCH = GOLDEN + b"ab"


def changed_places(before: bytes | bytearray, after: bytes | bytearray) -> set[int]:
    assert len(before) == len(after)
    return {place for place, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]}


# -- fields ----------------------------------------------------------------------------------------------------------


def test_every_field_has_its_place() -> None:
    assert len(GOLDEN) == 61
    for name, (value, position, text) in FIELDS.items():
        assert GOLDEN[position : position + len(text) // 2].hex() == text
        assert getattr(BatchHeader.read(GOLDEN), name) == value, name


def test_a_header_is_written_as_it_was_read() -> None:
    assert BatchHeader.read(GOLDEN) == BatchHeader.read(b"xyz" + GOLDEN, 3) == HEADER
    assert pack_header(HEADER) == GOLDEN


def test_a_header_that_is_cut_off_is_no_header() -> None:
    with pytest.raises(struct.error):
        BatchHeader.read(GOLDEN[:-1])


def test_parts_are_read_alone() -> None:
    assert read_size(GOLDEN) == (0x0102030405060708, 63)
    assert read_size(b"xyz" + GOLDEN, 3) == (0x0102030405060708, 63)
    assert read_max_timestamp(GOLDEN) == 0x4142434445464748


# -- what fields say -------------------------------------------------------------------------------------------------


def test_sizes_count_the_twelve_bytes_that_the_length_leaves_out() -> None:
    other = header_fields(batch_length=1000)
    assert HEADER.size_bytes == 63 and other.size_bytes == 1012
    assert total_bytes([]) == 0
    assert total_bytes([HEADER]) == 63
    assert total_bytes([HEADER, other]) == 1075


def test_the_last_offset_is_inclusive() -> None:
    assert header_fields(base_offset=100, last_offset_delta=4).last_offset == 104


@pytest.mark.parametrize(
    ("first", "delta", "last"),
    [(0, 0, 0), (10, 4, 14), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 7, 4), (-1, 5, -1)],
)
def test_sequences_begin_again_after_the_largest(first: int, delta: int, last: int) -> None:
    assert header_fields(base_sequence=first, last_offset_delta=delta).last_sequence == last
    if first >= 0:
        assert advance_sequence(first, delta) == last


@pytest.mark.parametrize(("producer_id", "has"), [(-1, False), (0, True), (7, True)])
def test_producer_ids_begin_at_zero(producer_id: int, has: bool) -> None:
    assert header_fields(producer_id=producer_id).has_producer_id is has


ATTRIBUTES = {
    0x00: "none create",
    0x01: "gzip create",
    0x02: "snappy create",
    0x03: "lz4 create",
    0x04: "zstd create",
    0x08: "none append",
    0x10: "none create transactional",
    0x20: "none create control",
    0x40: "none create horizon",
    0x7C: "zstd append transactional control horizon",
}


def said(header: BatchHeader) -> str:
    words = [
        COMPRESSION_NAMES[header.compression],
        {CREATE_TIME: "create", LOG_APPEND_TIME: "append"}[header.timestamp_type],
        "transactional" * header.is_transactional,
        "control" * header.is_control,
        "horizon" * header.has_delete_horizon,
    ]
    return " ".join(filter(None, words))


@pytest.mark.parametrize(("attributes", "words"), ATTRIBUTES.items())
def test_attributes_are_bits(attributes: int, words: str) -> None:
    assert said(header_fields(attributes=attributes)) == words
    made = batch_attributes(
        compression=COMPRESSION_NAMES.index(words.split()[0]),
        timestamp_type=LOG_APPEND_TIME if "append" in words else CREATE_TIME,
        transactional="transactional" in words,
        control="control" in words,
    )
    assert with_delete_horizon(made, wanted="horizon" in words) == attributes


def test_attributes_are_plain_where_nothing_is_said() -> None:
    assert batch_attributes(compression=3) == 3
    assert (CREATE_TIME, LOG_APPEND_TIME) == (0, 1), "Kafka's own numbers"
    assert header_fields(attributes=7).compression == 7, "a codec that does not exist"


def test_one_attribute_is_changed_alone() -> None:
    assert with_compression(0x7C, 1) == 0x79
    assert with_compression(0x78, 3) == 0x7B
    assert with_delete_horizon(0x3C) == 0x7C
    assert with_delete_horizon(0x7C) == 0x7C
    assert with_delete_horizon(0x7C, wanted=False) == 0x3C


# -- the checksum ----------------------------------------------------------------------------------------------------


def test_the_checksum_is_crc32c_of_all_behind_it() -> None:
    """0xE3069283 is the check value of CRC-32C in the catalogues: that of the digits 1 to 9."""
    assert compute_crc(bytes(21) + b"123456789") == 0xE3069283
    assert compute_crc(bytes(range(21)) + b"123456789") == 0xE3069283


def test_a_sealed_batch_is_valid_and_any_other_byte_is_not() -> None:
    batch = bytearray(BATCH)
    assert not crc_is_valid(batch, BatchHeader.read(batch))
    seal(batch)
    assert crc_is_valid(batch, BatchHeader.read(batch))
    assert changed_places(BATCH, batch) == {17, 18, 19, 20}
    for place in range(21, len(batch)):
        damaged = bytearray(batch)
        damaged[place] ^= 1
        assert not crc_is_valid(damaged, BatchHeader.read(damaged)), place


# -- what a broker writes over ---------------------------------------------------------------------------------------


def sealed() -> bytearray:
    batch = bytearray(BATCH)
    seal(batch)
    return batch


def test_a_leader_gives_a_place_and_an_epoch_and_the_checksum_stays() -> None:
    batch = sealed()
    placed = HEADER._replace(crc=BatchHeader.read(batch).crc).with_offset(77, 5)
    patch_base_offset(batch, 77)
    patch_leader_epoch(batch, 5)
    header = BatchHeader.read(batch)
    assert header == placed
    assert (header.base_offset, header.partition_leader_epoch) == (77, 5)
    assert changed_places(sealed(), batch) <= set(range(16)) - set(range(8, 12))
    assert crc_is_valid(batch, header)


def test_a_batch_within_others_is_patched_at_its_position() -> None:
    batches = bytearray(2 * sealed())
    patch_base_offset(batches, 77, position=63)
    patch_leader_epoch(batches, 5, position=63)
    assert batches[:63] == sealed()
    assert BatchHeader.read(batches, 63).base_offset == 77
    assert BatchHeader.read(batches, 63).partition_leader_epoch == 5


def test_the_brokers_time_is_sealed() -> None:
    batch = sealed()
    stamp_log_append_time(batch, 123_456)
    header = BatchHeader.read(batch)
    assert header == HEADER._replace(crc=header.crc, attributes=0x011B, max_timestamp=123_456)
    assert crc_is_valid(batch, header)


@pytest.mark.parametrize(
    ("before", "transactional", "after"), [(0x03, True, 0x13), (0x13, True, 0x13), (0x13, False, 0x03), (3, False, 3)]
)
def test_a_producers_identity_is_sealed(before: int, transactional: bool, after: int) -> None:
    plain = header_fields(attributes=before)
    batch = bytearray(pack_header(plain))
    stamp_producer(batch, producer_id=9, producer_epoch=8, base_sequence=7, transactional=transactional)
    header = BatchHeader.read(batch)
    assert header == plain._replace(crc=header.crc, attributes=after, producer_id=9, producer_epoch=8, base_sequence=7)
    assert crc_is_valid(batch, header)
