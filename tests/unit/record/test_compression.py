"""The four codecs: their frames, the size limit, damaged frames, and the memory that they take."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from random import Random

import cramjam
import pytest
from aiokafka.codec import snappy_decode
from hypothesis import given
from hypothesis import strategies as st

from odradek.common.errors import ApiError, ErrorCode
from odradek.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress, unpack

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
MIXED = b"".join(b"%d,%d;" % (each, each * 7919 % 1013) for each in range(9000))
NOISE = Random(1).randbytes(300_000)
XERIAL = bytes.fromhex("82534e41505059 00 00000001 00000001")
LARGEST = 10_000_000


def refused(codec: int, data: bytes, limit: int = LARGEST) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        decompress(codec, data, limit)
    return error.value.code


# -- there and back --------------------------------------------------------------------------------------------------


def test_codecs_have_kafkas_numbers() -> None:
    assert CODECS == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
@pytest.mark.parametrize("size", [0, 1, 32_768, 32_769, 70_000])
def test_compressed_data_comes_back_up_to_the_limit(codec: int, size: int) -> None:
    data = MIXED[:size]
    packed = compress(codec, memoryview(data))
    assert type(packed) is bytes
    assert decompress(codec, packed, LARGEST) == decompress(codec, memoryview(packed), size) == data
    if size:
        assert refused(codec, packed, size - 1) is ErrorCode.INVALID_RECORD


@given(st.binary(max_size=2000), st.sampled_from(CODECS))
def test_any_bytes_come_back(data: bytes, codec: int) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", [5, 7, -1])
def test_a_codec_that_does_not_exist(codec: int) -> None:
    assert refused(codec, b"") is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(ApiError) as error:
        compress(codec, b"")
    assert error.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


# -- frames ----------------------------------------------------------------------------------------------------------


def test_gzip_is_what_zlib_reads_and_writes() -> None:
    assert zlib.decompress(compress(GZIP, MIXED), wbits=31) == MIXED
    assert decompress(GZIP, gzip.compress(MIXED), LARGEST) == MIXED
    two = gzip.compress(MIXED) + gzip.compress(b"more")
    assert decompress(GZIP, two, LARGEST) == MIXED + b"more"
    assert decompress(GZIP, gzip.compress(b"x") + gzip.compress(MIXED), 1 + len(MIXED)) == b"x" + MIXED


def test_snappy_is_framed_in_blocks_of_32_kib() -> None:
    packed = compress(SNAPPY, MIXED)
    assert snappy_decode(packed) == MIXED
    assert packed[:16] == XERIAL
    position, sizes = 16, []
    while position < len(packed):
        (length,) = struct.unpack_from(">i", packed, position)
        sizes.append(cramjam.snappy.decompress_raw_len(packed[position + 4 : position + 4 + length]))
        position += 4 + length
    assert sizes == [32_768] * (len(MIXED) // 32_768) + [len(MIXED) % 32_768]


def test_snappy_may_be_one_raw_block() -> None:
    raw = bytes(cramjam.snappy.compress_raw(MIXED))
    assert decompress(SNAPPY, raw, len(MIXED)) == MIXED
    assert refused(SNAPPY, raw, len(MIXED) - 1) is ErrorCode.INVALID_RECORD


def test_lz4_blocks_stand_alone_and_have_no_checksum() -> None:
    """Java's reader refuses blocks that refer to others."""
    packed = compress(LZ4, NOISE)
    assert packed[:4] == bytes.fromhex("04224d18")
    version, independent, size_or_checksum = packed[4] >> 6, packed[4] & 0x20, packed[4] & 0x0C
    assert (version, independent, size_or_checksum) == (1, 0x20, 0)


def test_levels_are_the_codecs_own() -> None:
    assert compress(GZIP, MIXED) == compress(GZIP, MIXED, level=6) == compress(GZIP, MIXED, level=-1)
    assert compress(ZSTD, MIXED) == compress(ZSTD, MIXED, level=3)
    for codec, lower, higher in ((GZIP, 1, 9), (LZ4, 1, 12), (ZSTD, 1, 19)):
        assert len(compress(codec, MIXED, level=higher)) < len(compress(codec, MIXED, level=lower))


# -- what is damaged -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=NAMES[1:])
def test_data_of_another_codec_is_damaged(codec: int) -> None:
    packed = compress(codec, MIXED)
    for data in (packed[:-1], packed[:-100], packed[: len(packed) // 2], b"\xff" * 30):
        assert refused(codec, data) is ErrorCode.CORRUPT_MESSAGE


def test_a_snappy_block_is_no_longer_than_its_batch() -> None:
    block = bytes(cramjam.snappy.compress_raw(b"abc"))
    framed = XERIAL + struct.pack(">i", len(block)) + block
    assert decompress(SNAPPY, framed, 3) == b"abc"
    assert refused(SNAPPY, XERIAL + bytes(4)) is ErrorCode.CORRUPT_MESSAGE, "a block of no bytes"
    for length in (len(block) + 1, -1, -5, -len(framed)):
        data = XERIAL + struct.pack(">i", length) + block
        assert refused(SNAPPY, data) is ErrorCode.CORRUPT_MESSAGE
    assert refused(SNAPPY, framed + b"\0\0") is ErrorCode.CORRUPT_MESSAGE


def test_the_blocks_of_snappy_have_one_cap_together() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(1000)))
    framed = XERIAL + (struct.pack(">i", len(block)) + block) * 3
    assert decompress(SNAPPY, framed, 3000) == bytes(3000)
    assert refused(SNAPPY, framed, 2999) is ErrorCode.INVALID_RECORD


def test_a_snappy_block_holds_at_most_22_times_its_bytes() -> None:
    """The size that a block declares decides before memory is taken: 220 bytes out of ten may be, 221 are refused."""
    may_be, lie = bytes.fromhex("dc01") + bytes(8), bytes.fromhex("dd01") + bytes(8)
    assert refused(SNAPPY, may_be, 219) is ErrorCode.INVALID_RECORD
    assert refused(SNAPPY, may_be, 220) is ErrorCode.CORRUPT_MESSAGE
    assert refused(SNAPPY, lie, 219) is ErrorCode.CORRUPT_MESSAGE


# -- what a frame declares -------------------------------------------------------------------------------------------


def lz4_frame(declared: int, rest: int, flags: int = 0x68) -> bytes:
    return bytes.fromhex("04224d18") + bytes((flags, 0x40)) + struct.pack("<Q", declared) + b"\xff" * rest


def zstd_frame(descriptor: int, between: int, size: bytes, rest: int = 12) -> bytes:
    """A header; `between` bytes for the window and the dictionary's number; then no block that could be read."""
    return bytes.fromhex("28b52ffd") + bytes((descriptor,)) + b"\x01" * between + size + b"\xff" * rest


# The codec of a frame, the frame, and the decompressed size that it declares.
DECLARED = {
    "lz4": (LZ4, lz4_frame(70_000, 5), 70_000),
    "lz4 in eight bytes": (LZ4, lz4_frame(2**62 + 1, 5), 2**62 + 1),
    "lz4 in its smallest frame": (LZ4, lz4_frame(70_000, 1), 70_000),
    "zstd, one byte": (ZSTD, zstd_frame(0x20, 0, b"\xfa"), 250),
    "zstd, two bytes behind a window": (ZSTD, zstd_frame(0x40, 1, b"\x01\x02"), 256 + 0x0201),
    "zstd, two bytes": (ZSTD, zstd_frame(0x60, 0, b"\x01\x02"), 256 + 0x0201),
    "zstd, four bytes": (ZSTD, zstd_frame(0xA0, 0, b"\x01\x02\x03\0"), 0x030201),
    "zstd, eight bytes": (ZSTD, zstd_frame(0xE0, 0, b"\x01\x02\x03\x04\0\0\0\1"), 0x0100000004030201),
    "zstd, a dictionary of one byte": (ZSTD, zstd_frame(0xA1, 1, b"\x01\x02\x03\0"), 0x030201),
    "zstd, a dictionary of two bytes": (ZSTD, zstd_frame(0xA2, 2, b"\x01\x02\x03\0"), 0x030201),
    "zstd, a dictionary of four bytes and a window": (ZSTD, zstd_frame(0x83, 5, b"\x01\x02\x03\0"), 0x030201),
    "zstd in its smallest frame": (ZSTD, zstd_frame(0xA0, 0, b"\x01\x02\x03\0", 9), 0x030201),
}


@pytest.mark.parametrize(("codec", "data", "declared"), DECLARED.values(), ids=DECLARED.keys())
def test_a_frame_that_declares_too_much_is_not_begun(codec: int, data: bytes, declared: int) -> None:
    """Its blocks are damaged: CORRUPT_MESSAGE shows that it was decompressed, and INVALID_RECORD that it was not."""
    assert refused(codec, data, declared - 1) is ErrorCode.INVALID_RECORD
    if declared < LARGEST:
        assert refused(codec, data, declared) is ErrorCode.CORRUPT_MESSAGE


SILENT = {
    "lz4 without a size": (LZ4, lz4_frame(70_000, 5, flags=0x60)),
    "lz4 without all of its size": (LZ4, lz4_frame(70_000, 0)),
    "lz4 of another magic": (LZ4, b"\x05" + lz4_frame(70_000, 5)[1:]),
    "zstd without a size": (ZSTD, zstd_frame(0x00, 1, b"\xff\xff\xff\xff")),
    "zstd too short for a header": (ZSTD, zstd_frame(0xA0, 0, b"\x01\x02\x03\x04", 8)),
    "zstd of another magic": (ZSTD, b"\x29" + zstd_frame(0xA0, 0, b"\x01\x02\x03\x04")[1:]),
}


@pytest.mark.parametrize(("codec", "data"), SILENT.values(), ids=SILENT.keys())
def test_data_without_a_declared_size_is_refused_where_it_is_damaged(codec: int, data: bytes) -> None:
    assert refused(codec, data, 1) is ErrorCode.CORRUPT_MESSAGE


def test_the_end_of_gzip_is_a_hint_alone() -> None:
    """Other members may follow the first, and the decoder refuses a wrong size."""
    packed = gzip.compress(bytes(1000))
    assert refused(GZIP, packed[:-4] + struct.pack("<I", 2000), 1500) is ErrorCode.CORRUPT_MESSAGE


# -- memory ----------------------------------------------------------------------------------------------------------


def peak_bytes(codec: int, data: bytes, limit: int = LARGEST) -> int:
    """The most that was taken at once."""
    tracemalloc.start()
    try:
        unpack(codec, data, limit)
    except ApiError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


# Other threads of the process allocate memory, too: those of clients that earlier tests have used.
SLACK = 50_000


def with_size(frame: bytes, size: int) -> bytes:
    """A frame of lz4 that declares its size; of the checksums that its header may have, the decoder takes one."""
    for checksum in range(256):
        header = frame[:4] + bytes((frame[4] | 0x08, frame[5])) + struct.pack("<Q", size) + bytes((checksum,))
        try:
            cramjam.lz4.decompress_into(header + frame[7:], bytearray(size + 1))
        except cramjam.DecompressionError:
            continue
        return header + frame[7:]
    raise AssertionError("no checksum fits")


@pytest.mark.parametrize("data", [NOISE, MIXED, bytes(300_000)], ids=["noise", "text", "zeros"])
def test_a_declared_size_bounds_the_memory(data: bytes) -> None:
    declared_lz4 = with_size(compress(LZ4, data), len(data))
    for codec, packed in ((GZIP, compress(GZIP, data)), (ZSTD, compress(ZSTD, data)), (LZ4, declared_lz4)):
        assert unpack(codec, packed, LARGEST) == data
        assert len(data) <= peak_bytes(codec, packed) < len(data) + SLACK, NAMES[codec]


def test_data_without_a_declared_size_takes_four_times_its_output() -> None:
    for size, taken in ((65_536, 65_537), (65_537, 4_194_304), (4_194_303, 4_194_304), (4_194_304, LARGEST + 1)):
        packed = compress(LZ4, bytes(size))
        assert taken <= peak_bytes(LZ4, packed) <= taken + SLACK
        assert peak_bytes(LZ4, packed, size + 10) <= size + 10 + SLACK, "no more than the cap"
    packed = compress(LZ4, NOISE)
    assert peak_bytes(LZ4, packed) <= 8 * len(packed) + SLACK, "eight times its input"
    assert peak_bytes(LZ4, compress(LZ4, b"small")) <= 65_537 + SLACK
    assert peak_bytes(LZ4, packed, 1000) <= 1000 + SLACK


def test_a_small_frame_is_not_believed_a_large_size() -> None:
    """Its blocks are damaged; found by fuzzing, as 85 bytes for which 570 MB were taken."""
    size = struct.pack("<I", LARGEST)
    for codec, frame in ((ZSTD, zstd_frame(0xA0, 0, size)), (LZ4, lz4_frame(LARGEST, 5))):
        assert peak_bytes(codec, frame) <= 4_194_305 + SLACK, NAMES[codec]


def test_a_large_claimed_size_is_allocated_in_steps() -> None:
    data = bytes(20_000_000)
    for codec, packed in ((ZSTD, compress(ZSTD, data)), (LZ4, with_size(compress(LZ4, data), len(data)))):
        assert unpack(codec, packed, 2 * len(data)) == data, NAMES[codec]
        assert peak_bytes(codec, packed, 2 * len(data)) <= len(data) + SLACK
        assert refused(codec, packed, len(data) - 1) is ErrorCode.INVALID_RECORD


def test_gzip_is_not_believed_what_it_cannot_hold() -> None:
    packed = gzip.compress(b"small")
    for declared, most in ((len(packed) * 1032, len(packed) * 1032), (len(packed) * 1032 + 1, 65_537)):
        lie = packed[:-4] + struct.pack("<I", declared)
        assert most <= peak_bytes(GZIP, lie) <= most + SLACK


def test_snappy_takes_its_output_twice() -> None:
    packed = compress(SNAPPY, bytes(3_000_000))
    assert peak_bytes(SNAPPY, packed) <= 2 * 3_000_000 + 2 * SLACK
    assert peak_bytes(SNAPPY, packed, 1_000_000) <= 1_000_000 + 2 * SLACK
