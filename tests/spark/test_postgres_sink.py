"""The PostgreSQL sink over a real server: each batch once, in one transaction, whatever dies."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_odradek.errors import ClusterError, OptionError
from pyspark_odradek.task import Task
from tests.spark.stores import PostgresStore, left, writer
from tests.support.postgres import Postgres

psycopg: Any = pytest.importorskip("psycopg", reason='needs psycopg: pip install "odradek[postgres]"')

_tables = itertools.count()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def store(postgres: Postgres) -> PostgresStore:
    """A table that no other test has."""
    return PostgresStore(postgres, f"own_{next(_tables)}")


def task(batch_id: int = 0, number: int = 0) -> Task:
    return Task("query", "run", batch_id, number, number)


def test_larger_batches_are_put_aside_and_cleared_up(store: PostgresStore) -> None:
    made = writer(store)
    rows = [(number, "x" * 100) for number in range(3000)]
    lost = left(made, task(), rows)
    tried_again = left(made, task(), rows)
    assert lost.table and tried_again.table and lost.table != tried_again.table
    assert made.commit_once(task(), [tried_again, left(made, task(number=1), [(3000, "y")])])
    assert store.ask(f"SELECT count(*), count(DISTINCT id), max(id) FROM {store.table}") == [(3001, 3001, 3000)]
    assert store.ask("SELECT relname FROM pg_class WHERE relname LIKE 'odradek_stage%'") == []
    assert store.ask(f"SELECT query_id, batch_id, run_id FROM marks_{store.table}") == [("query", 0, "run")]


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
    ((*plain, xs, st),) = store.ask(f"SELECT * FROM {store.table}")
    at = datetime.datetime(2024, 1, 2, 3, 4, 5, 6, datetime.UTC)
    assert plain == [True, 1, 2, 3, 4, 1.5, 2.5, "x", b"\x00\xff", datetime.date(2024, 1, 2), at, row["n"]]
    assert (xs, st) == ([1, 2], {"k": "v"})


def test_what_postgres_refuses_is_one_sentence(store: PostgresStore) -> None:
    store.ask(f"CREATE TABLE {store.table} (id bigint, name text CHECK (name <> 'bad'))")
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
        ({"keyColumns": "nr"}, "keyColumns names nr, which no column is called"),
        ({"keyColumn": "id"}, "did you mean 'keyColumns'"),
        ({"kafka.acks": "all"}, "no meaning for the PostgreSQL sink"),
    ],
)
def test_options_that_make_no_sense(store: PostgresStore, options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        writer(store, **options)


def test_the_server_is_killed() -> None:
    """A commit whose session dies begins anew; one whose answer is lost is found to have happened."""
    with Postgres() as server:
        store = PostgresStore(server, "rows")
        made = writer(store)
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
        assert made.commit_once(task(), [left(made, task(), [(1, "a"), (2, "b")])]) is False
        assert store.rows() == [(1, "a"), (2, "b")]
