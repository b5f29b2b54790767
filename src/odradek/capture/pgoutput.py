"""Messages of PostgreSQL's plugin `pgoutput`, protocol version 1, read from their bytes.

Source: PostgreSQL's manual, "Logical Replication Message Formats". All numbers are big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

Row = dict[str, str | None]
# PostgreSQL counts microseconds from 2000-01-01, Unix from 1970-01-01, both in UTC.
EPOCH_US = 946_684_800_000_000


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        name: as PostgreSQL has it.
        type_oid: of its type in `pg_type`.
        type_modifier: the precision of times and timestamps, for one; -1 if there is none.
    """

    name: str
    type_oid: int
    type_modifier: int = -1


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, with its columns at the time of the changes after this message."""

    oid: int
    schema: str
    table: str
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        """The name as schema.table."""
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a committed transaction.

    Attributes:
        xid: the lower 32 bits of its id.
        commit_lsn: the position of its commit in the write-ahead log.
        commit_us: the time of its commit, in microseconds since the Unix epoch.
        previous_lsn: the end of the transaction before it; None for the first one that is read.
    """

    xid: int
    commit_lsn: int
    commit_us: int
    previous_lsn: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A row before and after the change; None if it did not exist. Values are PostgreSQL's texts, None is NULL.

    Without REPLICA IDENTITY FULL the row before has its key alone, and is empty if the key did not change. `lsn` is
    the position of the change in the write-ahead log.
    """

    relation: Relation
    before: Row | None
    after: Row | None
    lsn: int = 0


@dataclass(frozen=True, slots=True)
class Truncate:
    """TRUNCATE of these tables, at `lsn`. The message has no rows."""

    relations: tuple[Relation, ...]
    lsn: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction; `end_lsn` is the position behind its commit."""

    end_lsn: int


Message = Begin | Change | Truncate | Commit


class MissingValueError(ValueError):
    """The log does not have a large value that did not change, as without REPLICA IDENTITY FULL."""


class Decoder:
    """Decodes messages in order, and stores the relations of earlier messages."""

    def __init__(self) -> None:
        self._relations: dict[int, Relation] = {}
        self._previous_lsn: int | None = None

    def decode(self, message: bytes, lsn: int = 0) -> Message | None:
        """Decode a message; returns None for relations, types and origins.

        Args:
            lsn: the position of the message in the write-ahead log.

        Raises:
            ValueError: the bytes are no such message.
        """
        kind, body = message[:1], _Body(message[1:])
        try:
            if kind == b"B":
                commit_lsn, commit_us, xid = body.unpack(">QqI")
                return Begin(xid, commit_lsn, commit_us + EPOCH_US, self._previous_lsn)
            if kind == b"C":
                _, _, end_lsn, _ = body.unpack(">BQQQ")
                self._previous_lsn = end_lsn
                return Commit(end_lsn)
            return self._decode_relation_or_change(kind, body, lsn)
        except (struct.error, KeyError, UnicodeDecodeError) as error:
            raise ValueError(f"a message of pgoutput cannot be read: {error}") from None

    def _decode_relation_or_change(self, kind: bytes, body: _Body, lsn: int) -> Message | None:
        if kind == b"R":
            relation = _relation(body)
            self._relations[relation.oid] = relation
        elif kind in (b"I", b"U", b"D"):
            return _change(body, self._relations[body.unpack(">I")[0]], lsn, is_update=kind == b"U")
        elif kind == b"T":
            count, _ = body.unpack(">IB")
            return Truncate(tuple(self._relations[oid] for oid in body.unpack(f">{count}I")), lsn)
        elif kind not in (b"O", b"Y", b"M"):
            raise ValueError(f"pgoutput has no message of the kind {kind!r} in protocol version 1")
        return None


class _Body:
    """The bytes of a message behind its kind, and the position of the next field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position == len(self._data)

    def unpack(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return found

    def text(self, length: int) -> str:
        end = self._position + length
        if end > len(self._data):
            raise ValueError("a message of pgoutput ends inside a value")
        start, self._position = self._position, end
        return self._data[start:end].decode()

    def name(self) -> str:
        """A string that ends with a zero byte."""
        found = self.text(self._data.index(b"\0", self._position) - self._position)
        self._position += 1
        return found


def _relation(body: _Body) -> Relation:
    (oid,) = body.unpack(">I")
    schema, table = body.name(), body.name()
    _, count = body.unpack(">BH")
    columns = []
    for _ in range(count):
        body.unpack(">B")
        name = body.name()
        columns.append(Column(name, *body.unpack(">Ii")))
    return Relation(oid, schema, table, tuple(columns))


def _change(body: _Body, relation: Relation, lsn: int, *, is_update: bool) -> Change:
    rows: dict[int, Row] = {}
    while not body.at_end:
        (which,) = body.unpack(">B")
        rows[which] = _row(body, relation, rows.get(ord("O")))
    before = rows.get(ord("O"), rows.get(ord("K")))
    return Change(relation, {} if before is None and is_update else before, rows.get(ord("N")), lsn)


def _row(body: _Body, relation: Relation, before: Row | None) -> Row:
    """Decode a tuple. An unchanged large value ("u") is not sent, and is copied from the row before."""
    (count,) = body.unpack(">H")
    row: Row = {}
    for column in relation.columns[:count]:
        (kind,) = body.unpack(">B")
        if kind == ord("t"):
            row[column.name] = body.text(body.unpack(">I")[0])
        elif kind == ord("n"):
            row[column.name] = None
        elif before is None or column.name not in before:
            raise MissingValueError(f"a change of {relation.name} has not the value of {column.name}")
        else:
            row[column.name] = before[column.name]
    return row
