"""Records as lines and JSON: parsing a printed record gives the same record."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.record_text import (
    IncomingRecord,
    LineFormat,
    OutgoingRecord,
    Printing,
    as_json,
    as_line,
    parse_header,
    parse_json,
    parse_line,
)

DATA = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=20).map(str.encode))
# Names have no NUL: the C client ends a name there, so that `produce` refuses it.
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
HEADERS = st.lists(st.tuples(NAMES, DATA), max_size=3)


@pytest.mark.parametrize(
    ("line", "how", "record"),
    [
        (b"abc", LineFormat(), OutgoingRecord(b"abc")),
        (b"", LineFormat(), OutgoingRecord(b"")),
        (b"k:v:w", LineFormat(key_separator=":"), OutgoingRecord(b"v:w", b"k")),
        (b"k=>v", LineFormat(key_separator="=>"), OutgoingRecord(b"v", b"k")),
        (b"NULL:NULL", LineFormat(key_separator=":", null_marker="NULL"), OutgoingRecord(None, None)),
        (b"\xff\xfe", LineFormat(), OutgoingRecord(b"\xff\xfe")),
        (b"a:1,b:\tv", LineFormat(parse_headers=True), OutgoingRecord(b"v", None, [("a", b"1"), ("b", b"")])),
        (b"\tk:v", LineFormat(key_separator=":", parse_headers=True), OutgoingRecord(b"v", b"k")),
    ],
)
def test_lines(line: bytes, how: LineFormat, record: OutgoingRecord) -> None:
    assert parse_line(line, how) == record


@pytest.mark.parametrize(
    ("line", "how", "said"),
    [
        (b"abc", LineFormat(key_separator=":"), "no key separator ':'"),
        (b"abc", LineFormat(parse_headers=True), "no tab behind the headers"),
        (b"abc\tv", LineFormat(parse_headers=True), "'abc' is not name:value"),
        (b"\xff:1\tv", LineFormat(parse_headers=True), "not UTF-8"),
    ],
)
def test_invalid_lines(line: bytes, how: LineFormat, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_line(line, how)


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ('{"value": "v"}', OutgoingRecord(b"v")),
        ('{"value": null, "key": "k"}', OutgoingRecord(None, b"k")),
        ('{"value": {"a": [1, "é"]}}', OutgoingRecord('{"a":[1,"é"]}'.encode())),
        ('{"value": 7, "key": true}', OutgoingRecord(b"7", b"true")),
        (
            '{"value": {"a": [0.12345678901234567890, true, null], "b": {"c": 1.10}}, "key": 1e400}',
            OutgoingRecord(b'{"a":[0.12345678901234567890,true,null],"b":{"c":1.10}}', b"1E+400"),
        ),
        ('{"value_base64": "/w==", "headers": {"h": "x"}}', OutgoingRecord(b"\xff", None, [("h", b"x")])),
        ('{"value": {"base64": "/w=="}}', OutgoingRecord(b'{"base64":"/w=="}')),
        (
            '{"value": "v", "headers": [["h", {"base64": "/w=="}], ["h", null]], "partition": 3, "timestamp_ms": 5}',
            OutgoingRecord(b"v", None, [("h", b"\xff"), ("h", None)], 3, 5),
        ),
    ],
)
def test_json_lines(text: str, record: OutgoingRecord) -> None:
    assert parse_json(text.encode()) == record


@pytest.mark.parametrize(
    "text",
    [
        "abc",
        "[]",
        "{}",
        '{"key": "k"}',
        '{"value": 1e99999999999999999999}',
        '{"value": "v", "partition": -1}',
        '{"value": "v", "partition": true}',
        '{"value": "v", "timestamp_ms": "now"}',
        '{"value_base64": "%%"}',
        '{"value_base64": 5}',
        '{"value": "v", "headers": 5}',
        '{"value": "v", "headers": [["h"]]}',
        '{"value": "v", "headers": [[1, "x"]]}',
        "\xff",
    ],
)
def test_invalid_json_of_records(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text.encode("latin-1"))


def test_a_header_of_an_option() -> None:
    assert parse_header("a=b=c") == ("a", b"b=c")
    for wrong in ("abc", "=b"):
        with pytest.raises(ValueError, match="name=value"):
            parse_header(wrong)


def record(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> IncomingRecord:
    return IncomingRecord("t", 3, 42, 1000, key, value, headers)


def test_the_text_of_a_record() -> None:
    full = record(b"k", b"v", [("a", b"1"), ("b", None)])
    assert as_line(full, Printing()) == b"v\n"
    assert as_line(full, Printing(key=True, separator=":")) == b"k:v\n"
    everything = Printing(timestamp=True, partition=True, offset=True, headers=True, key=True, separator="|")
    assert as_line(full, everything) == b"CreateTime:1000|Partition:3|Offset:42|a:1,b:null|k|v\n"
    bare = IncomingRecord("t", 0, 0, None, None, None, [])
    assert as_line(bare, everything) == b"CreateTime:-1|Partition:0|Offset:0|NO_HEADERS|null|null\n"


@given(DATA, DATA, HEADERS)
def test_json_is_read_as_it_was_printed(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = as_json(record(key, value, headers))
    assert line.count(b"\n") == 1
    json.loads(line)
    assert parse_json(line) == OutgoingRecord(value, key, headers, 3, 1000)
