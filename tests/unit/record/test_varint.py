"""Signed varints: the bytes of numbers at every edge, and bytes that are not a number."""

from __future__ import annotations

import pytest
from aiokafka.record.util import decode_varint_py, encode_varint_py
from hypothesis import given
from hypothesis import strategies as st

from odradek.record.varint import read_zigzag, zigzag

GOLDEN = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    300: "d804",
    8191: "fe7f",
    8192: "808001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
    2**62: "80808080808080808001",
    2**63 - 1: "feffffffffffffffff01",
    -(2**63): "ffffffffffffffffff01",
}


@pytest.mark.parametrize(("number", "written"), GOLDEN.items())
def test_numbers_at_the_edges(number: int, written: str) -> None:
    data = bytes.fromhex(written)
    assert zigzag(number) == data
    assert read_zigzag(b"\xff\xff" + data + b"\x7f", 2) == (number, 2 + len(data))


@given(st.integers(-(2**63), 2**63 - 1))
def test_another_library_writes_and_reads_the_same(number: int) -> None:
    theirs: list[int] = []
    encode_varint_py(number, theirs.append)
    assert zigzag(number) == bytes(theirs)
    assert read_zigzag(bytes(theirs), 0) == (number, len(theirs))
    assert decode_varint_py(bytearray(zigzag(number)), 0) == (number, len(theirs))


@pytest.mark.parametrize("cut", range(10))
def test_a_number_that_is_cut_off_is_an_index_error(cut: int) -> None:
    with pytest.raises(IndexError):
        read_zigzag(zigzag(2**63 - 1)[:cut], 0)


@pytest.mark.parametrize(
    "written",
    ["ffffffffffffffffff02", "8080808080808080807f", "ffffffffffffffffffff01", "80808080808080808080808000"],
)
def test_more_than_64_bits_are_refused(written: str) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        read_zigzag(bytes.fromhex(written), 0)


def test_zeros_may_fill_the_last_bytes() -> None:
    """Every reader of varints accepts them: a number need not have the shortest form."""
    assert read_zigzag(bytes.fromhex("8200"), 0) == (1, 2)
    assert read_zigzag(bytes.fromhex("82808080808080808000"), 0) == (1, 10)
