"""An exactly-once sink into a table of PostgreSQL: tasks stage rows, the driver moves them in one transaction.

A task copies its rows to a staging table of its own, which no client reads; a few rows travel in its message. The
driver's transaction locks the query's row in a table of markers, checks whether the batch is there, inserts, upserts or
deletes, writes the batch's number and drops the staging tables. So a batch is in the table whole and once, or not at
all, and a second driver waits at the marker. Tables are created only after an error that one is missing, so batches do
not check for them.

Of several rows with one key in a batch the last one counts, in the order of the tasks and of the rows of each.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import io
import logging
import math
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
import pyarrow.csv as pacsv
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
)

from odradek.common import exact_json
from pyspark_odradek.errors import ClusterError, OptionError, StagingError, one_line
from pyspark_odradek.micro_batch.task import Task, is_written
from pyspark_odradek.options import boolean
from pyspark_odradek.table_sinks.column_types import scalar_type
from pyspark_odradek.table_sinks.postgres_locks import limited
from pyspark_odradek.table_sinks.table_sink import KEY_OPTIONS, LeftRows, TableStreamWriter, patiently

log = logging.getLogger("pyspark_odradek")

INLINE_BYTES = 64 << 10  # up to here a task's rows travel in its message, and need no table
_TASK, _ROW = "odradek_task", "odradek_row"
# libpq's settings where the option connection has none: a server that vanished is noticed within a minute.
CONNECTING = {
    "application_name": "odradek-spark",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
# CREATE TABLE IF NOT EXISTS in two sessions at once fails in one of them; this advisory lock orders them.
CREATION_LOCK = 0x0D2ADE4B
# The errors of a batch if a table is missing, or if an older version of this sink created the table of markers.
MISSING = (psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedTable)


@dataclass
class CopiedRows(LeftRows):
    """A task's rows: in a staging table, or here as CSV; neither if it had none."""

    inline: bytes = b""
    table: str | None = None

    def is_empty(self) -> bool:
        return not self.inline and self.table is None


class PostgresStreamWriter(TableStreamWriter):
    """`df.writeStream.format("odradek").option("sink", "postgres")`."""

    what = "PostgreSQL"
    known: ClassVar[list[str]] = ["sink", "connection", "table", *KEY_OPTIONS, "createTable", "markerTable"]

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(given, schema, overwrite=overwrite)
        self.connection = self.options.get("connection", "")
        self.target = self.options.get("table", "")
        if not self.connection or not self.target:
            raise OptionError(
                "the PostgreSQL sink needs the options connection, such as postgresql://user@host/database, and table"
            )
        try:
            self.server = CONNECTING | {k: str(v) for k, v in conninfo_to_dict(self.connection).items()}
        except psycopg.ProgrammingError as error:
            raise OptionError(f"PostgreSQL does not understand the option connection: {one_line(error)}") from None
        for each in schema:
            _check(each.dataType, each.name)
        self.columns = self.written.fieldNames()
        self.create = boolean(self.options, "createTable", False)
        self.markers = self.options.get("markertable", "odradek_batches")

    def write(self, iterator: Iterator[Any]) -> CopiedRows:
        """Stage all rows of a task. Raises StagingError."""
        task = self.task()
        name = f"odradek_stage_{_short(task.query_id)}_{task.batch_id}_{uuid.uuid4().hex[:12]}"
        held, held_bytes, rows = [], 0, 0
        connection: Any = None
        try:
            for batch in iterator:
                self._refuse_deletes_without_key(batch, task.batch_id)
                held.append(as_csv(batch, task.partition_id, rows))
                held_bytes += len(held[-1])
                rows += batch.num_rows
                if held_bytes > INLINE_BYTES:
                    if connection is None:
                        what = f"a task cannot put its rows aside in {self._where()}"
                        connection = patiently(lambda: self._aside(name), (psycopg.OperationalError,), what)
                    self._copy(connection, name, held)
                    held, held_bytes = [], 0
            if connection is None:
                return CopiedRows(task, b"".join(held))
            self._copy(connection, name, held)
            connection.commit()
            return CopiedRows(task, table=name)
        except psycopg.Error as error:
            raise StagingError(f"a task cannot put its rows aside in {self._where()}: {one_line(error)}") from None
        finally:
            if connection is not None:
                connection.close()

    def _refuse_deletes_without_key(self, batch: Any, batch_id: int) -> None:
        """Raise ClusterError for a deletion with a null key: in SQL no row equals a null."""
        if self.delete_column is None:
            return
        deleted = pa.Table.from_batches([batch]).filter(batch.column(self.delete_column))
        empty = [name for name in self.keys if deleted.column(name).null_count]
        if empty:
            raise ClusterError(
                f"batch {batch_id} was refused: rows of it that are to be deleted have no {', '.join(empty)}, which "
                "keyColumns names. Nothing of it was written; a restart reads the same rows again, so filter or fix "
                "them in the query."
            )

    def commit_once(self, task: Task, found: Iterable[LeftRows]) -> bool:
        """Move the rows in one transaction.

        If only the response to the commit was lost, the next attempt finds the batch in the table.
        """
        rows = [left for left in found if isinstance(left, CopiedRows)]
        plan = self.plan(task.batch_id)  # before any lock is held: a store may be slow to answer

        def attempt() -> bool:
            with self.connect() as connection:
                try:
                    with limited(connection, self.connect, commits=True):
                        return self._move(connection, task, plan, rows)
                except MISSING:
                    connection.rollback()
                with limited(connection, self.connect, commits=True):
                    self._prepare(connection)
                with limited(connection, self.connect, commits=True):
                    return self._move(connection, task, plan, rows)

        passing = (
            psycopg.OperationalError,
            psycopg.errors.SerializationFailure,
            psycopg.errors.IdleInTransactionSessionTimeout,  # a driver that stood still in its commit
        )
        try:
            return patiently(attempt, passing, f"batch {task.batch_id} could not be written to {self._where()}")
        except psycopg.Error as error:
            raise ClusterError(
                f"batch {task.batch_id} was refused by {self._where()}: {one_line(error)}. Nothing of it was "
                "written; a restart reads the same rows again, so fix the table, or the rows in the query."
            ) from None

    def connect(self) -> psycopg.Connection[Any]:
        """A new connection. The end of its context commits, or rolls back after an exception, and closes it."""
        return psycopg.connect(make_conninfo(**self.server))

    def _move(self, connection: psycopg.Connection[Any], task: Task, plan: str, found: list[CopiedRows]) -> bool:
        query_id, run_id, batch_id = task[:3]
        marker = sql.Identifier(*self.markers.split("."))
        newest, found_plan = self._locked_marker(connection, query_id)
        if is_written(newest, batch_id, f"the table {self.target}", found_plan=found_plan, plan=plan):
            log.warning("batch %d is in %s already and is not written again", batch_id, self.target)
            return False
        inline = [message.inline for message in found if message.inline]
        stages = [message.table for message in found if message.table]
        for stage in stages:
            self._refuse_emptied(connection, stage, batch_id)
        if inline:
            stages.append("odradek_inline")
            self._stage_table(connection, stages[-1], "TEMPORARY")
            self._copy(connection, stages[-1], inline)
        for statement in self._changes(stages):
            connection.execute(statement)
        connection.execute(
            sql.SQL(
                "UPDATE {} SET batch_id = %s, plan = %s, run_id = %s, written_at = now() WHERE query_id = %s"
            ).format(marker),
            [batch_id, plan, run_id, query_id],
        )
        self._clear_up(connection, query_id, batch_id)
        connection.commit()
        return True

    def _locked_marker(self, connection: psycopg.Connection[Any], query_id: str) -> tuple[int, str]:
        """Lock the query's marker until this transaction ends; returns (the newest batch, its plan)."""
        marker = sql.Identifier(*self.markers.split("."))
        locking = sql.SQL("SELECT batch_id, plan FROM {} WHERE query_id = %s FOR UPDATE").format(marker)
        row = connection.execute(locking, [query_id]).fetchone()
        if row is None:
            connection.execute(
                sql.SQL("INSERT INTO {} (query_id, batch_id) VALUES (%s, -1) ON CONFLICT DO NOTHING").format(marker),
                [query_id],
            )
            row = connection.execute(locking, [query_id]).fetchone()
        assert row is not None
        return row[0], row[1] or ""

    def _refuse_emptied(self, connection: psycopg.Connection[Any], stage: str, batch_id: int) -> None:
        """Raise StagingError if a crash of the server has emptied a task's staging table, which is unlogged."""
        if connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(stage))).fetchone() is None:
            raise StagingError(
                f"the rows that a task staged in {self._where()} are gone: the server crashed, or another one took "
                f"over, before batch {batch_id} was written. Nothing of it was written; start the query again."
            )

    def _changes(self, stages: list[str]) -> list[sql.Composed]:
        """The statements that move the rows of these tables to the target, in order.

        Rows are deleted before others are inserted: a new key may have a unique value of a deleted one.
        """
        columns = sql.SQL(", ").join(map(sql.Identifier, self.columns))
        rows: Any = sql.SQL(" UNION ALL ").join(
            sql.SQL("SELECT * FROM {}").format(sql.Identifier(stage)) for stage in stages
        )
        target = sql.Identifier(*self.target.split("."))
        if not self.keys:
            return [sql.SQL("INSERT INTO {} ({}) SELECT {} FROM ({}) AS rows").format(target, columns, columns, rows)]
        keys = sql.SQL(", ").join(map(sql.Identifier, self.keys))
        latest = sql.SQL("SELECT DISTINCT ON ({}) * FROM ({}) AS rows ORDER BY {}, {} DESC, {} DESC").format(
            keys, rows, keys, sql.Identifier(_TASK), sql.Identifier(_ROW)
        )
        others = [name for name in self.columns if name not in self.keys]
        setting = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
        then = sql.SQL("DO UPDATE SET {}").format(setting) if others else sql.SQL("DO NOTHING")
        insertion = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM ({}) AS latest{} ON CONFLICT ({}) {}")
        if self.delete_column is None:
            return [insertion.format(target, columns, columns, latest, sql.SQL(""), keys, then)]
        deleted = sql.Identifier(self.delete_column)
        same = sql.SQL(" AND ").join(sql.SQL("target.{0} = latest.{0}").format(sql.Identifier(k)) for k in self.keys)
        return [
            sql.SQL("DELETE FROM {} AS target USING ({}) AS latest WHERE latest.{} AND {}").format(
                target, latest, deleted, same
            ),
            insertion.format(
                target, columns, columns, latest, sql.SQL(" WHERE {} IS NOT TRUE").format(deleted), keys, then
            ),
        ]

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Create the table of markers, or its missing column, and with `createTable` the target.

        This is a transaction of its own. A complete table is not touched: it may belong to another role.
        """
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [CREATION_LOCK])
        marker = sql.Identifier(*self.markers.split("."))
        found = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND NOT attisdropped",
            [marker.as_string(connection)],
        ).fetchall()
        if not found:
            connection.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {} (query_id text PRIMARY KEY, batch_id bigint NOT NULL, plan text, "
                    "run_id text, written_at timestamptz)"
                ).format(marker)
            )
        elif ("plan",) not in found:
            connection.execute(sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS plan text").format(marker))
        if self.create:
            self._create_target(connection)
        connection.commit()

    def _create_target(self, connection: psycopg.Connection[Any]) -> None:
        parts = [sql.SQL("{} {}").format(sql.Identifier(f.name), sql.SQL(_kind(f.dataType))) for f in self.written]
        if self.keys:
            parts.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, self.keys))))
        connection.execute(
            sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
                sql.Identifier(*self.target.split(".")), sql.SQL(", ").join(parts)
            )
        )

    def _aside(self, name: str) -> psycopg.Connection[Any]:
        """A connection with a new staging table; creates a missing target if the option allows it."""
        with contextlib.ExitStack() as until_it_works:
            connection = self.connect()
            until_it_works.callback(connection.close)
            try:
                self._begin_aside(connection, name)
            except psycopg.errors.UndefinedTable:
                if not self.create:
                    raise
                connection.rollback()
                with limited(connection, self.connect, commits=False):
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", [CREATION_LOCK])
                    self._create_target(connection)
                    connection.commit()
                self._begin_aside(connection, name)
            until_it_works.pop_all()
        return connection

    def _begin_aside(self, connection: psycopg.Connection[Any], name: str) -> None:
        with limited(connection, self.connect, commits=False):
            self._stage_table(connection, name, "UNLOGGED")

    def _stage_table(self, connection: psycopg.Connection[Any], name: str, kind: str) -> None:
        """Create a staging table with the target's columns, in the order of the copied rows."""
        columns = sql.SQL(", ").join(
            sql.SQL("false AS {}" if each == self.delete_column else "{}").format(sql.Identifier(each))
            for each in self.schema.fieldNames()
        )
        connection.execute(
            sql.SQL("CREATE {} TABLE {} AS SELECT {}, 0 AS {}, 0::bigint AS {} FROM {} WITH NO DATA").format(
                sql.SQL(kind),
                sql.Identifier(name),
                columns,
                sql.Identifier(_TASK),
                sql.Identifier(_ROW),
                sql.Identifier(*self.target.split(".")),
            )
        )

    def _copy(self, connection: psycopg.Connection[Any], name: str, pieces: list[bytes]) -> None:
        statement = sql.SQL("COPY {} FROM STDIN (FORMAT csv)").format(sql.Identifier(name))
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for piece in pieces:
                copy.write(piece)

    def _clear_up(self, connection: psycopg.Connection[Any], query_id: str, batch_id: int) -> None:
        """Drop the staging tables of this batch and older ones, including those of failed tasks."""
        pattern = rf"odradek\_stage\_{_short(query_id)}\_%"
        found = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE %s", [pattern]).fetchall()
        for (name,) in found:
            if int(name.split("_")[3]) <= batch_id:
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(name)))

    def _where(self) -> str:
        return f"{self.target} at {self.server.get('host', 'localhost')}:{self.server.get('port', 5432)}"


def as_csv(batch: Any, task: int, first_row: int) -> bytes:
    """A batch as CSV for PostgreSQL's COPY, with the numbers of the task and the row after the columns."""
    arrays = [_as_text(column) for column in batch.columns]
    arrays.append(pa.array([task] * batch.num_rows, pa.int32()))
    arrays.append(pa.array(range(first_row, first_row + batch.num_rows), pa.int64()))
    rows = pa.RecordBatch.from_arrays(arrays, [*batch.schema.names, _TASK, _ROW])
    out = io.BytesIO()
    pacsv.write_csv(rows, out, pacsv.WriteOptions(include_header=False))
    return out.getvalue()


def _as_text(column: Any) -> Any:
    """Convert a column without a form in CSV: binaries to PostgreSQL's format, nested values to JSON."""
    types = pa.types
    if types.is_binary(column.type) or types.is_large_binary(column.type):
        return pa.array([None if each is None else "\\x" + each.hex() for each in column.to_pylist()], pa.string())
    if types.is_nested(column.type):
        plain = (_plain(each, column.type) for each in column.to_pylist())
        return pa.array([None if each is None else exact_json.encoded(each) for each in plain], pa.string())
    return column


def _plain(value: Any, type_: Any) -> Any:
    """A value of Arrow as JSON, like Spark's to_json: maps as objects, bytes in base64."""
    types = pa.types
    if value is None:
        return None
    if types.is_struct(type_):
        return {field.name: _plain(value[field.name], field.type) for field in type_}
    if types.is_map(type_):
        return {str(_plain(key, type_.key_type)): _plain(each, type_.item_type) for key, each in value}
    if types.is_list(type_) or types.is_large_list(type_):
        return [_plain(each, type_.value_type) for each in value]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


def _kind(type_: DataType) -> str:
    """The PostgreSQL type of a column; structs, arrays and maps are jsonb."""
    if isinstance(type_, DecimalType):
        return f"numeric({type_.precision}, {type_.scale})"
    scalar = scalar_type(type_)
    return scalar.postgresql if scalar is not None else "jsonb"


def _check(type_: DataType, column: str) -> None:
    """Raise OptionError for a type without a form in PostgreSQL or in JSON."""
    if isinstance(type_, StructType):
        for each in type_:
            _check(each.dataType, column)
    elif isinstance(type_, ArrayType):
        _check(type_.elementType, column)
    elif isinstance(type_, MapType):
        _check(type_.keyType, column)
        _check(type_.valueType, column)
    elif not isinstance(type_, DecimalType) and scalar_type(type_) is None:
        raise OptionError(
            f"the column {column} is or holds {type_.simpleString()}, which the PostgreSQL sink does not write: cast it"
        )


def _short(query_id: str) -> str:
    return hashlib.sha256(query_id.encode()).hexdigest()[:12]
