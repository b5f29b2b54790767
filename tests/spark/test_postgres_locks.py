"""The PostgreSQL sink and sessions that hold locks forever: it names them, and holds none itself."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_odradek.errors import ClusterError, one_line
from pyspark_odradek.micro_batch.task import Task
from pyspark_odradek.table_sinks import table_sink
from tests.spark.stores import PostgresStore, left, writer
from tests.support.nodes.postgres import Postgres

psycopg: Any = pytest.importorskip("psycopg", reason='needs psycopg: pip install "odradek[postgres]"')

GIVES_UP_MS = 100_000  # what holds a lock in a test ends by then, so that a sink that waits for ever does not
LARGE = [(number, "x" * 100) for number in range(1000)]


@pytest.fixture
def store(postgres: Postgres, table: str) -> PostgresStore:
    """A table that no other test has."""
    return PostgresStore(postgres, table)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink with a short lock timeout, which fails when it has found the holder of the lock for the second time.

    How long it takes to learn that is the machine's: by the sink's clock it takes nine of the ten seconds that it has.
    """
    from pyspark_odradek.table_sinks import postgres_locks

    passed_s = 0.0

    def reported(error: BaseException) -> str:
        nonlocal passed_s
        said = one_line(error)
        passed_s += 9.0 if "held by process" in said else 0.0
        return said

    monkeypatch.setattr(table_sink, "PATIENCE_S", 10.0)
    monkeypatch.setattr(table_sink, "one_line", reported)
    monkeypatch.setattr(table_sink, "time", SimpleNamespace(monotonic=lambda: passed_s, sleep=time.sleep))
    monkeypatch.setattr("pyspark_odradek.table_sinks.postgres_locks.LOOK_S", 0.05)
    monkeypatch.setitem(postgres_locks.LIMITS, "lock_timeout", 400)


def task(batch_id: int = 0) -> Task:
    return Task("query", "run", batch_id, 0, 0)


def another(store: PostgresStore) -> Any:
    options = f"-c idle_in_transaction_session_timeout={GIVES_UP_MS}"
    return psycopg.connect(store.server.url, options=options, application_name="of another")


@contextmanager
def holding(store: PostgresStore, statement: str) -> Iterator[int]:
    """Another session that has run a statement and is idle in its transaction; yields its process id."""
    with another(store) as other:
        other.execute(statement)
        yield other.info.backend_pid
        other.rollback()


def test_a_marker_that_another_session_locks(
    store: PostgresStore, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    """An older driver on a lost machine leaves a lock: the sink warns, names it, and continues when it is free."""
    made = writer(store)
    assert made.commit_once(task(), [left(made, task(), [(1, "a")])])
    rows = [left(made, task(1), [(2, "b")])]
    with holding(store, f"SELECT * FROM marks_{store.table} FOR UPDATE") as process:
        whose = (
            rf"batch 1 could not be written to {store.table} at .* in 10 s: canceling .* lock timeout .*marks_.*; the "
            rf"lock is held by process {process} of the server \(of another of postgres at 127\.0\.0\.1, idle in "
            rf"transaction, its transaction began \d+ s ago\): .* SELECT pg_terminate_backend\({process}\) ends it"
        )
        with caplog.at_level(logging.WARNING, "pyspark_odradek"), pytest.raises(ClusterError, match=whose):
            made.commit_once(task(1), rows)
        (warned,) = [record.getMessage() for record in caplog.records]
        assert f"held by process {process}" in warned and warned.endswith("trying again for 10 s")
    assert made.commit_once(task(1), rows)
    assert store.rows() == [(1, "a"), (2, "b")]


def test_a_table_that_another_session_locks_against_tasks(store: PostgresStore, impatient: None) -> None:
    """Locks of a task with many rows are limited too; of a chain of waiting sessions, the first holder is named."""
    made = writer(store)
    assert made.commit_once(task(), [left(made, task(), LARGE)])
    with (
        holding(store, f"LOCK TABLE {store.table}") as process,
        another(store) as queue,
        pytest.raises(ClusterError, match=rf"a task cannot put its rows aside in .* held by process {process} of"),
    ):

        def lock() -> None:
            with suppress(psycopg.errors.QueryCanceled):  # by the end of this test
                queue.execute(f"LOCK TABLE {store.table}")

        waiting = threading.Thread(target=lock)
        waiting.start()
        try:
            while store.query("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(0,)]:
                assert waiting.is_alive()
            left(made, task(1), LARGE)
        finally:
            queue.cancel()
            waiting.join()


def limits_of(connection: Any) -> dict[str, str]:
    names = (
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        "tcp_keepalives_idle",
        "tcp_keepalives_interval",
        "tcp_keepalives_count",
        "tcp_user_timeout",
    )
    return {name: connection.execute(f"SHOW {name}").fetchone()[0] for name in names}


def test_the_server_detects_the_loss_of_the_committing_machine(store: PostgresStore) -> None:
    """It sets TCP keepalives, which the kernel answers, only for the transaction; settings of the user stay."""
    found: list[dict[str, str]] = []

    def commits(batch_id: int, **more: str) -> dict[str, str]:
        made = writer(store, **more)  # type: ignore[arg-type]  # options by name
        clear_up = made._clear_up

        def noted(connection: Any, *rest: Any) -> None:
            found.append(limits_of(connection))
            clear_up(connection, *rest)

        made._clear_up = noted
        assert made.commit_once(task(batch_id), [left(made, task(batch_id), [(1, "a")])])
        return found[-1]

    assert commits(0) == {
        "lock_timeout": "5s",
        "idle_in_transaction_session_timeout": "1min",
        "tcp_keepalives_idle": "30",
        "tcp_keepalives_interval": "10",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": "60000",
    }
    of_the_user = "?options=-c%20lock_timeout%3D7s%20-c%20tcp_keepalives_idle%3D77"
    with_theirs = commits(1, connection=store.server.url + of_the_user)
    assert (with_theirs["lock_timeout"], with_theirs["tcp_keepalives_idle"]) == ("7s", "77")
    assert with_theirs["tcp_user_timeout"] == "60000"
    store.query("ALTER ROLE postgres SET lock_timeout = '8s'")
    try:
        assert commits(2)["lock_timeout"] == "8s"
    finally:
        store.query("ALTER ROLE postgres RESET lock_timeout")
    made = writer(store)
    tasks: list[dict[str, str]] = []
    stage = made._stage_table

    def noted(connection: Any, *rest: Any) -> None:
        stage(connection, *rest)
        tasks.append(limits_of(connection))

    made._stage_table = noted
    assert made.commit_once(task(3), [left(made, task(3), LARGE)])
    assert tasks == [found[0] | {"idle_in_transaction_session_timeout": "0"}], "a task waits for its rows"


def test_a_driver_that_is_paused_in_its_commit(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends its session, so the next driver commits; the first one then finds the batch in the table."""
    from pyspark_odradek.table_sinks import postgres_locks

    made, other = writer(store), writer(store)
    made.commit_once(task(), [left(made, task(), [(1, "a")])])
    monkeypatch.setitem(postgres_locks.OF_A_COMMIT, "idle_in_transaction_session_timeout", 300)
    rows = [left(made, task(1), [(2, "b")])]
    asleep, awake = threading.Event(), threading.Event()
    clear_up = made._clear_up

    def is_paused(*rest: Any) -> None:
        asleep.set()
        awake.wait(GIVES_UP_MS / 1000)
        clear_up(*rest)

    made._clear_up = is_paused
    first: list[bool] = []
    standing = threading.Thread(target=lambda: first.append(made.commit_once(task(1), rows)))
    standing.start()
    assert asleep.wait(200)
    monkeypatch.undo()  # the other one may be slow, and so may the first one when it is awake
    try:
        assert other.commit_once(task(1), rows)
    finally:
        awake.set()
        standing.join(200)
    assert first == [False]
    assert store.rows() == [(1, "a"), (2, "b")]
