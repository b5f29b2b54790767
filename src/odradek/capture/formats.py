"""Records of changed rows: the row alone, or Debezium's envelope.

Source: Debezium's documentation of its PostgreSQL connector, "Data change events".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from odradek.capture.pgoutput import Begin, Change, Column, Relation, Row
from odradek.capture.values import Json, type_of

VERSION = "0.1.0"
_OPTIONAL_STRUCT: dict[str, Any] = {"type": "struct", "optional": True}


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the topic of a table; both parts are JSON. A value of None is a tombstone."""

    key: str | None
    value: str | None


class Format(Protocol):
    """Makes records of changes. `keys` has the columns of the primary key of each table, as schema.table."""

    @property
    def name(self) -> str:
        """Of the format: records of another name are not readable as records of this one."""

    def changed(self, change: Change, transaction: Begin) -> Iterator[Record]:
        """The records of one change, in order."""

    def read(self, relation: Relation, row: Row, lsn: int, time_us: int) -> Iterator[Record]:
        """The records of a row of the snapshot."""

    def truncated(self, relation: Relation, transaction: Begin) -> Iterator[Record]:
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

    def read(self, relation: Relation, row: Row, lsn: int, time_us: int) -> Iterator[Record]:
        yield Record(self._key(relation, row), json.dumps(row, ensure_ascii=False))

    def truncated(self, relation: Relation, transaction: Begin) -> Iterator[Record]:
        """Nothing: a tombstone needs the key of its row."""
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
    """

    def __init__(self, keys: Mapping[str, Sequence[str]], prefix: str, database: str, *, schemas: bool) -> None:
        self._keys = keys
        self._prefix = prefix
        self._database = database
        self._schemas = schemas
        self.name = "debezium with schemas" if schemas else "debezium"

    def changed(self, change: Change, transaction: Begin) -> Iterator[Record]:
        relation = change.relation
        before, after = (self._key(relation, row) if row else None for row in (change.before, change.after))
        source = self._source(relation, transaction.commit_us, transaction.commit_lsn, transaction.xid)
        is_moved = before is not None and before != after
        if before is not None and is_moved:
            yield self._record(relation, before, "d", source, change.before, None)
            yield Record(self._key_text(relation, before), None)
        if after is not None:
            is_new = is_moved or change.before is None
            op, row_before = ("c", None) if is_new else ("u", change.before or None)
            yield self._record(relation, after, op, source, row_before, change.after)

    def read(self, relation: Relation, row: Row, lsn: int, time_us: int) -> Iterator[Record]:
        source = self._source(relation, time_us, lsn, None)
        yield self._record(relation, self._key(relation, row), "r", source, None, row)

    def truncated(self, relation: Relation, transaction: Begin) -> Iterator[Record]:
        """A record without a key, with the operation `t`."""
        source = self._source(relation, transaction.commit_us, transaction.commit_lsn, transaction.xid)
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
            "ts_ms": source["ts_ms"],
        }
        text = self._text(payload, self._envelope_schema(relation) if self._schemas else None)
        return Record(None if key is None else self._key_text(relation, key), text)

    def _key(self, relation: Relation, row: Row) -> dict[str, Json]:
        typed = _typed(relation, row)
        return {column: typed[column] for column in self._keys[relation.name]}

    def _key_text(self, relation: Relation, key: dict[str, Json]) -> str:
        columns = [column for column in relation.columns if column.name in key]
        schema = _struct(columns, f"{self._topic(relation)}.Key", optional=False) if self._schemas else None
        return self._text(key, schema)

    def _text(self, payload: object, schema: dict[str, Any] | None) -> str:
        return json.dumps(payload if schema is None else {"schema": schema, "payload": payload}, ensure_ascii=False)

    def _topic(self, relation: Relation) -> str:
        return f"{self._prefix}.{relation.name}"

    def _source(self, relation: Relation, time_us: int, lsn: int, xid: int | None) -> dict[str, Any]:
        return {
            "version": VERSION,
            "connector": "postgresql",
            "name": self._prefix,
            "ts_ms": time_us // 1000,
            "snapshot": "true" if xid is None else "false",
            "db": self._database,
            "schema": relation.schema,
            "table": relation.table,
            "txId": xid,
            "lsn": lsn,
        }

    def _envelope_schema(self, relation: Relation) -> dict[str, Any]:
        row = _struct(relation.columns, f"{self._topic(relation)}.Value", optional=True)
        strings = ("version", "connector", "name", "snapshot", "db", "schema", "table")
        source = [{"type": "string", "optional": False, "field": name} for name in strings]
        source += [{"type": "int64", "optional": name == "txId", "field": name} for name in ("ts_ms", "txId", "lsn")]
        fields = [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {
                "type": "struct",
                "optional": False,
                "name": "io.debezium.connector.postgresql.Source",
                "fields": source,
                "field": "source",
            },
            {**_OPTIONAL_STRUCT, "name": "event.block", "fields": [], "field": "transaction"},
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ]
        return {"type": "struct", "optional": False, "name": f"{self._topic(relation)}.Envelope", "fields": fields}


def _typed(relation: Relation, row: Row) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for column in relation.columns:
        if column.name in row:
            text = row[column.name]
            found[column.name] = None if text is None else type_of(column.type_oid).value(text)
    return found


def _struct(columns: Sequence[Column], name: str, *, optional: bool) -> dict[str, Any]:
    fields = []
    for column in columns:
        kind = type_of(column.type_oid)
        field: dict[str, Any] = {"type": kind.connect, "optional": True, "field": column.name}
        if kind.semantic is not None:
            field |= {"name": kind.semantic, "version": 1}
        fields.append(field)
    return {"type": "struct", "optional": optional, "name": name, "fields": fields}
