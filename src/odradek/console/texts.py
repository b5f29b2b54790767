"""Formats texts of pages: bytes (as JSON, Avro, text or hex, with limits), numbers, times, links."""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

# The limits of a value in a table, of a record on its page, and of the bytes that are decoded to detect the format.
CELL_SIGNS, PAGE_SIGNS, DECODED_BYTES = 200, 32_768, 1_000_000
CELL_BYTES, CELL_HEX = 800, 32
HEX_ROW_BYTES = 16
SHOWN_SETTING = 100
SHOWN_ERRORS = 3
# A run writes its progress each five seconds.
RUNNING_STATES, SILENT_S = ("catching up", "running"), 30.0
FORMS = ("auto", "JSON", "text", "hex", "Avro")
# The prefix of an Avro value with a schema registry: a zero byte and the id of its schema.
_REGISTRY_PREFIX_BYTES = 5
_CONTAINER = b"Obj\x01"
# Signs that no text has: numbers and structures in bytes that happen to be UTF-8.
_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f]")


@dataclass(frozen=True, slots=True)
class Shown:
    """A formatted key, value or header.

    Attributes:
        form: "null", "JSON", "text", "hex" or "Avro".
        note: the omission, or the reason for another format; else "".
    """

    text: str
    form: str
    note: str = ""


def shown(data: bytes | None, form: str = "auto", schema: str | None = None, *, signs: int = PAGE_SIGNS) -> Shown:
    """Some bytes in a form, at most so many signs of it; bytes that are not of that form are shown in hex."""
    if data is None:
        return Shown("null", "null")
    try:
        text, found = _DECODERS[form](data, schema)
    except ValueError as error:
        text, found = _hex(data, signs), "hex"
        return Shown(text, found, _joined(str(error), _cut_note(data, text, found, signs)))
    return Shown(_sendable(_cut(text, signs)), found, _cut_note(data, text, found, signs))


def _sendable(text: str) -> str:
    """Without half of a surrogate pair, which JSON may have and no page."""
    return text.encode("utf-8", "backslashreplace").decode()


def _auto(data: bytes, schema: str | None) -> tuple[str, str]:
    is_avro = schema is not None or data.startswith(_CONTAINER)
    for form in ("Avro", "JSON", "text") if is_avro else ("JSON", "text"):
        try:
            text, found = _DECODERS[form](data, schema)
        except ValueError:
            continue
        if found != "text" or not _CONTROL.search(text):
            return text, found
    return _hex(data, PAGE_SIGNS), "hex"


def _json(data: bytes, _: str | None) -> tuple[str, str]:
    if len(data) > DECODED_BYTES:
        return _text(data, None)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    if data[:1] not in b"{[" and not isinstance(found, str):
        return data.decode(), "text"
    try:
        return json.dumps(found, indent=2, ensure_ascii=False), "JSON"
    except RecursionError:
        return data.decode(), "text"


def _text(data: bytes, _: str | None) -> tuple[str, str]:
    try:
        return _beginning(data, DECODED_BYTES), "text"
    except UnicodeDecodeError:
        raise ValueError("it is no UTF-8") from None


def _beginning(data: bytes, limit: int) -> str:
    """The first bytes as text; a sign that the limit cuts in two is left out."""
    return codecs.getincrementaldecoder("utf-8")().decode(data[:limit], final=len(data) <= limit)


def _of_hex(data: bytes, _: str | None) -> tuple[str, str]:
    return _hex(data, PAGE_SIGNS), "hex"


def _hex(data: bytes, signs: int) -> str:
    """Rows of sixteen bytes: the position, the bytes in hex and as ASCII."""
    rows = []
    for at in range(0, min(len(data), signs // 4), HEX_ROW_BYTES):
        row = data[at : at + HEX_ROW_BYTES]
        signs_of = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:08x}  {row.hex(' '):<47}  {signs_of}")
    return "\n".join(rows)


def _avro(data: bytes, schema: str | None) -> tuple[str, str]:
    try:
        import fastavro
    except ImportError:
        raise ValueError("Avro needs `pip install odradek[avro]`") from None
    if len(data) > DECODED_BYTES:
        raise ValueError(f"it is too large to be decoded from Avro: {size_text(len(data))}")
    try:
        if data.startswith(_CONTAINER):
            # Its producer chose the schema: a few bytes may claim to be a billion records.
            found: Any = {"container file with the schema": fastavro.reader(io.BytesIO(data)).writer_schema}
        elif schema is None:
            raise ValueError('no schema: name one in the console\'s file, [clusters.NAME.avro] TOPIC = "file.avsc"')
        else:
            found = _one_avro(fastavro, data, json.loads(schema))
    except ValueError:
        raise
    except Exception as error:  # a library's many errors, of bytes that are anything
        raise ValueError(f"it is not in Avro by this schema ({type(error).__name__})") from None
    try:
        return json.dumps(found, indent=2, ensure_ascii=False, default=_plain), "Avro"
    except RecursionError:
        raise ValueError("it is nested too deeply to be shown") from None


def _one_avro(fastavro: Any, data: bytes, schema: Any) -> Any:
    parsed = fastavro.parse_schema(schema)
    starts = [_REGISTRY_PREFIX_BYTES, 0] if data[:1] == b"\0" and len(data) > _REGISTRY_PREFIX_BYTES else [0]
    for start in starts:
        source = io.BytesIO(data[start:])
        try:
            found = fastavro.schemaless_reader(source, parsed, None)
        except Exception:  # noqa: S112 - it may have no prefix
            continue
        if not source.read(1):
            return found
    raise ValueError("it is not in Avro by this schema")


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


_DECODERS: dict[str, Callable[[bytes, str | None], tuple[str, str]]] = {
    "auto": _auto,
    "JSON": _json,
    "text": _text,
    "hex": _of_hex,
    "Avro": _avro,
}


def cell(data: bytes | None, schema: str | None = None) -> str:
    """The beginning of a key or a value, on one line, for a table."""
    if data is None:
        return "null"
    try:
        text = shown(data, "Avro", schema).text if schema is not None else _beginning(data, CELL_BYTES)
    except UnicodeDecodeError:
        text = "\0"
    if _CONTROL.search(text):
        return data[:CELL_HEX].hex(" ") + (" …" if len(data) > CELL_HEX else "")
    line = " ".join(text[:CELL_BYTES].split())
    return line if len(line) <= CELL_SIGNS and len(data) <= CELL_BYTES else f"{line[:CELL_SIGNS]} …"


def _cut(text: str, signs: int) -> str:
    return text if len(text) <= signs else text[:signs] + "…"


def _cut_note(data: bytes, text: str, form: str, signs: int) -> str:
    if form == "hex":
        is_cut = len(data) > signs // 4
    else:
        is_cut = len(text) > signs or (form == "text" and len(data) > DECODED_BYTES)
    return f"the beginning of {size_text(len(data))} is shown" if is_cut else ""


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def size_text(size: float) -> str:
    """Bytes for a person: `812 B`, `1.2 KiB`, `3.4 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def rate_text(rate: float | None, what: str = "") -> str:
    """The text of a rate; "-" if unknown."""
    if rate is None:
        return "-"
    shown_rate = f"{rate:,.1f}" if 0 < rate < 100 else f"{rate:,.0f}"
    return f"{shown_rate}{what}/s"


def time_text(at_ms: int) -> str:
    """A time in UTC, with milliseconds; "-" if there is none."""
    if at_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (OverflowError, OSError, ValueError):
        return str(at_ms)


def link_lines(link: Mapping[str, Any]) -> list[str]:
    """The lines of a link: its problems and its settings, without secrets."""
    lines = [f"Nothing comes: {reason_text(link)}"] if link["reason"] else []
    lines += [f"{what} do not follow: {reason_text(each)}" for what, each in sorted(link["beside"].items())]
    for key, value in sorted(link["settings"].items()):
        text = "(hidden)" if value is None else value
        lines.append(f"{key}={text if len(text) <= SHOWN_SETTING else text[:SHOWN_SETTING] + '…'}")
    return lines


def reason_text(row: Mapping[str, Any]) -> str:
    """The problem of a mirror or a link, with its begin; "" if there is none."""
    return f"{row['reason']} (since {time_text(row['since_ms'])})" if row["reason"] else ""


def pipeline_text(status: Mapping[str, Any], now_s: float) -> str:
    """The state of a pipeline, its begin and age; a running one without recent reports is silent."""
    ago_s = max(0.0, now_s - status["updated"])
    state = status["state"]
    if state in RUNNING_STATES and ago_s > SILENT_S:
        state = f"silent, was {state}"
    began = time_text(int(status["started"] * 1000)).partition(".")[0]
    return f"{status['pipeline']}: {state} ({status['mode']}), began {began} UTC, as of {ago_s:,.0f} s ago"


def pipeline_errors(status: Mapping[str, Any]) -> str:
    """The errors of the pipeline and of its first flows."""
    of_flows = [f"{each['flow']}: {each['error']}" for each in status["flows"] if each["error"]]
    errors = [each for each in (status["error"], *of_flows) if each]
    more = [f"and {len(errors) - SHOWN_ERRORS} more"] if len(errors) > SHOWN_ERRORS else []
    return "; ".join(errors[:SHOWN_ERRORS] + more)
