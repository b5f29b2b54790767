"""Locks of the PostgreSQL sink: no transaction waits for a lock silently and forever, or keeps one forever.

A machine that loses power does not close its connections. Its session keeps all its locks until the server's TCP
notices, by default after two hours. So each transaction sets TCP keepalives on the server. If a lock is not granted,
the error names its holder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from pyspark_odradek.errors import one_line

LOOK_S = 1.0  # so long a transaction lasts before it is looked at whether it waits for another one
# The settings of a transaction, in the units of pg_settings; a vanished peer is noticed within a minute.
LIMITS = {
    "lock_timeout": 5000,
    "tcp_keepalives_idle": 30,
    "tcp_keepalives_interval": 10,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
# The driver's only: a task waits in its transaction for its rows, and holds no lock that other writers need.
OF_A_COMMIT = {"idle_in_transaction_session_timeout": 60_000}
# Local to the transaction, as a pool may then give the session to other clients. Settings of this connection, role or
# database, and stricter values, stay; 0 is no limit. The CASE keeps texts of other settings from the cast.
LIMITING = """
SELECT pg_backend_pid(), count(set_config(name, most::text, true))
FROM unnest(%s::text[], %s::bigint[]) AS ours (name, most) JOIN pg_settings AS now USING (name)
WHERE CASE WHEN ours.name = now.name
    THEN source NOT IN ('client', 'user', 'database', 'database user', 'global')
        AND setting::bigint NOT BETWEEN 1 AND most END
"""
# The sessions at the head of a chain of sessions that wait for each other.
HOLDING = """
WITH RECURSIVE ahead (pid) AS (
    SELECT unnest(pg_blocking_pids(%s)) UNION SELECT unnest(pg_blocking_pids(pid)) FROM ahead
)
SELECT pid, application_name, usename, coalesce(host(client_addr), 'the server itself'), state,
    extract(epoch FROM now() - xact_start)::bigint
FROM ahead JOIN pg_stat_activity USING (pid) WHERE cardinality(pg_blocking_pids(pid)) = 0 ORDER BY xact_start
"""


@contextmanager
def limited(
    connection: psycopg.Connection[Any], connect: Callable[[], psycopg.Connection[Any]], *, commits: bool
) -> Iterator[None]:
    """Limit the waits of the transaction that begins here.

    Args:
        connection: without a transaction.
        connect: opens another connection to the same server, which finds the holder of a lock.
        commits: whether it is the driver's transaction.
    Raises:
        LockNotAvailable: with the holder of the lock, if it could be found.
    """
    limits = LIMITS | (OF_A_COMMIT if commits else {})
    row = connection.execute(LIMITING, [list(limits), list(limits.values())]).fetchone()
    assert row is not None
    found: list[str] = []
    looking = threading.Timer(LOOK_S, _find_holder, (connect, row[0], found))
    looking.daemon = True
    looking.start()
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        who = found[0] if found else "pg_locks and pg_stat_activity of the server say who holds it"
        raise psycopg.errors.LockNotAvailable(f"{one_line(error)}; {who}") from None
    finally:
        looking.cancel()


def _find_holder(connect: Callable[[], psycopg.Connection[Any]], waiting_pid: int, found: list[str]) -> None:
    """Append the sessions that block a process of the server to `found`, if this role may see them."""
    try:
        with connect() as connection:
            row = connection.execute(HOLDING, [waiting_pid]).fetchone()
    except psycopg.Error:  # no connection is left, say: then it is not known
        return
    if row is None:
        return
    pid, application, user, address, state, age_s = row
    found.append(
        f"the lock is held by process {pid} of the server ({application or 'unnamed'} of {user} at {address}, "
        f"{state or 'state unknown'}, its transaction began {age_s if age_s is not None else '?'} s ago): if no client "
        f"needs that session, SELECT pg_terminate_backend({pid}) ends it"
    )
