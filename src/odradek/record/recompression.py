"""A batch in the codec that its topic asks for (compression.type), where the producer chose another one.

Only the payload changes and what the header says of it: records keep their bytes, offsets and timestamps, so nothing is
decoded one by one. Source: KIP-390 for the levels.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Buffer
from odradek.record.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    pack_header,
    seal,
    with_compression,
)
from odradek.record.compression import NONE, compress, unpack


def recompress(
    batch: Buffer,
    header: BatchHeader,
    codec: int,
    *,
    level: int | None,
    max_output_bytes: int,
    max_batch_bytes: int,
) -> tuple[bytearray, BatchHeader]:
    """The same records in another codec, sealed, with its header.

    Args:
        batch: one whole batch, already validated.
        codec: an index of COMPRESSION_NAMES; level: the codec's own, None for its default.
        max_output_bytes: limit of the decompressed records.
        max_batch_bytes: limit of the batch in the other codec.
    Raises:
        ApiError: CORRUPT_MESSAGE, INVALID_RECORD as `decompress`; MESSAGE_TOO_LARGE.
    """
    payload = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    packed: Buffer = unpack(header.compression, payload, max_output_bytes)
    if codec != NONE:
        packed = compress(codec, packed, level=level)
    size = HEADER_BYTES + len(packed)
    if size > max_batch_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch has {size} bytes in the codec of the topic, which exceeds the maximum configured value "
            f"of {max_batch_bytes}.",
        )
    changed = header._replace(
        batch_length=size - LOG_OVERHEAD_BYTES,
        attributes=with_compression(header.attributes, codec),
    )
    result = bytearray(pack_header(changed))
    result += packed
    seal(result)
    return result, BatchHeader.read(result)
