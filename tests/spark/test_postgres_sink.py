"""The PostgreSQL sink with a real server: each batch once, in one transaction, after any crash."""

from __future__ import annotations

import datetime
import threading
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from pyspark_odradek.errors import ClusterError, OptionError, StagingError
from pyspark_odradek.micro_batch.task import Task
from tests.spark.stores import PostgresStore, left, writer
from tests.support.nodes.postgres import Postgres

psycopg: Any = pytest.importorskip("psycopg", reason='needs psycopg: pip install "odradek[postgres]"')


@pytest.fixture
def store(postgres: Postgres, table: str) -> PostgresStore:
    """A table that no other test has."""
    return PostgresStore(postgres, table)


def task(batch_id: int = 0, number: int = 0) -> Task:
    return Task("query", "run", batch_id, number, number)


def test_larger_batches_are_staged_in_tables_that_are_dropped(store: PostgresStore) -> None:
    made = writer(store)
    rows = [(number, "x" * 100) for number in range(3000)]
    lost = left(made, task(), rows)
    tried_again = left(made, task(), rows)
    assert lost.table and tried_again.table and lost.table != tried_again.table
    assert made.commit_once(task(), [tried_again, left(made, task(number=1), [(3000, "y")])])
    assert store.query(f"SELECT count(*), count(DISTINCT id), max(id) FROM {store.table}") == [(3001, 3001, 3000)]
    assert store.query("SELECT relname FROM pg_class WHERE relname LIKE 'odradek_stage%'") == []
    assert store.query(f"SELECT query_id, batch_id, run_id FROM marks_{store.table}") == [("query", 0, "run")]


def test_rows_of_one_key_are_updated(store: PostgresStore) -> None:
    made = writer(store, keyColumns="id")
    made.commit_once(task(), [left(made, task(), [(1, "a"), (2, "b"), (1, 'q"uo,te\n')])])
    made.commit_once(task(1), [left(made, task(1), [(2, "d"), (3, "")])])
    assert store.rows() == [(1, 'q"uo,te\n'), (2, "d"), (3, "")]


def test_types(spark: Any, store: PostgresStore) -> None:
    frame = spark.sql(
        "SELECT true b, 1Y t, 2S s, 3 i, 4L l, 1.5F f, 2.5D d, 'x' x, X'00FF' r, DATE'2024-01-02' a, "
        "TIMESTAMP'2024-01-02 03:04:05.000006' at, 1.25BD n, array(1, 2) xs, named_struct('k', 'v') st"
    )
    made = writer(store, frame.schema)
    row = frame.toArrow().to_pylist()[0]
    made.task = task
    made.commit_once(task(), [made.write(iter(frame.toArrow().to_batches()))])
    ((*plain, xs, st),) = store.query(f"SELECT * FROM {store.table}")
    at = datetime.datetime(2024, 1, 2, 3, 4, 5, 6, datetime.UTC)
    assert plain == [True, 1, 2, 3, 4, 1.5, 2.5, "x", b"\x00\xff", datetime.date(2024, 1, 2), at, row["n"]]
    assert (xs, st) == ([1, 2], {"k": "v"})


NESTED = (
    "map('a', 1, 'b', null) m, map(1, array(X'00FF')) n, named_struct('at', TIMESTAMP'2024-01-02 03:04:05') s, "
    "array(DOUBLE('NaN'), DOUBLE('-Infinity'), 0.5D) d, array(0.12345678901234567890123BD, 1.10BD) c"
)


def test_nested_values_are_what_spark_writes_as_json(spark: Any, store: PostgresStore) -> None:
    frame = spark.sql(f"SELECT {NESTED}")
    made = writer(store, frame.schema)
    made.task = task
    made.commit_once(task(), [made.write(iter(frame.toArrow().to_batches()))])
    assert store.query(f"SELECT * FROM {store.table}") == [
        (
            {"a": 1, "b": None},
            {"1": ["AP8="]},
            {"at": "2024-01-02T03:04:05+00:00"},
            ["NaN", "-Infinity", 0.5],
            [0.12345678901234567890123, 1.1],
        )
    ]
    assert store.query(f"SELECT c::text FROM {store.table}") == [
        ("[0.12345678901234567890123, 1.10000000000000000000000]",)
    ]


@pytest.mark.parametrize("kind", [DayTimeIntervalType(), ArrayType(YearMonthIntervalType()), NullType(), VariantType()])
def test_unsupported_types(store: PostgresStore, kind: DataType) -> None:
    with pytest.raises(
        OptionError, match=r"the column a is or holds .* which the PostgreSQL sink does not write: cast"
    ):
        writer(store, StructType([StructField("id", LongType()), StructField("a", kind)]))


def test_texts_that_need_care_in_csv(store: PostgresStore) -> None:
    """Texts with COPY's end marker, with line ends, an empty text and a null."""
    texts = ["a\n\\.\nb", "\\.", "a\r\nb", 'a"b', "", None, " ", "NULL", "\\N", "żółć"]
    made = writer(store)
    made.commit_once(task(), [left(made, task(), list(enumerate(texts)))])
    assert store.rows() == list(enumerate(texts))


def test_a_poison_row_is_reported_with_its_line(store: PostgresStore) -> None:
    """Text of PostgreSQL has no character 0: each attempt is refused whole, until the row is filtered."""
    made = writer(store)
    for _ in range(2):
        with pytest.raises(
            ClusterError, match=r"0x00 CONTEXT: COPY odradek_inline, line 2\. Nothing of it was written"
        ):
            made.commit_once(task(), [left(made, task(), [(1, "a"), (2, "b\0c")])])
    assert made.commit_once(task(), [left(made, task(), [(1, "a")])])
    assert store.rows() == [(1, "a")]


def test_tasks_that_create_the_table_at_once(store: PostgresStore) -> None:
    """CREATE TABLE IF NOT EXISTS alone fails in one of two sessions that run it at the same moment."""
    writers = [writer(store) for _ in range(4)]
    rows = [(number, "x" * 100) for number in range(1000)]
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda number=number, made=made: found.append(left(made, task(number=number), rows)))
        for number, made in enumerate(writers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(each.table for each in found)
    assert writers[0].commit_once(task(), found)
    assert store.query(f"SELECT count(*) FROM {store.table}") == [(4000,)]


def test_a_table_of_markers_without_plans(store: PostgresStore) -> None:
    """It is as older versions created it: it gets the column, and its markers count."""
    marks = f"marks_{store.table}"
    store.query(
        f"CREATE TABLE {marks} (query_id text PRIMARY KEY, batch_id bigint, run_id text, written_at timestamptz)"
    )
    store.query(f"INSERT INTO {marks} VALUES ('query', 0, 'run', now())")
    made = writer(store)
    made.plan = lambda _: "planned"
    assert not made.commit_once(task(), [left(made, task(), [(1, "a")])])
    assert made.commit_once(task(1), [left(made, task(1), [(2, "b")])])
    assert store.rows() == [(2, "b")]
    assert store.query(f"SELECT batch_id, plan FROM {marks}") == [(1, "planned")]


def test_a_batch_creates_no_existing_table(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that creates another table in the database does not delay a batch."""
    from pyspark_odradek.table_sinks.postgres_sink import CREATION_LOCK

    monkeypatch.setattr("pyspark_odradek.table_sinks.table_sink.PATIENCE_S", 0.1)
    made = writer(store, connection=f"{store.options['connection']}?options=-c%20lock_timeout%3D500")
    rows = [(number, "x" * 100) for number in range(1000)]
    assert made.commit_once(task(), [left(made, task(), rows)])
    with psycopg.connect(store.options["connection"]) as another:
        another.execute("SELECT pg_advisory_xact_lock(%s)", [CREATION_LOCK])
        assert made.commit_once(task(1), [left(made, task(1), rows)])
    assert store.query(f"SELECT count(*) FROM {store.table}") == [(2000,)]


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_two_drivers_wait_for_each_other_at_the_marker(store: PostgresStore, first: bool) -> None:
    """The other one is about to commit the same batch: ours then finds it, also if it is the query's first."""
    made = writer(store)
    made.commit_once(task()._replace(query_id="another"), [left(made, task(), [(0, "z")])])
    if not first:
        made.commit_once(task(), [left(made, task(), [(1, "a")])])
    batch = task(0 if first else 1)
    marks = f"marks_{store.table}"
    done: list[bool] = []
    with psycopg.connect(store.options["connection"]) as other:
        other.execute(
            f"INSERT INTO {marks} VALUES ('query', {batch.batch_id}) "
            f"ON CONFLICT (query_id) DO UPDATE SET batch_id = {batch.batch_id}"
        )
        other.execute(f"INSERT INTO {store.table} VALUES (7, 'theirs')")
        mine = [left(made, batch, [(7, "ours")])]
        waiting = threading.Thread(target=lambda: done.append(made.commit_once(batch, mine)))
        waiting.start()
        while store.query("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(0,)]:
            assert waiting.is_alive()
    waiting.join(200)
    assert done == [False]
    assert store.rows()[-1] == (7, "theirs") and len(store.rows()) == (2 if first else 3)


def test_a_refusal_of_postgres_is_one_sentence(store: PostgresStore) -> None:
    store.query(f"CREATE TABLE {store.table} (id bigint, name text CHECK (name <> 'bad'))")
    made = writer(store, createTable="false")
    says = rf"batch 0 was refused by {store.table} at 127\.0\.0\.1:\d+: .*check constraint"
    with pytest.raises(ClusterError, match=says):
        made.commit_once(task(), [left(made, task(), [(1, "good"), (2, "bad")])])
    assert store.rows() == []
    gone = writer(store, createTable="false", table=f"{store.table}_none")
    with pytest.raises(ClusterError, match=f'relation "{store.table}_none" does not exist'):
        gone.commit_once(task(), [left(gone, task(), [(1, "a")])])
    wrong = StructType([StructField("id", StringType()), StructField("name", StringType())])
    text = writer(store, wrong, createTable="false")
    with pytest.raises(ClusterError, match="invalid input syntax for type bigint"):
        text.commit_once(task(), [left(text, task(), [("one", "a")])])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"table": ""}, "needs the options connection"),
        ({"connection": "postgresql://[bad"}, "PostgreSQL does not understand the option connection"),
        ({"keyColumns": "nr"}, "keyColumns names nr, which no column is called"),
        ({"keyColumn": "id"}, "did you mean 'keyColumns'"),
        ({"kafka.acks": "all"}, "no meaning for the PostgreSQL sink"),
    ],
)
def test_invalid_options(store: PostgresStore, options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        writer(store, **options)  # type: ignore[arg-type]  # options by name


def test_the_server_is_killed() -> None:
    """A commit whose session dies is retried; a commit whose response is lost is found in the table."""
    with Postgres() as server:
        store = PostgresStore(server, "rows")
        made = writer(store)
        assert made.commit_once(task(), [left(made, task(), [(0, "z")])])
        connect = made.connect
        deaths = iter(["before", "after"])

        class Dying:
            def __init__(self, connection: Any) -> None:
                self.connection = connection

            def __enter__(self) -> Any:
                self.connection.__enter__()
                return self

            def __exit__(self, *error: Any) -> Any:
                return self.connection.__exit__(*error)

            def __getattr__(self, name: str) -> Any:
                return getattr(self.connection, name)

            def commit(self) -> None:
                death = next(deaths)
                if death == "after":
                    self.connection.commit()
                if death != "never":
                    server.kill()
                    server.start()
                self.connection.commit()
                if death == "after":
                    raise psycopg.OperationalError("the answer is lost")

        made.connect = lambda: Dying(connect())
        assert made.commit_once(task(1), [left(made, task(1), [(1, "a"), (2, "b")])]) is False
        assert store.rows() == [(0, "z"), (1, "a"), (2, "b")]


def test_a_server_that_crashes_between_tasks_and_commit_loses_no_batch() -> None:
    """The crash empties the staging tables: the batch is refused, and written whole when it runs again."""
    with Postgres() as server:
        store = PostgresStore(server, "rows")
        made = writer(store)
        rows = [(number, "x" * 100) for number in range(3000)]
        found = left(made, task(), rows)
        server.kill()
        server.start()
        with pytest.raises(StagingError, match=r"a task staged in rows at .* are gone: the server crashed"):
            made.commit_once(task(), [found])
        assert made.commit_once(task(), [left(made, task(), rows)])
        assert store.query("SELECT count(*) FROM rows") == [(3000,)]
