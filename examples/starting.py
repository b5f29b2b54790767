"""Several queries in one program: the first one begins alone.

Spark 4.3 notes what its Python processes are to find in their environment in a map that all queries of a format share,
and changes it without a lock. The first source that a JVM makes adds to it. A task that is sent at that moment, or a
second source that is made at the very same one, may end its query with "Task not serializable"; where two have added
at once, so does all that comes later, until the program ends. From then on the map stays as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

START_S = 120.0
LOOK_S = 0.1


def start_all(*starts: Callable[[], StreamingQuery]) -> list[StreamingQuery]:
    """Start queries, in this order; the second one when the first has made its source, or has ended.

    Raises:
        TimeoutError: the first is still about it after START_S.
    """
    queries: list[StreamingQuery] = []
    for start in starts:
        queries.append(start())
        if len(queries) == 1:
            _wait_for_source(queries[0])
    return queries


def _wait_for_source(query: StreamingQuery) -> None:
    deadline = time.monotonic() + START_S
    while query.isActive and query.status["message"].startswith("Initializing"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the query {query.name} has not started in {START_S:g} s: look at Spark's log")
        time.sleep(LOOK_S)
