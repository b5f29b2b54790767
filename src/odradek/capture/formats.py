"""Records of changed rows: the row alone, or Debezium's envelope.

Source: Debezium's documentation of its PostgreSQL connector, "Data change events".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import time_ns
from typing import Any, Protocol

from odradek.capture.pgoutput import Begin, Change, Column, Relation, Row, Truncate
from odradek.capture.values import Json, type_of

VERSION = "0.1.0"
_MARKERS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the topic of a table; both parts are JSON. A value of None is a tombstone."""

    key: str | None
    value: str | None
    headers: tuple[tuple[str, str], ...] = ()


class Format(Protocol):
    """Makes records of changes. `keys` has the columns of the primary key of each table, as schema.table."""

    @property
    def name(self) -> str:
        """The name of the format; records of formats with other names cannot be read as records of this one."""

    def changed(self, change: Change, transaction: Begin) -> Iterator[Record]:
        """The records of one change, in order."""

    def read(self, relation: Relation, row: Row, lsn: int, time_us: int, marker: str) -> Iterator[Record]:
        """The records of a row of the snapshot; `marker` is that of `marked`."""

    def truncated(self, truncate: Truncate, relation: Relation, transaction: Begin) -> Iterator[Record]:
        """The records of a TRUNCATE of this table."""


class RowFormat:
    """The row after the change, its values as PostgreSQL's texts; a deletion is a tombstone.

    The key has the primary key. A row whose key changes is a deletion and a new row, as in a compacted topic.
    """

    name = "row"

    def __init__(self, keys: Mapping[str, Sequence[str]]) -> None:
        self._keys = keys

    def changed(self, change: Change, transaction: Begin) -> Iterator[Record]:
        before, after = (self._key(change.relation, row) if row else None for row in (change.before, change.after))
        if before is not None and before != after:
            yield Record(before, None)
        if after is not None:
            yield Record(after, json.dumps(change.after, ensure_ascii=False))

    def read(self, relation: Relation, row: Row, lsn: int, time_us: int, marker: str) -> Iterator[Record]:
        yield Record(self._key(relation, row), json.dumps(row, ensure_ascii=False))

    def truncated(self, truncate: Truncate, relation: Relation, transaction: Begin) -> Iterator[Record]:
        """No records: a tombstone needs the key of its row."""
        yield from ()

    def _key(self, relation: Relation, row: Row) -> str:
        return json.dumps({column: row[column] for column in self._keys[relation.name]}, ensure_ascii=False)


class DebeziumFormat:
    """Debezium's envelope with `before`, `after`, `source`, `op` and `ts_ms`, and a tombstone behind each deletion.

    Args:
        keys: the columns of the primary key of each table, as schema.table.
        prefix: of the topics; `name` of the source.
        database: its name.
        schemas: whether keys and values carry their Connect schemas, as JsonConverter's `schemas.enable` has it.
        now_ns: the time of the records, in nanoseconds since the Unix epoch.
    """

    def __init__(
        self,
        keys: Mapping[str, Sequence[str]],
        prefix: str,
        database: str,
        *,
        schemas: bool,
        now_ns: Callable[[], int] = time_ns,
    ) -> None:
        self._keys = keys
        self._prefix = prefix
        self._database = database
        self._schemas = schemas
        self._now_ns = now_ns
        self.name = "debezium with schemas" if schemas else "debezium"

    def changed(self, change: Change, transaction: Begin) -> Iterator[Record]:
        relation = change.relation
        before, after = (self._key(relation, row) if row else None for row in (change.before, change.after))
        source = self._source(relation, transaction.commit_us, change.lsn, "false", transaction)
        is_moved = before is not None and before != after
        if before is not None and is_moved:
            headers = () if after is None else (("__debezium.newkey", json.dumps(after, ensure_ascii=False)),)
            yield replace(self._record(relation, before, "d", source, change.before, None), headers=headers)
            yield Record(self._key_text(relation, before), None, headers)
        if after is not None:
            is_new = is_moved or change.before is None
            op, row_before = ("c", None) if is_new else ("u", change.before or None)
            headers = (("__debezium.oldkey", json.dumps(before, ensure_ascii=False)),) if is_moved else ()
            yield replace(self._record(relation, after, op, source, row_before, change.after), headers=headers)

    def read(self, relation: Relation, row: Row, lsn: int, time_us: int, marker: str) -> Iterator[Record]:
        source = self._source(relation, time_us, lsn, marker, None)
        yield self._record(relation, self._key(relation, row), "r", source, None, row)

    def truncated(self, truncate: Truncate, relation: Relation, transaction: Begin) -> Iterator[Record]:
        """A record without a key, with the operation `t`."""
        source = self._source(relation, transaction.commit_us, truncate.lsn, "false", transaction)
        yield self._record(relation, None, "t", source, None, None)

    def _record(
        self,
        relation: Relation,
        key: dict[str, Json] | None,
        op: str,
        source: dict[str, Any],
        before: Row | None,
        after: Row | None,
    ) -> Record:
        payload = {
            "before": None if before is None else _typed(relation, before),
            "after": None if after is None else _typed(relation, after),
            "source": source,
            "transaction": None,
            "op": op,
            **_times(self._now_ns()),
        }
        text = self._text(payload, self._envelope_schema(relation) if self._schemas else None)
        return Record(None if key is None else self._key_text(relation, key), text)

    def _key(self, relation: Relation, row: Row) -> dict[str, Json]:
        typed = _typed(relation, row)
        return {column: typed[column] for column in self._keys[relation.name]}

    def _key_text(self, relation: Relation, key: dict[str, Json]) -> str:
        columns = [column for column in relation.columns if column.name in key]
        schema = _struct(columns, f"{self._topic(relation)}.Key", key, optional=False) if self._schemas else None
        return self._text(key, schema)

    def _text(self, payload: object, schema: dict[str, Any] | None) -> str:
        return json.dumps(payload if schema is None else {"schema": schema, "payload": payload}, ensure_ascii=False)

    def _topic(self, relation: Relation) -> str:
        return f"{self._prefix}.{relation.name}"

    def _source(
        self, relation: Relation, time_us: int, lsn: int, marker: str, transaction: Begin | None
    ) -> dict[str, Any]:
        previous = None if transaction is None or transaction.previous_lsn is None else str(transaction.previous_lsn)
        return {
            "version": VERSION,
            "connector": "postgresql",
            "name": self._prefix,
            "snapshot": marker,
            "db": self._database,
            "sequence": json.dumps([previous, str(lsn)], separators=(",", ":")),
            **_times(time_us * 1000),
            "schema": relation.schema,
            "table": relation.table,
            "txId": None if transaction is None else transaction.xid,
            "lsn": lsn,
            "xmin": None,
            "origin": None,
            "origin_lsn": None,
        }

    def _envelope_schema(self, relation: Relation) -> dict[str, Any]:
        row = _struct(relation.columns, f"{self._topic(relation)}.Value", self._keys[relation.name], optional=True)
        fields = [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {**_SOURCE_SCHEMA, "field": "source"},
            {**_TRANSACTION_SCHEMA, "field": "transaction"},
            _field("op", "string"),
            *(_field(name, "int64", optional=True) for name in ("ts_ms", "ts_us", "ts_ns")),
        ]
        name = f"{self._topic(relation)}.Envelope"
        return {"type": "struct", "fields": fields, "optional": False, "name": name, "version": 2}


def marked(rows: Iterable[tuple[Relation, Row]]) -> Iterator[tuple[Relation, Row, str]]:
    """Each row of a snapshot with Debezium's marker: the first and the last one of all, and of each table."""
    held: tuple[Relation, Row] | None = None
    before: Relation | None = None
    for relation, row in rows:
        if held is not None:
            yield *held, _marker(before, held[0], relation)
            before = held[0]
        held = relation, row
    if held is not None:
        yield *held, "last"


def _marker(before: Relation | None, relation: Relation, after: Relation) -> str:
    if before is None:
        return "first"
    if relation is not after:
        return "last_in_data_collection"
    return "true" if relation is before else "first_in_data_collection"


def _times(time_ns: int) -> dict[str, int]:
    return {"ts_ms": time_ns // 1_000_000, "ts_us": time_ns // 1000, "ts_ns": time_ns}


def _field(name: str, kind: str, *, optional: bool = False) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name}


_SOURCE_SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        *(_field(name, "string") for name in ("version", "connector", "name")),
        {
            "type": "string",
            "optional": True,
            "name": "io.debezium.data.Enum",
            "version": 1,
            "parameters": {"allowed": _MARKERS},
            "default": "false",
            "field": "snapshot",
        },
        _field("db", "string"),
        _field("sequence", "string", optional=True),
        _field("ts_ms", "int64"),
        *(_field(name, "int64", optional=True) for name in ("ts_us", "ts_ns")),
        *(_field(name, "string") for name in ("schema", "table")),
        *(_field(name, "int64", optional=True) for name in ("txId", "lsn", "xmin")),
        _field("origin", "string", optional=True),
        _field("origin_lsn", "int64", optional=True),
    ],
    "optional": False,
    "name": "io.debezium.connector.postgresql.Source",
    "version": 1,
}
_TRANSACTION_SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [_field("id", "string"), *(_field(f"{name}order", "int64") for name in ("total_", "data_collection_"))],
    "optional": True,
    "name": "event.block",
    "version": 1,
}


def _typed(relation: Relation, row: Row) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for column in relation.columns:
        if column.name in row:
            text = row[column.name]
            found[column.name] = None if text is None else type_of(column.type_oid, column.type_modifier).value(text)
    return found


def _struct(columns: Sequence[Column], name: str, required: Container[str], *, optional: bool) -> dict[str, Any]:
    fields = [
        {
            **type_of(column.type_oid, column.type_modifier).schema(optional=column.name not in required),
            "field": column.name,
        }
        for column in columns
    ]
    return {"type": "struct", "fields": fields, "optional": optional, "name": name}
