"""Records of changes: the row alone, and Debezium's envelope."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from odradek.capture.formats import DebeziumFormat, Record, RowFormat, marked
from odradek.capture.pgoutput import Begin, Change, Column, Relation, Row, Truncate

ORDERS = Relation(7, "public", "orders", (Column("shop", 23), Column("id", 20), Column("at", 1114)))
KEYS = {"public.orders": ["shop", "id"]}
TRANSACTION = Begin(42, 500, 1_700_000_000_123_456, 400)
NOW_NS = 1_700_000_001_000_000_000
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
    assert parsed(rows.read(ORDERS, OLD, 1, 1, "first")) == [(key, OLD)]
    assert parsed(rows.changed(Change(ORDERS, None, OLD), TRANSACTION)) == [(key, OLD)]
    assert parsed(rows.changed(Change(ORDERS, OLD, NEW), TRANSACTION)) == [(key, NEW)]
    assert parsed(rows.changed(Change(ORDERS, NEW, None), TRANSACTION)) == [(key, None)]
    assert parsed(rows.changed(Change(ORDERS, {}, NEW), TRANSACTION)) == [(key, NEW)]
    moved = parsed(rows.changed(Change(ORDERS, OLD, MOVED), TRANSACTION))
    assert moved == [(key, None), ({"shop": "1", "id": "3"}, MOVED)]
    assert list(rows.truncated(Truncate((ORDERS,)), ORDERS, TRANSACTION)) == []


def debezium(*, schemas: bool = False) -> DebeziumFormat:
    return DebeziumFormat(KEYS, "shop", "orders", schemas=schemas, now_ns=lambda: NOW_NS)


def times(time_ns: int) -> dict[str, int]:
    return {"ts_ms": time_ns // 1_000_000, "ts_us": time_ns // 1000, "ts_ns": time_ns}


def envelope(op: str, before: Any, after: Any, lsn: int = 450) -> dict[str, Any]:
    source = {
        "version": "0.1.0", "connector": "postgresql", "name": "shop", **times(1_700_000_000_123_456_000),
        "snapshot": "false", "db": "orders", "sequence": f'["400","{lsn}"]', "schema": "public", "table": "orders",
        "txId": 42, "lsn": lsn, "xmin": None, "origin": None, "origin_lsn": None,
    }  # fmt: skip
    return {"before": before, "after": after, "source": source, "transaction": None, "op": op, **times(NOW_NS)}


def change(before: Row | None, after: Row | None) -> Change:
    return Change(ORDERS, before, after, lsn=450)


def test_debeziums_envelope() -> None:
    made = debezium()
    key = {"shop": 1, "id": 2}
    old, new = {"shop": 1, "id": 2, "at": None}, {"shop": 1, "id": 2, "at": 1_000_000}
    assert parsed(made.changed(change(None, OLD), TRANSACTION)) == [(key, envelope("c", None, old))]
    assert parsed(made.changed(change(OLD, NEW), TRANSACTION)) == [(key, envelope("u", old, new))]
    assert parsed(made.changed(change({}, NEW), TRANSACTION)) == [(key, envelope("u", None, new))]
    deleted = [(key, envelope("d", new, None)), (key, None)]
    assert parsed(made.changed(change(NEW, None), TRANSACTION)) == deleted
    moved = list(made.changed(change(OLD, MOVED), TRANSACTION))
    other = {"shop": 1, "id": 3}
    created = envelope("c", None, {**other, "at": None})
    assert parsed(moved) == [(key, envelope("d", old, None)), (key, None), (other, created)]
    assert [[(name, json.loads(text)) for name, text in each.headers] for each in moved] == [
        [("__debezium.newkey", other)],
        [("__debezium.newkey", other)],
        [("__debezium.oldkey", key)],
    ]
    truncated = envelope("t", None, None, lsn=460)
    assert parsed(made.truncated(Truncate((ORDERS,), 460), ORDERS, TRANSACTION)) == [(None, truncated)]
    ((_, read),) = parsed(made.read(ORDERS, OLD, 9, 1_000, "last"))
    source = read["source"]
    assert (read["op"], source["snapshot"], source["lsn"], source["sequence"]) == ("r", "last", 9, '[null,"9"]')
    assert source["txId"] is None


def test_schemas_name_every_field_in_its_type() -> None:
    ((key, value),) = parsed(debezium(schemas=True).changed(change(None, NEW), TRANSACTION))
    assert key["payload"] == {"shop": 1, "id": 2}
    assert key["schema"]["name"] == "shop.public.orders.Key"
    assert [(each["field"], each["type"]) for each in key["schema"]["fields"]] == [("shop", "int32"), ("id", "int64")]
    assert not any(each["optional"] for each in key["schema"]["fields"])
    assert value["payload"] == envelope("c", None, {"shop": 1, "id": 2, "at": 1_000_000})
    fields = {each["field"]: each for each in value["schema"]["fields"]}
    assert set(fields) == set(value["payload"])
    assert {each["field"] for each in fields["source"]["fields"]} == set(value["payload"]["source"])
    at = {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp", "version": 1, "field": "at"}
    assert fields["after"]["fields"][2] == at
    assert [each["optional"] for each in fields["after"]["fields"]] == [False, False, True]


def test_a_tombstone_has_the_key_of_its_deletion() -> None:
    deletion, tombstone = debezium(schemas=True).changed(change(OLD, None), TRANSACTION)
    assert tombstone == Record(deletion.key, None)


def test_rows_of_a_snapshot_are_marked_at_the_edges_of_their_tables() -> None:
    def markers(*counts: int) -> list[str]:
        tables = [Relation(oid, "public", str(oid), ()) for oid in range(len(counts))]
        rows: list[tuple[Relation, Row]] = [
            (table, {}) for table, count in zip(tables, counts, strict=True) for _ in range(count)
        ]
        return [marker for _, _, marker in marked(rows)]

    first, last = "first_in_data_collection", "last_in_data_collection"
    assert markers(3, 3) == ["first", "true", last, first, "true", "last"]
    assert markers(0, 2, 0) == ["first", "last"]
    assert markers(1) == ["last"]
    assert markers() == []
