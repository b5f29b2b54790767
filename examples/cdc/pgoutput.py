"""What PostgreSQL's plugin `pgoutput` says about a transaction, read from its bytes (protocol version 1).

Source: PostgreSQL's manual, "Logical Replication Message Formats". All numbers are big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

Row = dict[str, str | None]


class TruncatedError(Exception):
    """TRUNCATE does not say which rows are gone."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it was when what follows happened to it."""

    oid: int
    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One row before and after; None where it was not there. Values are PostgreSQL's texts, None is NULL."""

    relation: Relation
    before: Row | None
    after: Row | None


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a transaction that has committed; `commit_lsn` is where in the log it did."""

    commit_lsn: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction; `end_lsn` lies behind it in the log."""

    end_lsn: int


class Reader:
    """Reads one message after another; knows the tables that messages before have described."""

    def __init__(self) -> None:
        self._relations: dict[int, Relation] = {}

    def read(self, message: bytes) -> Begin | Change | Commit | None:
        """What a message says; None for what only describes. Raises TruncatedError."""
        kind, body = message[:1], _Body(message[1:])
        if kind == b"R":
            relation = _relation(body)
            self._relations[relation.oid] = relation
        elif kind == b"B":
            commit_lsn, _, _ = body.take(">QQI")
            return Begin(commit_lsn)
        elif kind == b"C":
            _, _, end_lsn, _ = body.take(">BQQQ")
            return Commit(end_lsn)
        elif kind in (b"I", b"U", b"D"):
            return _change(body, self._relations[body.take(">I")[0]])
        elif kind == b"T":
            raise TruncatedError("a table was truncated, and a topic has no word for that")
        return None


class _Body:
    """The rest of a message."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position == len(self._data)

    def take(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return found

    def text(self, length: int) -> str:
        start = self._position
        self._position += length
        return self._data[start : self._position].decode()

    def name(self) -> str:
        found = self.text(self._data.index(b"\0", self._position) - self._position)
        self._position += 1
        return found


def _relation(body: _Body) -> Relation:
    (oid,) = body.take(">I")
    schema, table = body.name(), body.name()
    _, count = body.take(">BH")
    columns = []
    for _ in range(count):
        body.take(">B")
        columns.append(body.name())
        body.take(">II")
    return Relation(oid, f"{schema}.{table}", tuple(columns))


def _change(body: _Body, relation: Relation) -> Change:
    rows: dict[int, Row] = {}
    before: Row | None = None
    while not body.at_end:
        (which,) = body.take(">B")
        rows[which] = _row(body, relation.columns, before)
        before = rows.get(ord("O"))
    return Change(relation, before, rows.get(ord("N")))


def _row(body: _Body, columns: tuple[str, ...], before: Row | None) -> Row:
    """One tuple. A large value that did not change is omitted: the row before has it."""
    (count,) = body.take(">H")
    row: Row = {}
    for column in columns[:count]:
        (kind,) = body.take(">B")
        if kind == ord("t"):
            row[column] = body.text(body.take(">I")[0])
        elif kind == ord("n"):
            row[column] = None
        else:
            row[column] = (before or {})[column]
    return row
