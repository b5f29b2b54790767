"""Records of changes: the row alone, and Debezium's envelope."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from odradek.capture.formats import DebeziumFormat, Record, RowFormat
from odradek.capture.pgoutput import Begin, Change, Column, Relation, Row

ORDERS = Relation(7, "public", "orders", (Column("shop", 23), Column("id", 20), Column("at", 1114)))
KEYS = {"public.orders": ["shop", "id"]}
TRANSACTION = Begin(42, 500, 1_700_000_000_123_456)
OLD: Row = {"shop": "1", "id": "2", "at": None}
NEW: Row = {"shop": "1", "id": "2", "at": "1970-01-01 00:00:01"}
MOVED: Row = {"shop": "1", "id": "3", "at": None}


def parsed(records: Iterable[Record]) -> list[tuple[Any, Any]]:
    return [(of(each.key), of(each.value)) for each in records]


def of(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def test_the_row_alone() -> None:
    rows = RowFormat(KEYS)
    key = {"shop": "1", "id": "2"}
    assert parsed(rows.read(ORDERS, OLD, 1, 1)) == [(key, OLD)]
    assert parsed(rows.changed(Change(ORDERS, None, OLD), TRANSACTION)) == [(key, OLD)]
    assert parsed(rows.changed(Change(ORDERS, OLD, NEW), TRANSACTION)) == [(key, NEW)]
    assert parsed(rows.changed(Change(ORDERS, NEW, None), TRANSACTION)) == [(key, None)]
    assert parsed(rows.changed(Change(ORDERS, {}, NEW), TRANSACTION)) == [(key, NEW)]
    moved = parsed(rows.changed(Change(ORDERS, OLD, MOVED), TRANSACTION))
    assert moved == [(key, None), ({"shop": "1", "id": "3"}, MOVED)]
    assert list(rows.truncated(ORDERS, TRANSACTION)) == []


def envelope(op: str, before: Any, after: Any) -> dict[str, Any]:
    source = {
        "version": "0.1.0", "connector": "postgresql", "name": "shop", "ts_ms": 1_700_000_000_123, "snapshot": "false",
        "db": "orders", "schema": "public", "table": "orders", "txId": 42, "lsn": 500,
    }  # fmt: skip
    return {
        "before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1_700_000_000_123,
    }  # fmt: skip


def test_debeziums_envelope() -> None:
    made = DebeziumFormat(KEYS, "shop", "orders", schemas=False)
    key = {"shop": 1, "id": 2}
    old, new = {"shop": 1, "id": 2, "at": None}, {"shop": 1, "id": 2, "at": 1_000_000}
    assert parsed(made.changed(Change(ORDERS, None, OLD), TRANSACTION)) == [(key, envelope("c", None, old))]
    assert parsed(made.changed(Change(ORDERS, OLD, NEW), TRANSACTION)) == [(key, envelope("u", old, new))]
    assert parsed(made.changed(Change(ORDERS, {}, NEW), TRANSACTION)) == [(key, envelope("u", None, new))]
    deleted = [(key, envelope("d", new, None)), (key, None)]
    assert parsed(made.changed(Change(ORDERS, NEW, None), TRANSACTION)) == deleted
    moved = parsed(made.changed(Change(ORDERS, OLD, MOVED), TRANSACTION))
    other = {"shop": 1, "id": 3}
    assert moved == [(key, envelope("d", old, None)), (key, None), (other, envelope("c", None, {**other, "at": None}))]
    assert parsed(made.truncated(ORDERS, TRANSACTION)) == [(None, envelope("t", None, None))]
    ((_, read),) = parsed(made.read(ORDERS, OLD, 9, 1_000))
    assert (read["op"], read["source"]["snapshot"], read["source"]["lsn"], read["source"]["txId"]) == (
        "r",
        "true",
        9,
        None,
    )


def test_schemas_name_every_field_in_its_type() -> None:
    made = DebeziumFormat(KEYS, "shop", "orders", schemas=True)
    ((key, value),) = parsed(made.changed(Change(ORDERS, None, NEW), TRANSACTION))
    assert key["payload"] == {"shop": 1, "id": 2}
    assert key["schema"]["name"] == "shop.public.orders.Key"
    assert [(each["field"], each["type"]) for each in key["schema"]["fields"]] == [("shop", "int32"), ("id", "int64")]
    assert value["payload"] == envelope("c", None, {"shop": 1, "id": 2, "at": 1_000_000})
    fields = {each["field"]: each for each in value["schema"]["fields"]}
    assert set(fields) == set(value["payload"])
    assert {each["field"] for each in fields["source"]["fields"]} == set(value["payload"]["source"])
    at = fields["after"]["fields"][2]
    assert at == {
        "type": "int64",
        "optional": True,
        "field": "at",
        "name": "io.debezium.time.MicroTimestamp",
        "version": 1,
    }


def test_a_tombstone_has_the_key_of_its_deletion() -> None:
    made = DebeziumFormat(KEYS, "shop", "orders", schemas=True)
    deletion, tombstone = made.changed(Change(ORDERS, OLD, None), TRANSACTION)
    assert tombstone == Record(deletion.key, None)
