"""The PostgreSQL sink over a real server: each batch once, in one transaction, whatever dies."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_odradek.errors import ClusterError, FencedError, OptionError
from pyspark_odradek.sink import stream_writer
from pyspark_odradek.task import Task
from tests.spark import dying_source
from tests.spark.queries import load_stream, numbered
from tests.spark.test_exact_sink import forget_commit
from tests.support.clients import create_topic
from tests.support.postgres import Postgres

psycopg: Any = pytest.importorskip("psycopg", reason='needs psycopg: pip install "odradek[postgres]"')

ROWS = StructType([StructField("id", LongType()), StructField("name", StringType())])
_tables = itertools.count()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def table() -> str:
    """A name that no other test has."""
    return f"rows_{next(_tables)}"


def writer(postgres: Postgres, table: str, schema: StructType = ROWS, **options: str) -> Any:
    given = {"sink": "postgres", "connection": postgres.url, "table": table, "createTable": "true"} | options
    return stream_writer(given, schema, False)


def copied(
    made: Any, monkeypatch: pytest.MonkeyPatch, batch_id: int, rows: list[tuple[Any, ...]], task: int = 0
) -> Any:
    """What one task puts aside."""
    from pyspark_odradek import postgres_sink

    names = made.columns
    arrays = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    monkeypatch.setattr(postgres_sink, "streaming_task", lambda: Task("query", "run", batch_id, task, 1))
    return made.write(iter([pa.record_batch(arrays)]))


def found(postgres: Postgres, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(postgres.url) as connection:
        return connection.execute(statement).fetchall()  # type: ignore[no-any-return]


def test_a_batch_is_taken_once(postgres: Postgres, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = {"markerTable": f"marks_{table}"}
    made = writer(postgres, table, **marks)
    first = [copied(made, monkeypatch, 0, [(1, "a"), (2, None)]), copied(made, monkeypatch, 0, [(3, "")], 1)]
    assert made.commit_rows(first, 0)
    assert not made.commit_rows(first, 0), "as Spark does after a crash"
    assert not writer(postgres, table, **marks).commit_rows(first, 0)
    assert made.commit_rows([copied(made, monkeypatch, 1, [(4, 'q"uo,te\n')])], 1)
    with pytest.raises(FencedError, match="has batch 1 of this query already, and this driver is at batch 0"):
        made.commit_rows(first, 0)
    assert found(postgres, f"SELECT * FROM {table} ORDER BY id") == [(1, "a"), (2, None), (3, ""), (4, 'q"uo,te\n')]
    assert found(postgres, f"SELECT query_id, batch_id, run_id FROM marks_{table}") == [("query", 1, "run")]


def test_larger_batches_are_put_aside_and_cleared_up(
    postgres: Postgres, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = {"markerTable": f"marks_{table}"}
    made = writer(postgres, table, **marks)
    rows = [(number, "x" * 100) for number in range(3000)]
    lost = copied(made, monkeypatch, 0, rows)
    tried_again = copied(made, monkeypatch, 0, rows)
    assert lost.table and tried_again.table and lost.table != tried_again.table
    assert made.commit_rows([tried_again, copied(made, monkeypatch, 0, [(3000, "y")], 1)], 0)
    assert found(postgres, f"SELECT count(*), count(DISTINCT id), max(id) FROM {table}") == [(3001, 3001, 3000)]
    assert found(postgres, "SELECT relname FROM pg_class WHERE relname LIKE 'odradek_stage%'") == []


def test_rows_of_one_key_are_updated(postgres: Postgres, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = writer(postgres, table, keyColumns="id", markerTable=f"marks_{table}")
    made.commit_rows([copied(made, monkeypatch, 0, [(1, "a"), (2, "b"), (1, "c")])], 0)
    made.commit_rows([copied(made, monkeypatch, 1, [(2, "d"), (3, "e")])], 1)
    assert found(postgres, f"SELECT * FROM {table} ORDER BY id") == [(1, "c"), (2, "d"), (3, "e")]


def test_types(spark: Any, postgres: Postgres, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = spark.sql(
        "SELECT true b, 1Y t, 2S s, 3 i, 4L l, 1.5F f, 2.5D d, 'x' x, X'00FF' r, DATE'2024-01-02' a, "
        "TIMESTAMP'2024-01-02 03:04:05.000006' at, 1.25BD n, array(1, 2) xs, named_struct('k', 'v') st"
    )
    made = writer(postgres, table, frame.schema, markerTable=f"marks_{table}")
    row = frame.toArrow().to_pylist()[0]
    from pyspark_odradek import postgres_sink

    monkeypatch.setattr(postgres_sink, "streaming_task", lambda: Task("query", "run", 0, 0, 1))
    made.commit_rows([made.write(iter(frame.toArrow().to_batches()))], 0)
    ((*plain, xs, st),) = found(postgres, f"SELECT * FROM {table}")
    at = datetime.datetime(2024, 1, 2, 3, 4, 5, 6, datetime.UTC)
    assert plain == [True, 1, 2, 3, 4, 1.5, 2.5, "x", b"\x00\xff", datetime.date(2024, 1, 2), at, row["n"]]
    assert (xs, st) == ([1, 2], {"k": "v"})


def test_what_postgres_refuses_is_one_sentence(postgres: Postgres, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(postgres.url) as connection:
        connection.execute(f"CREATE TABLE {table} (id bigint, name text CHECK (name <> 'bad'))")
    made = writer(postgres, table, createTable="false", markerTable=f"marks_{table}")
    with pytest.raises(ClusterError, match=rf"batch 0 was refused by {table} at 127\.0\.0\.1:\d+: .*check constraint"):
        made.commit_rows([copied(made, monkeypatch, 0, [(1, "good"), (2, "bad")])], 0)
    assert found(postgres, f"SELECT * FROM {table}") == []
    gone = writer(postgres, f"{table}_none", createTable="false", markerTable=f"marks_{table}")
    with pytest.raises(ClusterError, match=f'relation "{table}_none" does not exist'):
        gone.commit_rows([copied(gone, monkeypatch, 0, [(1, "a")])], 0)
    wrong = StructType([StructField("id", StringType()), StructField("name", StringType())])
    text = writer(postgres, table, wrong, createTable="false", markerTable=f"marks_{table}")
    with pytest.raises(ClusterError, match="invalid input syntax for type bigint"):
        text.commit_rows([copied(text, monkeypatch, 0, [("one", "a")])], 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"table": ""}, "needs the options connection"),
        ({"keyColumns": "nr"}, "keyColumns names nr, which no column is called"),
        ({"keyColumn": "id"}, "did you mean 'keyColumns'"),
        ({"kafka.acks": "all"}, "no meaning for the PostgreSQL sink"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, str], says: str) -> None:
    given = {"sink": "postgres", "connection": "postgresql://h/d", "table": "t"} | options
    with pytest.raises(OptionError, match=says):
        stream_writer(given, ROWS, False)


def test_the_server_is_killed(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit whose session dies begins anew; one whose answer is lost is found to have happened."""
    with Postgres() as server:
        made = writer(server, table)
        connect = made.connect
        deaths = iter(["before", "after", "never", "never"])

        class Dying:
            def __init__(self, connection: Any) -> None:
                self.connection = connection
                self.commits = 0

            def __enter__(self) -> Any:
                self.connection.__enter__()
                return self

            def __exit__(self, *error: Any) -> Any:
                return self.connection.__exit__(*error)

            def __getattr__(self, name: str) -> Any:
                return getattr(self.connection, name)

            def commit(self) -> None:
                self.commits += 1
                death = next(deaths) if self.commits == 2 else "never"
                if death == "after":
                    self.connection.commit()
                if death != "never":
                    server.kill()
                    server.start()
                self.connection.commit()
                if death == "after":
                    raise psycopg.OperationalError("the answer is lost")

        made.connect = lambda: Dying(connect())
        assert made.commit_rows([copied(made, monkeypatch, 0, [(1, "a"), (2, "b")])], 0) is False
        assert found(server, f"SELECT count(*) FROM {table}") == [(2,)]


@pytest.mark.slow
def test_a_stream_into_a_table_through_deaths(
    spark: Any, odradek: str, postgres: Postgres, topic: str, table: str, tmp_path: Path
) -> None:
    create_topic(odradek, topic, 2)
    spark.dataSource.register(dying_source.DyingSource)
    plan = tmp_path / "plan"
    plan.write_text("before commit_rows\nafter commit_rows")
    count = 0
    for deaths in range(4):
        numbered(odradek, topic, range(count, count + 100))
        count += 100
        stream = load_stream(spark, odradek, subscribe=topic).selectExpr("INT(STRING(value)) id", "timestamp")
        out = stream.writeStream.format("odradek_dying").option("sink", "postgres").option("plan", str(plan))
        out = out.options(connection=postgres.url, table=table, createTable="true")
        query = out.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        if deaths < 2:
            with pytest.raises(Exception):  # noqa: B017 - of Spark, about a worker that is gone
                query.awaitTermination(150)
        else:
            assert query.awaitTermination(150)
        if deaths == 2:
            forget_commit(tmp_path)
    assert plan.read_text() == ""
    assert found(postgres, f"SELECT count(*), count(DISTINCT id), max(id) FROM {table}") == [(400, 400, 399)]
