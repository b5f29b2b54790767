"""Conversion of records to lines and JSON, for `odradek produce` and `odradek consume`. Pure.

A JSON record: {"key", "value", "headers", "partition", "timestamp_ms"} and, when printed, "topic" and "offset". Bytes
that are not UTF-8 stand under "key_base64" and "value_base64"; a header's value then is {"base64": …}. Headers are a
list of [name, value], because Kafka allows a name twice; an object is taken too.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from odradek.common import exact_json
from odradek.common.numbers import INT64_MAX

Header = tuple[str, bytes | None]

# json.dumps would make one for every record.
_encode = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(slots=True)
class OutgoingRecord:
    """A record to produce; None lets the client decide."""

    value: bytes | None
    key: bytes | None = None
    headers: list[Header] = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        """The size of key and value."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The rules by which a line is parsed as a record.

    Attributes:
        key_separator: the text between key and value; None if lines have no keys.
        parse_headers: a line begins with name:value,name:value and a tab.
        null_marker: a key or value of exactly these characters is null.
    """

    key_separator: str | None = None
    parse_headers: bool = False
    null_marker: str | None = None


def parse_line(line: bytes, how: LineFormat) -> OutgoingRecord:
    """Parse a line, without its end, as a record. Raises ValueError with the reason."""
    headers: list[Header] = []
    rest = line
    if how.parse_headers:
        head, tab, rest = line.partition(b"\t")
        if not tab:
            raise ValueError("no tab behind the headers")
        headers = [_parse_header(item, how) for item in head.split(b",") if item]
    key: bytes | None = None
    if how.key_separator is not None:
        key_bytes, separator, rest = rest.partition(how.key_separator.encode())
        if not separator:
            raise ValueError(f"no key separator {how.key_separator!r}")
        key = _unless_null(key_bytes, how)
    return OutgoingRecord(_unless_null(rest, how), key, headers)


def parse_header(text: str) -> Header:
    """`name=value` of an option. Raises ValueError."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ValueError(f"{text!r} is not name=value")
    return name, value.encode()


def parse_json(line: bytes) -> OutgoingRecord:
    """Parse a line of JSON as a record. Raises ValueError with the reason."""
    try:
        found = exact_json.decoded(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(found, dict) or not found.keys() & {"value", "value_base64"}:
        raise ValueError('a record is an object with "value" or "value_base64"')
    headers = found.get("headers") or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    try:
        return OutgoingRecord(
            _json_bytes(found, "value"),
            _json_bytes(found, "key"),
            [(_name(name), _bytes(value)) for name, value in pairs],
            _whole(found, "partition"),
            _whole(found, "timestamp_ms"),
        )
    except (TypeError, RecursionError, binascii.Error) as error:
        raise ValueError(str(error)) from None


@dataclass(frozen=True, slots=True)
class Printing:
    """The fields to print before a record's value, in this order, with `separator` between them."""

    timestamp: bool = False
    partition: bool = False
    offset: bool = False
    headers: bool = False
    key: bool = False
    separator: str = "\t"
    null_marker: str = "null"


# Not frozen: that would cost a microsecond for each record.
@dataclass(slots=True)
class IncomingRecord:
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


def as_line(record: IncomingRecord, how: Printing) -> bytes:
    """A record as a line with its end; key and value are unchanged bytes."""
    null = how.null_marker.encode()
    parts = []
    if how.timestamp:
        parts.append(f"CreateTime:{-1 if record.timestamp_ms is None else record.timestamp_ms}".encode())
    if how.partition:
        parts.append(f"Partition:{record.partition}".encode())
    if how.offset:
        parts.append(f"Offset:{record.offset}".encode())
    if how.headers:
        shown = [name.encode() + b":" + (null if value is None else value) for name, value in record.headers]
        parts.append(b",".join(shown) or b"NO_HEADERS")
    if how.key:
        parts.append(null if record.key is None else record.key)
    parts.append(null if record.value is None else record.value)
    return how.separator.encode().join(parts) + b"\n"


def as_json(record: IncomingRecord) -> bytes:
    """A record as one line of JSON that `parse_json` reads."""
    found: dict[str, Any] = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    found["timestamp_ms"] = record.timestamp_ms
    for name, data in (("key", record.key), ("value", record.value)):
        text = _text(data)
        if data is not None and text is None:
            found[f"{name}_base64"] = base64.b64encode(data).decode()
        else:
            found[name] = text
    found["headers"] = [[name, _header_value(value)] for name, value in record.headers]
    return _encode(found).encode() + b"\n"


def _text(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def _header_value(value: bytes | None) -> Any:
    text = _text(value)
    return {"base64": base64.b64encode(value).decode()} if value is not None and text is None else text


def _parse_header(item: bytes, how: LineFormat) -> Header:
    name, colon, value = item.partition(b":")
    if not colon or not name:
        raise ValueError(f"header {item.decode(errors='replace')!r} is not name:value")
    try:
        return name.decode(), _unless_null(value, how)
    except UnicodeDecodeError:
        raise ValueError("the name of a header is not UTF-8") from None


def _unless_null(data: bytes, how: LineFormat) -> bytes | None:
    return None if how.null_marker is not None and data == how.null_marker.encode() else data


def _json_bytes(found: dict[str, Any], name: str) -> bytes | None:
    encoded = found.get(f"{name}_base64")
    if encoded is None:
        return _bytes(found.get(name), literal=True)
    if not isinstance(encoded, str):
        raise TypeError(f"{name}_base64 is not a string")
    return base64.b64decode(encoded, validate=True)


def _bytes(value: Any, *, literal: bool = False) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if not literal and isinstance(value, dict) and isinstance(value.get("base64"), str):
        return base64.b64decode(value["base64"], validate=True)
    # Anything else is a document of its own.
    return exact_json.encoded(value).encode()


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError("the name of a header is not a string")
    if "\0" in name:
        raise ValueError("the name of a header has a NUL, where the client would end it")
    return name


def _whole(found: dict[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INT64_MAX):
        raise TypeError(f"{name} is not a whole number, or too large")
    return value
