"""A batch in the codec that its topic asks for (compression.type), where the producer chose another one.

Only the payload changes and what the header says of it: records keep their bytes, offsets and timestamps, so nothing is
decoded one by one. Source: KIP-390 for the levels.
"""

from __future__ import annotations

from odradek.common.ports import Buffer
from odradek.record.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    pack_header,
    seal,
    with_compression,
)
from odradek.record.compression import compress, decompress


def recompress(
    batch: Buffer, header: BatchHeader, codec: int, *, level: int | None, max_output_bytes: int
) -> tuple[bytearray, BatchHeader]:
    """The same records in another codec, sealed, with its header.

    Args:
        batch: one whole batch, already validated.
        codec: an index of COMPRESSION_NAMES; level: the codec's own, None for its default.
        max_output_bytes: what the batch may decompress to.
    Raises:
        ApiError: CORRUPT_MESSAGE, INVALID_RECORD as `decompress`.
    """
    payload = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    packed = compress(codec, decompress(header.compression, payload, max_output_bytes), level=level)
    changed = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(packed),
        attributes=with_compression(header.attributes, codec),
    )
    result = bytearray(pack_header(changed))
    result += packed
    seal(result)
    return result, BatchHeader.read(result)
