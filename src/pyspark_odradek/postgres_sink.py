"""An exactly-once sink into a table of PostgreSQL: tasks copy rows aside, the driver moves them in one transaction.

A task's rows go by COPY into a table of its own that nobody reads; a few of them travel in its message. The driver's
transaction locks the query's row in a table of markers, looks whether the batch is there, inserts or upserts all rows,
writes the batch's number and drops the tasks' tables. So a batch is in the table whole and once, or not at all, and two
drivers wait for each other at the marker.

Rows of one key in one batch: the last one counts, in the order of the rows of a task.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv as pacsv
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_odradek.errors import ClusterError, OptionError, StagingError
from pyspark_odradek.options import boolean
from pyspark_odradek.table_sink import LeftRows, TableStreamWriter, patiently
from pyspark_odradek.task import Task, is_written

try:
    import psycopg
    from psycopg import sql
except ImportError:
    raise ImportError('the PostgreSQL sink needs psycopg: pip install "odradek[postgres]"') from None

log = logging.getLogger("pyspark_odradek")

INLINE_BYTES = 64 << 10  # up to here a task's rows travel in its message, and need no table
_TASK, _ROW = "odradek_task", "odradek_row"
_KINDS: list[tuple[type[DataType], str]] = [
    (BooleanType, "boolean"),
    (ByteType, "smallint"),
    (ShortType, "smallint"),
    (IntegerType, "integer"),
    (LongType, "bigint"),
    (FloatType, "real"),
    (DoubleType, "double precision"),
    (StringType, "text"),
    (BinaryType, "bytea"),
    (DateType, "date"),
    (TimestampType, "timestamptz"),
    (TimestampNTZType, "timestamp"),
]


@dataclass
class CopiedRows(LeftRows):
    """Where a task's rows are: in a table of their own, or here, as CSV; neither where it had none."""

    inline: bytes = b""
    table: str | None = None

    def is_empty(self) -> bool:
        return not self.inline and self.table is None


class PostgresStreamWriter(TableStreamWriter):
    """`df.writeStream.format("odradek").option("sink", "postgres")`."""

    what = "PostgreSQL"
    known: ClassVar[list[str]] = ["sink", "connection", "table", "keyColumns", "createTable", "markerTable"]

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(given, schema, overwrite=overwrite)
        self.connection = self.options.get("connection", "")
        self.target = self.options.get("table", "")
        if not self.connection or not self.target:
            raise OptionError(
                "the PostgreSQL sink needs the options connection, such as postgresql://user@host/database, and table"
            )
        self.columns = schema.fieldNames()
        self.keys = self.columns_of("keyColumns")
        self.create = boolean(self.options, "createTable", False)
        self.markers = self.options.get("markertable", "odradek_batches")

    def write(self, iterator: Iterator[Any]) -> CopiedRows:
        """Put all rows of a task aside. Raises StagingError."""
        task = self.task()
        name = f"odradek_stage_{_short(task.query_id)}_{task.batch_id}_{uuid.uuid4().hex[:12]}"
        held, held_bytes, rows = [], 0, 0
        connection: Any = None
        try:
            for batch in iterator:
                held.append(as_csv(batch, task.partition_id, rows))
                held_bytes += len(held[-1])
                rows += batch.num_rows
                if held_bytes > INLINE_BYTES:
                    if connection is None:
                        connection = self.connect()
                        self._stage_table(connection, name, "UNLOGGED")
                    self._copy(connection, name, held)
                    held, held_bytes = [], 0
            if connection is None:
                return CopiedRows(task, b"".join(held))
            self._copy(connection, name, held)
            connection.commit()
            return CopiedRows(task, table=name)
        except psycopg.Error as error:
            raise StagingError(f"a task cannot put its rows aside in {self._where()}: {_said(error)}") from None
        finally:
            if connection is not None:
                connection.close()

    def commit_once(self, task: Task, found: Iterable[LeftRows]) -> bool:
        """Move the rows in one transaction.

        Where only the answer to the commit was lost, the next try finds that it has happened.
        """
        rows = [left for left in found if isinstance(left, CopiedRows)]

        def attempt() -> bool:
            with self.connect() as connection:
                return self._move(connection, task, rows)

        passing = (psycopg.OperationalError, psycopg.errors.SerializationFailure)
        try:
            return patiently(attempt, passing, f"batch {task.batch_id} could not be written to {self._where()}")
        except psycopg.Error as error:
            raise ClusterError(f"batch {task.batch_id} was refused by {self._where()}: {_said(error)}") from None

    def connect(self) -> psycopg.Connection[Any]:
        """A connection; leaving its context commits, or rolls back where something was raised, and closes it."""
        return psycopg.connect(self.connection, application_name="odradek-spark")

    def _move(self, connection: psycopg.Connection[Any], task: Task, found: list[CopiedRows]) -> bool:
        query_id, run_id, batch_id = task[:3]
        self._prepare(connection)
        marker = sql.Identifier(*self.markers.split("."))
        connection.execute(
            sql.SQL("INSERT INTO {} (query_id, batch_id) VALUES (%s, -1) ON CONFLICT DO NOTHING").format(marker),
            [query_id],
        )
        row = connection.execute(
            sql.SQL("SELECT batch_id FROM {} WHERE query_id = %s FOR UPDATE").format(marker), [query_id]
        ).fetchone()
        assert row is not None
        if is_written(row[0], batch_id, f"the table {self.target}"):
            log.warning("batch %d is in %s already and is not written again", batch_id, self.target)
            return False
        inline = [message.inline for message in found if message.inline]
        stages = [message.table for message in found if message.table]
        if inline:
            stages.append("odradek_inline")
            self._stage_table(connection, stages[-1], "TEMPORARY")
            self._copy(connection, stages[-1], inline)
        connection.execute(self._insertion(stages))
        connection.execute(
            sql.SQL("UPDATE {} SET batch_id = %s, run_id = %s, written_at = now() WHERE query_id = %s").format(marker),
            [batch_id, run_id, query_id],
        )
        self._clear_up(connection, query_id, batch_id)
        connection.commit()
        return True

    def _insertion(self, stages: list[str]) -> sql.Composed:
        columns = sql.SQL(", ").join(map(sql.Identifier, self.columns))
        rows: Any = sql.SQL(" UNION ALL ").join(
            sql.SQL("SELECT * FROM {}").format(sql.Identifier(stage)) for stage in stages
        )
        target = sql.Identifier(*self.target.split("."))
        if not self.keys:
            return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM ({}) AS rows").format(target, columns, columns, rows)
        keys = sql.SQL(", ").join(map(sql.Identifier, self.keys))
        latest = sql.SQL("SELECT DISTINCT ON ({}) * FROM ({}) AS rows ORDER BY {}, {}, {} DESC").format(
            keys, rows, keys, sql.Identifier(_TASK), sql.Identifier(_ROW)
        )
        changes = [name for name in self.columns if name not in self.keys]
        setting = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in changes)
        then = sql.SQL("DO UPDATE SET {}").format(setting) if changes else sql.SQL("DO NOTHING")
        return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM ({}) AS latest ON CONFLICT ({}) {}").format(
            target, columns, columns, latest, keys, then
        )

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Make the table of markers, and the target where that is asked for; in a transaction of its own."""
        connection.execute(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (query_id text PRIMARY KEY, batch_id bigint NOT NULL, run_id text, "
                "written_at timestamptz)"
            ).format(sql.Identifier(*self.markers.split(".")))
        )
        if self.create:
            self._create_target(connection)
        connection.commit()

    def _create_target(self, connection: psycopg.Connection[Any]) -> None:
        parts = [sql.SQL("{} {}").format(sql.Identifier(f.name), sql.SQL(_kind(f.dataType))) for f in self.schema]
        if self.keys:
            parts.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, self.keys))))
        connection.execute(
            sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
                sql.Identifier(*self.target.split(".")), sql.SQL(", ").join(parts)
            )
        )

    def _stage_table(self, connection: psycopg.Connection[Any], name: str, kind: str) -> None:
        if self.create and kind == "UNLOGGED":
            self._create_target(connection)
            connection.commit()
        columns = sql.SQL(", ").join(map(sql.Identifier, self.columns))
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
        """Drop what tasks of this batch and older ones put aside, that of tasks that failed included."""
        pattern = rf"odradek\_stage\_{_short(query_id)}\_%"
        found = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE %s", [pattern]).fetchall()
        for (name,) in found:
            if int(name.split("_")[3]) <= batch_id:
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(name)))

    def _where(self) -> str:
        known = psycopg.conninfo.conninfo_to_dict(self.connection)
        return f"{self.target} at {known.get('host', 'localhost')}:{known.get('port', 5432)}"


def as_csv(batch: Any, task: int, first_row: int) -> bytes:
    """A batch as PostgreSQL's COPY takes it, with the number of the task and of each row behind the columns."""
    arrays = [_as_text(column) for column in batch.columns]
    arrays.append(pa.array([task] * batch.num_rows, pa.int32()))
    arrays.append(pa.array(range(first_row, first_row + batch.num_rows), pa.int64()))
    rows = pa.RecordBatch.from_arrays(arrays, [*batch.schema.names, _TASK, _ROW])
    out = io.BytesIO()
    pacsv.write_csv(rows, out, pacsv.WriteOptions(include_header=False))
    return out.getvalue()


def _as_text(column: Any) -> Any:
    """What CSV cannot hold as text: binaries as PostgreSQL writes them, nested values as JSON."""
    types = pa.types
    if types.is_binary(column.type):
        return pa.array([None if each is None else "\\x" + each.hex() for each in column.to_pylist()], pa.string())
    if types.is_nested(column.type):
        texts = [None if each is None else json.dumps(each, default=str) for each in column.to_pylist()]
        return pa.array(texts, pa.string())
    return column


def _kind(type_: DataType) -> str:
    """The type of a column of PostgreSQL; structs, arrays and maps are jsonb."""
    if isinstance(type_, DecimalType):
        return f"numeric({type_.precision}, {type_.scale})"
    return next((kind for each, kind in _KINDS if isinstance(type_, each)), "jsonb")


def _short(query_id: str) -> str:
    return hashlib.sha256(query_id.encode()).hexdigest()[:12]


def _said(error: psycopg.Error) -> str:
    return " ".join(str(error).split())
