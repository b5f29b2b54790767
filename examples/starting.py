"""Several queries in one program: each begins when the one before it has its source.

Spark 4.3 gives the Python process of a source ten seconds to start, and several that start at once on a busy machine
take longer: the query ends with "Python worker failed to connect back", and is started again.

Spark also notes what its Python processes are to find in their environment in a map that all queries of a format share,
and changes it without a lock. The first source that a JVM makes adds to it. A task that is sent at that moment, or a
second source that is made at the very same one, may end its query with "Task not serializable"; where two have added
at once, so does all that comes later, until the program ends. From then on the map stays as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from examples.troubles import SLOW_WORKER

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

START_S = 120.0
TRIES = 5
LOOK_S = 0.1


def start_all(*starts: Callable[[], StreamingQuery]) -> list[StreamingQuery]:
    """Start queries, in this order; each when the one before has made its source, or has ended.

    Raises:
        TimeoutError: one is still about it after START_S.
    """
    return [_started(start) for start in starts]


def _started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    for tries_left in reversed(range(TRIES)):
        query = start()
        _wait_for_source(query)
        if not tries_left or SLOW_WORKER not in str(query.exception()):
            break
    return query


def _wait_for_source(query: StreamingQuery) -> None:
    deadline = time.monotonic() + START_S
    while query.isActive and query.status["message"].startswith("Initializing"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the query {query.name} has not started in {START_S:g} s: look at Spark's log")
        time.sleep(LOOK_S)
