"""Messages of pgoutput, built by the layouts of PostgreSQL's manual."""

from __future__ import annotations

import struct

import pytest

from odradek.capture.pgoutput import (
    EPOCH_US,
    Begin,
    Change,
    Column,
    Commit,
    Decoder,
    MissingValueError,
    Relation,
    Truncate,
)

ORDERS = Relation(7, "public", "orders", (Column("id", 20), Column("note", 25)))
RELATION = (
    b"R" + struct.pack(">I", 7) + b"public\0orders\0f" + struct.pack(">H", 2)
    + b"\1id\0" + struct.pack(">Ii", 20, -1) + b"\0note\0" + struct.pack(">Ii", 25, -1)
)  # fmt: skip


def text(value: bytes) -> bytes:
    return b"t" + struct.pack(">I", len(value)) + value


def row(*values: bytes) -> bytes:
    return struct.pack(">H", len(values)) + b"".join(values)


@pytest.fixture
def decoder() -> Decoder:
    found = Decoder()
    assert found.decode(RELATION) is None
    return found


def test_a_transaction_begins_and_ends(decoder: Decoder) -> None:
    assert decoder.decode(b"B" + struct.pack(">QqI", 500, 1_000_000, 42)) == Begin(42, 500, EPOCH_US + 1_000_000)
    assert decoder.decode(b"C" + struct.pack(">BQQQ", 0, 500, 548, 1_000_000)) == Commit(548)


def test_rows_are_inserted_updated_and_deleted(decoder: Decoder) -> None:
    head = struct.pack(">I", 7)
    first, last = row(text(b"1"), b"n"), row(text(b"1"), text("é".encode()))
    assert decoder.decode(b"I" + head + b"N" + first) == Change(ORDERS, None, {"id": "1", "note": None})
    change = decoder.decode(b"U" + head + b"O" + first + b"N" + last)
    assert change == Change(ORDERS, {"id": "1", "note": None}, {"id": "1", "note": "é"})
    assert decoder.decode(b"D" + head + b"O" + last) == Change(ORDERS, {"id": "1", "note": "é"}, None)
    assert decoder.decode(b"D" + head + b"K" + last) == Change(ORDERS, {"id": "1", "note": "é"}, None)


def test_a_large_value_that_did_not_change_is_that_of_the_row_before(decoder: Decoder) -> None:
    before, after = row(text(b"1"), text(b"long")), row(text(b"2"), b"u")
    change = decoder.decode(b"U" + struct.pack(">I", 7) + b"O" + before + b"N" + after)
    assert isinstance(change, Change) and change.after == {"id": "2", "note": "long"}


def test_without_whole_rows_a_large_value_is_missing(decoder: Decoder) -> None:
    head = b"U" + struct.pack(">I", 7)
    with pytest.raises(MissingValueError, match=r"public\.orders has not the value of note"):
        decoder.decode(head + b"N" + row(text(b"2"), b"u"))
    change = decoder.decode(head + b"N" + row(text(b"2"), text(b"short")))
    assert change == Change(ORDERS, {}, {"id": "2", "note": "short"})


def test_a_truncate_names_its_tables(decoder: Decoder) -> None:
    assert decoder.decode(b"T" + struct.pack(">IBI", 1, 0, 7)) == Truncate((ORDERS,))


def test_a_table_that_is_described_again_has_its_new_columns(decoder: Decoder) -> None:
    columns = struct.pack(">H", 1) + b"\1id\0" + struct.pack(">Ii", 20, -1)
    decoder.decode(b"R" + struct.pack(">I", 7) + b"public\0orders\0f" + columns)
    change = decoder.decode(b"I" + struct.pack(">I", 7) + b"N" + row(text(b"1")))
    assert isinstance(change, Change) and change.after == {"id": "1"}


@pytest.mark.parametrize(
    "message",
    [b"", b"?", b"B\0", b"I" + struct.pack(">I", 8), b"I" + struct.pack(">I", 7) + b"N" + row(b"t\0\0\0\x09x"), b"S"],
)
def test_bytes_that_are_no_message_are_refused(decoder: Decoder, message: bytes) -> None:
    with pytest.raises(ValueError):
        decoder.decode(message)
