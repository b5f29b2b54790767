"""Programs that start several queries start one after the other (`examples/starting.py` says why)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.starting import start_all
from tests.spark.jobs import ROOT, environment
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


# Python as Spark starts it: the first process of a source takes longer than the ten seconds that it has.
SLOW_PYTHON = """#!/bin/sh
case "$*" in *python_streaming_source_runner*) if mkdir "{folder}/began"; then sleep 12; fi ;; esac
exec "{python}" "$@"
"""
PROGRAM = """
import sys
from examples.starting import start_all
from pyspark_odradek import session

stream = session("starting", master="local[2]").readStream.format("odradek").options(
    **{"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}
).load()
queries = start_all(*[stream.writeStream.format("noop").queryName(name).start for name in "ab"])
print([query.isActive for query in queries], flush=True)
"""


@pytest.mark.slow
def test_a_query_whose_python_process_was_slow_is_started_again(odradek: str, topic: str, tmp_path: Path) -> None:
    create_topic(odradek, topic)
    python = tmp_path / "python"
    python.write_text(SLOW_PYTHON.format(folder=tmp_path, python=sys.executable))
    python.chmod(0o755)
    settings = environment(tmp_path) | {"PYSPARK_DRIVER_PYTHON": str(python)}
    command = [sys.executable, "-c", PROGRAM, odradek, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, env=settings)
    assert (tmp_path / "began").exists() and "failed to connect back" in done.stderr, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1:] == ["[True, True]"], done.stdout + done.stderr[-2000:]
