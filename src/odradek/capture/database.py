"""The PostgreSQL side of a capture: publication, replication slot, snapshot and the changes of the slot."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from odradek.capture.pgoutput import Column, Relation, Row
from odradek.capture.tables import Domains, with_base_types
from odradek.common.errors import OdradekError

# Values are texts in these forms, whatever the database, the role or the connection says.
_SESSION = (
    "SET client_encoding = 'UTF8'",
    "SET datestyle = 'ISO, YMD'",
    "SET timezone = 'UTC'",
    "SET intervalstyle = 'postgres'",
    "SET bytea_output = 'hex'",
    "SET extra_float_digits = 1",
    "SET lc_monetary = 'C'",
    # The connection is idle while a snapshot is read by another one. Some of these are not in every version.
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout',"
    " 'idle_session_timeout', 'idle_in_transaction_session_timeout')",
    "SET synchronous_commit = 'local'",
    # A policy that hides rows from the role is an error, and not an incomplete snapshot.
    "SET row_security = off",
)
# A lock that is waited for holds up all who come later: the application of the database.
LOCK_TIMEOUT_MS = 5000
# A lost connection is noticed after a minute.
_CONNECTION = {
    "fallback_application_name": "odradek capture",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_TABLES = """
SELECT n.nspname || '.' || c.relname, c.oid::bigint, c.relkind::text, c.relreplident = 'f',
       (SELECT array_agg(a.attname::text ORDER BY array_position(i.indkey::int[], a.attnum::int))
          FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
         WHERE i.indrelid = c.oid AND i.indisprimary),
       (SELECT bool_or(a.attgenerated <> '')
          FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
         WHERE i.indrelid = c.oid AND i.indisprimary)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname || '.' || c.relname = ANY(%s)
"""
_SLOT = """
SELECT plugin, database = current_database(), active, coalesce(wal_status, 'lost'),
       pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint,
       pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint
  FROM pg_replication_slots WHERE slot_name = %s
"""
_CHANGES = """
SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes(
    %s, '0/0'::pg_lsn + %s::bigint, %s, 'proto_version', '1', 'publication_names', %s)
"""
_PUBLISHED = "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s"
# Columns that PostgreSQL generates are not in the messages of pgoutput; the oid of a domain is, not that of its base.
_COLUMNS = """
SELECT attname::text, atttypid::bigint, atttypmod FROM pg_attribute
 WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_DOMAINS = """
WITH RECURSIVE based(oid, base, modifier) AS (
    SELECT oid, typbasetype, typtypmod FROM pg_type WHERE typtype = 'd'
    UNION ALL
    SELECT b.oid, t.typbasetype, greatest(b.modifier, t.typtypmod) FROM based b JOIN pg_type t ON t.oid = b.base
     WHERE t.typtype = 'd')
SELECT b.oid::bigint, b.base::bigint, b.modifier FROM based b JOIN pg_type t ON t.oid = b.base WHERE t.typtype <> 'd'
"""
_LSN = "SELECT pg_wal_lsn_diff({}, '0/0')::bigint"
_ORDINARY, _PARTITIONED = "r", "p"


class CaptureError(OdradekError):
    """A capture cannot continue; the text has the advice."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot.

    Attributes:
        active: whether a session reads it now.
        wal_status: `reserved`, `extended`, `unreserved` or `lost`, as in `pg_replication_slots`.
        behind_bytes: of the write-ahead log behind the confirmed position; None if the slot is lost.
        retained_bytes: of the write-ahead log that the database keeps for the slot; None if it is lost.
    """

    active: bool
    wal_status: str
    behind_bytes: int | None
    retained_bytes: int | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table that can be captured.

    Attributes:
        oid: which another table of the same name has not.
        key: the columns of its primary key, in their order.
        is_logged_whole: whether the log has whole rows before each change (`REPLICA IDENTITY FULL`).
    """

    oid: int
    key: list[str]
    is_logged_whole: bool


@dataclass(frozen=True, slots=True)
class Visible:
    """The transactions whose effects a snapshot has: `pg_current_snapshot()` as `xmin:xmax:xip,…`."""

    xmin: int
    xmax: int
    in_progress: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Self:
        xmin, xmax, listed = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(int(each) for each in listed.split(",") if each))

    def has(self, xid: int) -> bool:
        """Whether a committed transaction is in the snapshot. `xid` has the lower 32 bits of its id."""
        # The id that is nearest to xmax: only transactions of the time around the snapshot are asked for.
        distance = (xid - self.xmax + 2**31) % 2**32 - 2**31
        full = self.xmax + distance
        return full < self.xmin or (full < self.xmax and full not in self.in_progress)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent state of all tables.

    Attributes:
        visible: as `Visible.parse` reads it.
        lsn: every transaction in the snapshot committed before this position of the write-ahead log.
        time_us: when it was taken, in microseconds since the Unix epoch.
        rows: each row with its table.
    """

    visible: str
    lsn: int
    time_us: int
    rows: Iterator[tuple[Relation, Row]]


class Database:
    """A connection in autocommit to the database that is captured.

    Args:
        url: a connection string of libpq.
        name: of the replication slot and the publication.

    Raises:
        psycopg.OperationalError: no connection; later calls raise it when the connection is lost.
    """

    def __init__(self, url: str, name: str) -> None:
        self._conninfo = make_conninfo("", **{**_CONNECTION, **conninfo_to_dict(url)})
        self._name = name
        self._connection = self._connected()

    def _connected(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self._conninfo, autocommit=True)
        for statement in _SESSION:
            connection.execute(statement)
        connection.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
        # PostgreSQL logs four lines for each look at the slot.
        with suppress(psycopg.errors.InsufficientPrivilege):
            connection.execute("SET log_min_messages = fatal")
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self._connection.close()

    @property
    def database_name(self) -> str:
        return self._connection.info.dbname

    def tables(self, names: Sequence[str]) -> dict[str, Table]:
        """The tables of these names, which are schema.table; changes nothing.

        Raises:
            CaptureError: a table does not exist, is not an ordinary table, or has no primary key; logical decoding is
                off; the database is a standby.
        """
        (is_standby,) = self._one("SELECT pg_is_in_recovery()")
        if is_standby:
            raise CaptureError("the database is a standby: capture its primary, see target_session_attrs in --database")
        (level,) = self._one("SHOW wal_level")
        if level != "logical":
            raise CaptureError(f"the database has wal_level={level}; set wal_level=logical and restart it")
        found = {name: rest for name, *rest in self._rows(_TABLES, list(names))}
        tables = {}
        for name in names:
            oid, kind, is_logged_whole, key, is_generated = found.get(name, (0, None, False, None, False))
            if kind is None:
                raise CaptureError(f"there is no table {name}; name tables as schema.table")
            if kind != _ORDINARY:
                advice = "name its partitions" if kind == _PARTITIONED else "only tables have changes"
                raise CaptureError(f"{name} is not an ordinary table; {advice}")
            if not key:
                raise CaptureError(f"{name} has no primary key, which keys its records; add one")
            if is_generated:
                raise CaptureError(f"{name} has a generated column in its primary key, which the log does not have")
            tables[name] = Table(oid, key, is_logged_whole)
        return tables

    def domains(self) -> Domains:
        """The base types of all domains."""
        return {oid: (base, modifier) for oid, base, modifier in self._rows(_DOMAINS)}

    def published(self) -> set[str]:
        """The tables of the publication, as schema.table; none if there is no publication."""
        return {name for (name,) in self._rows(_PUBLISHED, self._name)}

    def publish(self, tables: Mapping[str, Table]) -> None:
        """Publish these tables alone, with whole rows before each change.

        Raises:
            CaptureError: an open transaction locks a table.
            psycopg.Error: the role may not do this.
        """
        for name, table in tables.items():
            if not table.is_logged_whole:
                # Without whole rows large values that did not change are missing.
                statement = sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(_identifier(name))
                self._with_lock(name, statement)
        published = self.published()
        if published == set(tables):  # a statement that changes nothing would still wait for a VACUUM of the tables
            return
        known = self._rows("SELECT 1 FROM pg_publication WHERE pubname = %s", self._name)
        change = sql.SQL("ALTER PUBLICATION {} SET TABLE {}" if known else "CREATE PUBLICATION {} FOR TABLE {}")
        listed = sql.SQL(", ").join(sql.SQL("ONLY {}").format(_identifier(name)) for name in tables)
        with self._connection.transaction():
            # Writes of a transaction from before its table is published are not among the changes. Once the lock is
            # held no such transaction is open, so that a snapshot has them.
            for name in set(tables) - published:
                self._with_lock(name, sql.SQL("LOCK TABLE ONLY {} IN SHARE MODE").format(_identifier(name)))
            self._connection.execute(change.format(sql.Identifier(self._name), listed))

    def _with_lock(self, table: str, statement: sql.Composed) -> None:
        try:
            self._connection.execute(statement)
        except psycopg.errors.LockNotAvailable:
            raise CaptureError(
                f"an open transaction locks {table}, or VACUUM or CREATE INDEX does: start again when it has ended"
            ) from None

    def slot(self) -> Slot | None:
        """The replication slot; None if there is none. Raises CaptureError if the name is taken otherwise."""
        found = self._rows(_SLOT, self._name)
        if not found:
            return None
        plugin, is_here, *state = found[0]
        if plugin != "pgoutput":
            raise CaptureError(f"the slot {self._name} belongs to another program (plugin {plugin}); choose --name")
        if not is_here:
            raise CaptureError(f"the slot {self._name} belongs to another database of this server; choose --name")
        return Slot(*state)

    def create_slot(self) -> None:
        """From now on the database keeps its write-ahead log for the slot."""
        self._one("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", self._name)

    def drop(self) -> bool:
        """Drop slot and publication; whether there was a slot. Raises psycopg.Error while the slot is active."""
        dropped = self.slot() is not None
        if dropped:
            self._one("SELECT pg_drop_replication_slot(%s)", self._name)
        self._connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(self._name)))
        return dropped

    def keeps_without_limit(self) -> bool:
        """Whether a slot that is not read can fill the disk of the database."""
        (limit,) = self._one("SHOW max_slot_wal_keep_size")
        return bool(limit == "-1")

    @contextmanager
    def snapshot(self, tables: Sequence[str]) -> Iterator[Snapshot]:
        """All rows of these tables in one state, read as they are iterated. The slot must exist before."""
        with self._connected() as connection:
            connection.autocommit = False
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            asked = "SELECT pg_current_snapshot()::text, (extract(epoch FROM now()) * 1000000)::bigint"
            visible, time_us = connection.execute(asked).fetchone() or ("", 0)
            # Behind the snapshot, so behind the commit of everything in it.
            (lsn,) = self._one(_LSN.format("pg_current_wal_insert_lsn()"))
            # A connection does not close while a COPY is read, as it may be at an error or Ctrl-C.
            with closing(_rows_of(connection, tables, self.domains())) as rows:
                yield Snapshot(visible, lsn, time_us, rows)

    def flush(self) -> None:
        """Flush the write-ahead log to the disk: the slot returns only flushed changes."""
        # A commit flushes it, but not that of a transaction without writes.
        self._one("SELECT pg_logical_emit_message(true, 'odradek capture', '')")

    def flushed_lsn(self) -> int:
        """The end of the write-ahead log that is on the disk."""
        (lsn,) = self._one(_LSN.format("pg_current_wal_flush_lsn()"))
        return int(lsn)

    @contextmanager
    def changes(self, limit: int | None = None, upto_lsn: int | None = None) -> Iterator[Iterator[tuple[bytes, int]]]:
        """The messages of whole transactions behind the confirmed position, in the order of commits.

        Each comes with its position in the write-ahead log.

        Args:
                limit: the number of messages after which no further transaction begins; each transaction is complete.
                upto_lsn: all transactions that committed before it are included, and perhaps later ones.
        """
        with self._connection.cursor() as cursor:
            found = cursor.stream(_CHANGES, [self._name, upto_lsn, limit, self._name])
            yield ((data, _lsn_of(text)) for text, data in found)

    def confirm(self, lsn: int) -> None:
        """Let the database drop its log before this position."""
        self._one("SELECT pg_replication_slot_advance(%s, '0/0'::pg_lsn + %s)", self._name, lsn)

    def _rows(self, statement: str, *values: object) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def _one(self, statement: str, *values: object) -> Any:
        return self._rows(statement, *values)[0]


def _lsn_of(text: str) -> int:
    """The number of a `pg_lsn`."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def _identifier(table: str) -> sql.Identifier:
    return sql.Identifier(*table.split(".", 1))


def _rows_of(
    connection: psycopg.Connection[Any], tables: Sequence[str], domains: Domains
) -> Generator[tuple[Relation, Row], None, None]:
    for table in tables:
        schema, _, name = table.partition(".")
        place = _identifier(table)
        columns = [Column(*found) for found in connection.execute(_COLUMNS, [place.as_string(connection)])]
        listed = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
        rows = sql.SQL("SELECT {} FROM ONLY {}").format(listed, place)
        relation = with_base_types(Relation(0, schema, name, tuple(columns)), domains)
        # COPY has PostgreSQL's texts, as the messages of pgoutput have, and is read row by row.
        with connection.cursor() as cursor, cursor.copy(sql.SQL("COPY ({}) TO STDOUT").format(rows)) as copied:
            for values in copied.rows():
                names = (column.name for column in relation.columns)
                yield relation, dict(zip(names, values, strict=True))
