"""A batch in another codec holds the same records, under a header that says so."""

from __future__ import annotations

from itertools import permutations

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.record.batch import COMPRESSION_NAMES, crc_is_valid, read_size
from odradek.record.reader import read_records
from odradek.record.recompression import recompress
from tests.support.models.batches import batch, header_of


@pytest.mark.parametrize(("source", "target"), list(permutations(range(5), 2)))
def test_records_stay_what_they_were(source: int, target: int) -> None:
    data = batch(b"one", b"two" * 500, compression=COMPRESSION_NAMES[source], producer_id=7, sequence=3)
    before = header_of(data)
    changed, header = recompress(data, before, target, level=None, max_output_bytes=10_000, max_batch_bytes=10_000)
    assert header == header_of(bytes(changed)) and header.size_bytes == len(changed)
    assert header.compression == target and crc_is_valid(changed, header)
    assert read_records(bytes(changed), header) == read_records(data, before)
    kept = ("producer_id", "base_sequence", "record_count", "last_offset_delta", "base_timestamp", "max_timestamp")
    assert all(getattr(header, name) == getattr(before, name) for name in kept)


def test_a_bomb_is_refused() -> None:
    data = batch(bytes(1_000_000), compression="zstd")
    with pytest.raises(ApiError) as refused:
        recompress(data, header_of(data), 1, level=None, max_output_bytes=100_000, max_batch_bytes=10_000_000)
    assert refused.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("codec", "lowest", "highest"), [("gzip", 1, 9), ("lz4", 1, 17), ("zstd", -1000, 19)])
def test_a_level_is_what_the_topic_asks_for(codec: str, lowest: int, highest: int) -> None:
    data = batch(*(b"%d %d" % (number, number * 7919 % 1013) for number in range(3000)))
    sizes = {}
    for level in (lowest, highest):
        target = COMPRESSION_NAMES.index(codec)
        changed, header = recompress(
            data, header_of(data), target, level=level, max_output_bytes=1_000_000, max_batch_bytes=1_000_000
        )
        assert read_records(bytes(changed), header) == read_records(data, header_of(data))
        sizes[level] = len(changed)
    assert sizes[highest] < sizes[lowest]


def test_a_batch_too_large_in_the_new_codec_is_refused() -> None:
    """The limit is of the whole batch, and inclusive; bytes behind the batch are not its own."""
    data = batch(bytes(5000), compression="zstd")
    plain = read_size(batch(bytes(5000)))[1]
    _, header = recompress(
        data + b"behind", header_of(data), 0, level=None, max_output_bytes=10_000, max_batch_bytes=plain
    )
    assert header.size_bytes == plain
    with pytest.raises(ApiError, match=f"has {plain} bytes") as refused:
        recompress(data, header_of(data), 0, level=None, max_output_bytes=10_000, max_batch_bytes=plain - 1)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
