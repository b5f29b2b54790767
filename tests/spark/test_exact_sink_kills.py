"""The exactly-once sinks in drivers of their own: kill -9 of drivers and brokers, and two drivers at once.

Executors are killed on a cluster, in test_standalone.py.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.jobs import Job
from tests.spark.queries import numbered
from tests.spark.stores import Copies, DeltaStore, TaskWritersCopy, TopicCopy, ids
from tests.spark.test_exact_sink import STEPS
from tests.support.clients.confluent import create_topic
from tests.support.nodes.node import Node

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
TABLES = ["delta", "iceberg", "postgres"]


@pytest.fixture
def job(odradek: str, topic: str, tmp_path: Path, copies: list[Copies], spark: Any) -> Iterator[Any]:
    """Starts drivers; the fixture `spark` skips the test if there is no Java."""
    create_topic(odradek, topic, 2)
    started: list[Job] = []

    def start(*arguments: str) -> Job:
        started.append(Job(odradek, topic, tmp_path / "job", *arguments, into=copies))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.mark.parametrize(
    ("copies", "step"),
    [("topic", step) for step in STEPS[1:]]
    + [("tasks", step) for step in (*STEPS[1:], "end_tasks", "end_task")]
    + [("delta", "_append"), ("iceberg", "_add"), ("postgres", "_clear_up")],
    indirect=["copies"],
)
def test_the_driver_is_killed_in_a_step(
    job: Any, odradek: str, topic: str, tmp_path: Path, copies: list[Copies], step: str
) -> None:
    """Two steps of each table's commit; the one of PostgreSQL is inside its transaction."""
    numbered(odradek, topic, range(500))
    for when in ("before", "after"):
        dying = job("--die", f"{when} {step}")
        assert dying.wait() == -signal.SIGKILL, dying.text()[-3000:]
    assert (tmp_path / "job" / "plan").read_text() == ""
    last = job()
    assert last.wait() == 0, last.text()[-3000:]
    assert ids(copies[0]) == list(range(500))


@pytest.mark.parametrize("copies", ["topic", "tasks", *TABLES], indirect=True)
def test_two_drivers_on_one_checkpoint(
    job: Any, odradek: str, topic: str, tmp_path: Path, copies: list[Copies]
) -> None:
    """Both drivers work; the one that is second with a batch ends with an error of Spark or of the sink."""
    (store,) = copies
    numbered(odradek, topic, range(1000))
    first = job("--forever")
    deadline = time.monotonic() + 500  # a driver takes a minute or two where the machine is busy
    await_file(tmp_path / "job" / f"checkpoint-{store.name}" / "commits" / "0", first)
    second = job("--forever")
    count = 1000
    while first.process.poll() is None and second.process.poll() is None and time.monotonic() < deadline + 500:
        numbered(odradek, topic, range(count, count + 20))
        count += 20
        time.sleep(0.5)
    ended = [each for each in (first, second) if each.process.poll() is not None]
    assert len(ended) == 1, "one of two drivers ends, and the other goes on"
    text = ended[0].text()
    reported = ("two drivers run on one checkpoint", "CONCURRENT_STREAM_LOG_UPDATE", "another driver")
    assert any(words in text for words in reported), text[-3000:]
    while len(ids(store)) < count and time.monotonic() < deadline + 600:
        time.sleep(0.5)
    assert ids(store) == list(range(count))


@pytest.mark.parametrize("copies", ["topic", "tasks", *TABLES], indirect=True)
def test_an_older_driver_comes_late(job: Any, odradek: str, topic: str, tmp_path: Path, copies: list[Copies]) -> None:
    """It was paused in its commit, as its machine might be, while another one continued the checkpoint."""
    (store,) = copies
    numbered(odradek, topic, range(1000))
    older = job("--hold", "produce" if store.name == "topic" else "commit_once")
    await_file(tmp_path / "job" / "held", older)
    newer = job()
    assert newer.wait() == 0, newer.text()[-3000:]
    assert ids(store) == list(range(1000))
    (tmp_path / "job" / "go").touch()
    assert older.wait() == 1, older.text()[-3000:]
    reported = "two drivers run on one checkpoint" if store.name == "topic" else "another driver runs on the same"
    said = [line for line in older.text().splitlines() if line.startswith("odradek: ")]
    assert len(said) == 1 and reported in said[0], older.text()[-3000:]
    assert ids(store) == list(range(1000))


def await_file(path: Path, job: Job) -> None:
    deadline = time.monotonic() + 500
    while not path.exists():
        assert job.process.poll() is None and time.monotonic() < deadline, job.text()[-3000:]
        time.sleep(0.1)


@pytest.mark.parametrize("into", [TopicCopy, TaskWritersCopy])
def test_the_broker_is_killed_while_batches_are_committed(
    topic: str, tmp_path: Path, spark: Any, into: type[TopicCopy]
) -> None:
    """Batches go into a topic, by driver or tasks, and into a table, which only reads from the broker."""
    with Node(tmp_path / "node") as node:
        create_topic(node.bootstrap, topic, 2)
        create_topic(node.bootstrap, f"{topic}-copy", 2)
        numbered(node.bootstrap, topic, range(5000))
        table = DeltaStore(tmp_path)
        copies: list[Copies] = [into(node.bootstrap, f"{topic}-copy", tmp_path / "job"), table]
        copying = Job(node.bootstrap, topic, tmp_path / "job", into=copies)
        kills = 0
        try:
            while kills < 4 or (copying.process.poll() is None and not (tmp_path / "table").exists()):
                time.sleep(4 + kills)  # longer each time: where the machine is busy, little is done between two kills
                node.kill()
                node.start()
                kills += 1
            for _ in range(3):
                time.sleep(3)
                node.kill()
                node.start()
            assert copying.wait() == 0, copying.text()[-3000:]
        finally:
            copying.end()
        assert [ids(store) for store in copies] == [list(range(5000))] * 2
