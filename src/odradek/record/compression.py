"""Kafka's four codecs, with a cap on what decompressing may give.

gzip, lz4 and zstd are plain frames. Snappy is framed as Java's snappy library frames it (a magic header, then blocks
with their length); librdkafka and others also send one raw block, so both are read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import cramjam

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_FIRST_BYTES: Final = 64 * 1024
# Where a first buffer is too small: what decompresses to megabytes is begun twice, not once for each power of four.
_SECOND_BYTES: Final = 4 * 1024 * 1024
# A declared size is believed up to so many times the input: any frame may declare the most that it is allowed.
_BELIEVED_RATIO: Final = 64
# No bytes of these codecs hold more: gzip 258 in two bits, snappy 64 in three bytes.
_LARGEST_GZIP_RATIO: Final = 1032
_LARGEST_SNAPPY_RATIO: Final = 22
_BUFFER_FULL: Final = "failed to write whole buffer"


def compress(codec: int, data: Buffer, *, level: int | None = None) -> bytes:
    """Compress one batch's records.

    Args:
        codec: a number from 0 to 4, as in a batch's attributes.
        level: the codec's own; None for its default.
    """
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, level=6 if level in (None, -1) else level))
    if codec == LZ4:
        # Java's reader refuses blocks that refer to the block before them, which the plain function writes.
        frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        frame.compress(bytes(data))
        return bytes(frame.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))
    if codec == SNAPPY:
        pieces = [_XERIAL_HEADER]
        view = memoryview(data)
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            pieces += [struct.pack(">i", len(block)), block]
        return b"".join(pieces)
    raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has number {codec}")


def decompress(codec: int, data: Buffer, max_output_bytes: int) -> bytes:
    """Decompress one batch's records.

    Raises:
        ApiError: CORRUPT_MESSAGE for bytes that are not of this codec, INVALID_RECORD for more than
            `max_output_bytes`, UNSUPPORTED_COMPRESSION_TYPE for a codec that does not exist.
    """
    return bytes(unpack(codec, data, max_output_bytes))


def unpack(codec: int, data: Buffer, max_output_bytes: int) -> bytes | bytearray:
    """Decompress as `decompress` does, without a last copy. Raises as `decompress`.

    Memory is taken for twice the output (snappy), for the output where a frame says its size and that is at most 4 MiB
    or 64 times `data`, else for at most four times the output, eight times `data`, or 4 MiB; and never for more than
    twice `max_output_bytes`.
    """
    try:
        if codec == NONE:
            return _uncompressed(data, max_output_bytes)
        if codec == SNAPPY:
            return _decompress_snappy(memoryview(data), max_output_bytes)
        if codec in (GZIP, LZ4, ZSTD):
            return _decompress_frames(codec, data, max_output_bytes)
    except (cramjam.DecompressionError, struct.error, EOFError, OSError, ValueError) as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"compressed records are damaged: {error}") from None
    raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has number {codec}")


def _uncompressed(data: Buffer, limit: int) -> bytes:
    if len(data) > limit:
        raise _too_large(limit)
    return bytes(data)


def _too_large(limit: int) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, f"records decompress to more than {limit} bytes")


def _decompress_frames(codec: int, data: Buffer, limit: int) -> bytearray:
    """gzip, lz4 and zstd, into a buffer that grows to the limit and no further."""
    into = {
        GZIP: cramjam.gzip.decompress_into,
        LZ4: cramjam.lz4.decompress_into,
        ZSTD: cramjam.zstd.decompress_into,
    }[codec]
    declared = _declared_bytes(codec, memoryview(data))
    if declared > limit and codec != GZIP:
        raise _too_large(limit)
    believed = min(declared, max(_SECOND_BYTES, _BELIEVED_RATIO * len(data)))
    # One more byte shows that there is no more to come.
    size = min(limit, believed or max(_FIRST_BYTES, 8 * len(data))) + 1
    while (output := _fill(into, data, size)) is None:
        if size > limit:
            raise _too_large(limit)
        most = declared if declared >= size else limit
        size = min(limit, most, max(4 * size, _SECOND_BYTES) - 1) + 1
    return output


def _fill(into: Callable[[Buffer, bytearray], int], data: Buffer, size: int) -> bytearray | None:
    """Everything, where it has fewer than `size` bytes."""
    output = bytearray(size)
    try:
        written = into(data, output)
    except cramjam.DecompressionError as error:
        # The library distinguishes a full buffer from damaged bytes by its message alone.
        if _BUFFER_FULL not in str(error):
            raise
        return None
    if written == size:
        return None
    del output[written:]
    return output


def _declared_bytes(codec: int, data: memoryview) -> int:
    """The output size that the first frame declares, 0 if it declares none: a hint, as more frames may follow.

    Source: RFC 8878 (zstd), RFC 1952 (gzip: the last four bytes, of the last frame), LZ4's frame format.
    """
    if codec == GZIP:
        declared = int.from_bytes(data[-4:], "little")
        return declared if declared <= len(data) * _LARGEST_GZIP_RATIO else 0
    if codec == LZ4:
        is_declared = len(data) > 14 and bytes(data[:4]) == _LZ4_MAGIC and data[4] & 0x08
        return int.from_bytes(data[6:14], "little") if is_declared else 0
    if len(data) < 18 or bytes(data[:4]) != _ZSTD_MAGIC:
        return 0
    descriptor = data[4]
    position = 5 + (not descriptor & 0x20) + (0, 1, 2, 4)[descriptor & 0x03]
    size_flag = descriptor >> 6
    if size_flag == 0:
        return data[position] if descriptor & 0x20 else 0
    declared = int.from_bytes(data[position : position + (1 << size_flag)], "little")
    return declared + 256 if size_flag == 1 else declared


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, limit)
    pieces = []
    position, total = len(_XERIAL_HEADER), 0
    while position < len(data):
        (length,) = struct.unpack_from(">I", data, position)
        position += 4
        if length > len(data) - position:
            raise ValueError("a snappy block is longer than its batch")
        piece = _snappy_block(data[position : position + length], limit - total)
        total += len(piece)
        pieces.append(piece)
        position += length
    return b"".join(pieces)


def _snappy_block(block: memoryview, limit: int) -> bytes:
    """One raw block, whose first bytes declare what it decompresses to: memory is taken for so much."""
    declared = cramjam.snappy.decompress_raw_len(block)
    if declared > len(block) * _LARGEST_SNAPPY_RATIO:
        raise ValueError(f"a snappy block of {len(block)} bytes cannot hold {declared}")
    if declared > limit:
        raise _too_large(limit)
    return bytes(cramjam.snappy.decompress_raw(block))
