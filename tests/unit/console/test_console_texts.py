"""The console shows bytes as JSON, Avro, text or hex, and never more than a limit of them."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from odradek.console.texts import (
    CELL_SIGNS,
    DECODED_BYTES,
    PAGE_SIGNS,
    cell,
    link_lines,
    pipeline_errors,
    pipeline_text,
    rate_text,
    shown,
    size_text,
    time_text,
)

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "raw", "type": "bytes"}],
}


def avro(order_id: int) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(SCHEMA), {"id": order_id, "raw": b"\xff"})
    return data.getvalue()


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (None, "null", "null"),
        (b"", "text", ""),
        (b"hello", "text", "hello"),
        ("grüße".encode(), "text", "grüße"),
        (b"17", "text", "17"),
        (b'{"b": 1,"a": [2]}', "JSON", '{\n  "b": 1,\n  "a": [\n    2\n  ]\n}'),
        (b"{no json", "text", "{no json"),
        (b"\xff\xfe", "hex", "00000000  ff fe" + " " * 44 + ".."),
        (b"\0\0\0\x07", "hex", "00000000  00 00 00 07" + " " * 38 + "...."),
    ],
)
def test_the_form_is_found(data: bytes | None, form: str, text: str) -> None:
    found = shown(data)
    assert (found.form, found.text, found.note) == (form, text, "")


def test_a_form_that_does_not_fit_gives_hex_and_the_reason() -> None:
    assert shown(b"\xff", "text").note == "it is no UTF-8"
    assert shown(b"{", "JSON").note == "it is no JSON"
    assert shown(b"\x01", "Avro").note.startswith("no schema")
    assert {shown(b"\xff", form).form for form in ("text", "JSON", "Avro", "hex", "auto")} == {"hex"}


def test_avro_with_a_schema_with_and_without_the_prefix_of_a_registry() -> None:
    schema = json.dumps(SCHEMA)
    plain = shown(avro(7), "auto", schema)
    assert (plain.form, json.loads(plain.text)) == ("Avro", {"id": 7, "raw": "ff"})
    assert shown(b"\0\0\0\0\x05" + avro(7), "auto", schema) == plain
    assert shown(b"\x0e\x02", "Avro", schema).note == "it is not in Avro by this schema"
    assert shown(b'{"x":1}', "auto", schema).form == "JSON"
    assert cell(avro(7), schema) == '{ "id": 7, "raw": "ff" }'


def test_of_a_container_of_avro_the_schema_is_shown() -> None:
    data = io.BytesIO()
    fastavro.writer(data, fastavro.parse_schema(SCHEMA), [{"id": 1, "raw": b""}])
    found = shown(data.getvalue())
    assert found.form == "Avro"
    (schema,) = json.loads(found.text).values()
    assert [each["name"] for each in schema["fields"]] == ["id", "raw"]


def test_a_container_of_countless_records_costs_nothing() -> None:
    data = io.BytesIO()
    fastavro.writer(data, fastavro.parse_schema("null"), [])
    block = b"\x80\x80\x80\x80\x80\x80\x20\x00"  # 2^46 records in 0 bytes
    sync = data.getvalue()[-16:]
    assert shown(data.getvalue() + block + sync).form == "Avro"


def test_half_of_a_surrogate_pair_is_spelled_out() -> None:
    assert "\\ud800" in shown(b'{"a": "\\ud800"}').text


@pytest.mark.parametrize("form", ["auto", "text", "JSON", "hex", "Avro"])
def test_a_large_value_is_cut(form: str) -> None:
    for data in (b"x" * 10_000_000, b"\xc3\xbc" * 5_000_000, b"\xff" * 10_000_000):
        found = shown(data, form, "{}")
        assert len(found.text) < 6 * PAGE_SIGNS
        assert "the beginning of 9.5 MiB is shown" in found.note
        assert len(cell(data)) <= CELL_SIGNS + 2


def test_deep_json_is_text() -> None:
    assert shown(b"[" * 100_000).form == "text"


def test_a_cut_amid_a_sign_leaves_text() -> None:
    assert shown(b"x" * (DECODED_BYTES - 1) + "ü".encode()).form == "text"
    assert cell(b"x" * 799 + "ü".encode()).startswith("xxx")


def test_cells_are_one_line() -> None:
    assert cell(None) == "null"
    assert cell(b"a\n b\tc") == "a b c"
    assert cell(b"\xff" * 40) == "ff " * 32 + "…"


def test_numbers_for_people() -> None:
    assert [size_text(size) for size in (0, 812, 1229, 5 << 30, 7 << 40)] == [
        "0 B",
        "812 B",
        "1.2 KiB",
        "5.0 GiB",
        "7.0 TiB",
    ]
    assert [rate_text(rate) for rate in (None, 0, 0.25, 99.95, 12_345.6)] == [
        "-",
        "0/s",
        "0.2/s",
        "100.0/s",
        "12,346/s",
    ]
    assert time_text(0) == "1970-01-01 00:00:00.000"
    assert [time_text(at) for at in (-1, 10**18)] == ["-", "1000000000000000000"]


def test_a_link_in_words_has_no_secret() -> None:
    kept = {"reason": "connection refused", "since_ms": 0}
    link = {
        "reason": "",
        "since_ms": -1,
        "beside": {"offsets of groups": kept},
        "settings": {"sasl.jaas.config": None, "ssl.truststore.certificates": "x" * 500},
    }
    assert link_lines(link) == [
        "offsets of groups do not follow: connection refused (since 1970-01-01 00:00:00.000)",
        "sasl.jaas.config=(hidden)",
        f"ssl.truststore.certificates={'x' * 100}…",
    ]
    assert link_lines({**link, **kept})[0] == "Nothing comes: connection refused (since 1970-01-01 00:00:00.000)"


def test_a_pipeline_that_runs_and_says_nothing_is_silent() -> None:
    status = {"pipeline": "shop", "mode": "continuous", "state": "running", "started": 0.0, "updated": 100.0}
    said = "shop: running (continuous), began 1970-01-01 00:00:00 UTC, as of 30 s ago"
    assert pipeline_text(status, 130.0) == said
    assert pipeline_text(status, 131.0) == said.replace("running", "silent, was running").replace("30", "31")
    assert pipeline_text({**status, "state": "finished"}, 1000.0).startswith("shop: finished (")


def test_a_pipeline_says_its_first_errors() -> None:
    flows = [{"flow": f"f{at}", "error": "bad" if at else ""} for at in range(5)]
    assert pipeline_errors({"error": "", "flows": flows[:2]}) == "f1: bad"
    assert pipeline_errors({"error": "it failed", "flows": flows}) == "it failed; f1: bad; f2: bad; and 2 more"
