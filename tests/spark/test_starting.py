"""Programs that start several queries let the first one begin alone (`examples/starting.py` says why)."""

from __future__ import annotations

from typing import Any

from examples.starting import start_all
from tests.spark.queries import load_stream
from tests.support.clients.confluent import create_topic


def test_the_second_query_starts_when_the_first_has_made_its_source(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    stream = load_stream(spark, odradek, subscribe=topic)
    seen: list[list[str]] = []
    made: list[Any] = []

    def begin() -> Any:
        seen.append([query.status["message"] for query in made])
        made.append(stream.writeStream.format("noop").start())
        return made[-1]

    try:
        assert start_all(begin, begin) == made
        (first,) = seen[1]
        assert not first.startswith("Initializing"), first
    finally:
        for query in made:
            query.stop()
