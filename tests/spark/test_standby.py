"""The example of a standby group: two queries, the command that switches between them, and kill -9 of the writer."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from confluent_kafka import Producer

from examples.standby import __main__ as example
from examples.standby import pipeline
from examples.standby.generator import MOVEMENTS, movements
from tests.spark.jobs import ROOT, environment
from tests.support.clients.cli import odradek as command
from tests.support.clients.confluent import produce_all
from tests.support.nodes.node import Node
from tests.support.waiting import eventually

GROUPS = ("a", "b")
NO_MOVEMENTS = [
    b'{"number": 1, "account": "generated-0000"}',
    b'{"number": 1, "cents": 5}',
    b'{"account": "generated-0000", "cents": 5}',
    b"no JSON",
]


def test_a_movement_that_lacks_a_field_changes_no_balance() -> None:
    rows = pd.DataFrame(
        {
            "number": [3.0, math.nan, 5.0, 6.0],
            "cents": [100.0, 7.0, math.nan, -30.0],
            "offset": [0, 1, 2, 3],
            "complete": [True, False, False, True],
            "origin": [f"movements 0 {offset}" for offset in range(4)],
        }
    )
    booked, entry, balance_cents = pipeline.book(rows.sort_values("offset", ascending=False), 4, 1000)
    assert (entry, balance_cents) == (6, 1070)
    reported = [[None if pd.isna(each) else each for each in row] for row in booked.to_numpy(object)]
    names = ["number", "cents", "entry", "balance_cents", "origin"]
    wanted: list[list[object]] = [
        [3, 100, 5, 1100, ""],
        [None, 7, None, None, "movements 0 1"],
        [5, None, None, None, "movements 0 2"],
        [6, -30, 6, 1070, ""],
    ]
    assert [dict(zip(booked.columns, row, strict=True)) for row in reported] == [
        dict(zip(names, row, strict=True)) | {"offset": offset, "complete": offset in (0, 3)}
        for offset, row in enumerate(wanted)
    ]


def send_until(bootstrap: str, ended: threading.Event) -> None:
    """Movements at a steady pace."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for movement in movements(1, 5, 100_000):
        producer.produce(MOVEMENTS, movement.to_json(), movement.account)
        if ended.wait(0.02):
            break
    assert producer.flush(30) == 0


def failure(queries: dict[str, Any]) -> str | None:
    """The error of a query that ended; None if all run."""
    return next((str(query.exception()) for query in queries.values() if not query.isActive), None)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node whose topics have the example's names."""
    with Node(tmp_path_factory.mktemp("standby")) as running:
        yield running.bootstrap


@pytest.mark.slow
@pytest.mark.timeout(900)  # seconds where the machine is idle
def test_the_output_is_moved_there_and_back(spark: Any, node: str, tmp_path: Path) -> None:
    """Records arrive meanwhile; the fenced query becomes the standby without a restart."""
    example.create_topics(node)
    produce_all(node, MOVEMENTS, [(b"generated-0000", value) for value in NO_MOVEMENTS])
    ended = threading.Event()
    sending = threading.Thread(target=send_until, args=(node, ended))
    queries: dict[str, Any] = {}

    def comes(more_than: int) -> None:
        """Wait for that much output, as long as both queries live."""
        eventually(lambda: failure(queries) is not None or example.check(node).booked > more_than)
        assert failure(queries) is None

    try:
        sending.start()
        for group in GROUPS:
            queries[group] = pipeline.start(spark, node, group, tmp_path / group, standby=group == "b")
            comes(more_than=0)
        for from_group, to_group in (GROUPS, GROUPS[::-1]):
            done = command(
                node, "groups", "switch", from_group, to_group, "--within", 5, "--timeout", 300, "--json"
            ).json
            assert done["switched"] and done["took_over_s"] is not None
            before = example.check(node).booked
            comes(more_than=before)
        ended.set()
        sending.join()
        comes(more_than=example.check(node).movements - 1)
    finally:
        ended.set()
        for query in queries.values():
            query.stop()
    found = example.check(node)
    assert (found.booked, found.lost, found.twice, found.wrong) == (found.movements, 0, 0, 0), str(found)
    assert found.dead == len(NO_MOVEMENTS)


class Running:
    """A query in a process group of its own."""

    def __init__(self, bootstrap: str, group: str, folder: Path) -> None:
        words = ["--bootstrap", bootstrap, "query", "--group", group, "--dir", str(folder)]
        words += ["--standby"] if group == "b" else []
        self.log = folder / f"{time.monotonic_ns()}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "examples.standby", *words],
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=ROOT,
                env=environment(folder),
            )

    def kill(self) -> None:
        """kill -9 of the driver, its JVM and its workers."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_writing_query_is_killed_again_and_again(spark: Any, tmp_path: Path) -> None:
    """Each time the other one takes over, and the killed one comes back as its standby."""
    folders = {group: tmp_path / group for group in GROUPS}
    for folder in folders.values():
        folder.mkdir()
    with Node(tmp_path / "node") as running:
        node = running.bootstrap
        example.create_topics(node)
        queries = {group: Running(node, group, folders[group]) for group in GROUPS}
        ended = threading.Event()
        sending = threading.Thread(target=send_until, args=(node, ended))
        sending.start()
        try:
            eventually(lambda: example.check(node).booked > 0)
            for number in range(4):
                writes, waits = GROUPS[number % 2], GROUPS[1 - number % 2]
                time.sleep(number * 0.37)
                queries[writes].kill()
                command(node, "groups", "switch", writes, waits, "--timeout", 200)
                before = example.check(node).booked
                eventually(lambda before=before: example.check(node).booked > before)
                queries[writes] = Running(node, writes, folders[writes])
            ended.set()
            sending.join()
            eventually(lambda: example.check(node).lost == 0)
            found = example.check(node)
            assert (found.booked, found.twice, found.wrong) == (found.movements, 0, 0), str(found)
        finally:
            ended.set()
            for query in queries.values():
                query.kill()
