"""The exactly-once sink in drivers of their own: kill -9 of drivers, executors and brokers, and two drivers at once."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.spark.jobs import Job
from tests.spark.queries import numbered
from tests.spark.test_exact_sink import STEPS, copied
from tests.support.clients import create_topic
from tests.support.node import Node

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def job(odradek: str, topic: str, tmp_path: Path, spark: Any) -> Any:
    """Starts drivers; `spark` is asked for since it skips where there is no Java."""
    create_topic(odradek, topic, 2)
    create_topic(odradek, f"{topic}-copy", 2)
    started: list[Job] = []

    def start(*arguments: str) -> Job:
        started.append(Job(odradek, topic, tmp_path / "job", *arguments))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.mark.parametrize("step", STEPS[1:])
def test_the_driver_is_killed_in_a_step(job: Any, odradek: str, topic: str, step: str) -> None:
    numbered(odradek, topic, range(500))
    for when in ("before", "after"):
        dying = job("--die", f"{when} {step}")
        assert dying.wait() == -signal.SIGKILL, dying.text()[-3000:]
    last = job()
    assert last.wait() == 0, last.text()[-3000:]
    assert copied(odradek, topic) == list(range(500))


def test_an_executor_is_killed(job: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    numbered(odradek, topic, range(1000))
    copying = job("--master", "local-cluster[2,1,1024]", "--kill-executor-at", "500")
    assert copying.wait() == 0, copying.text()[-3000:]
    assert (tmp_path / "job" / "killed").exists()
    assert copied(odradek, topic) == list(range(1000))


def test_tasks_run_twice(job: Any, odradek: str, topic: str) -> None:
    numbered(odradek, topic, range(600))
    copying = job("--master", "local-cluster[2,2,1024]", "--speculate")
    assert copying.wait() == 0, copying.text()[-3000:]
    assert copied(odradek, topic) == list(range(600))


def test_two_drivers_on_one_checkpoint(job: Any, odradek: str, topic: str) -> None:
    numbered(odradek, topic, range(1000))
    first = job("--forever")
    deadline = time.monotonic() + 500  # a driver takes a minute or two where the machine is busy
    while not copied(odradek, topic) and time.monotonic() < deadline:
        time.sleep(0.5)
    second = job("--forever")
    count = 1000
    while first.process.poll() is None and second.process.poll() is None and time.monotonic() < deadline + 500:
        numbered(odradek, topic, range(count, count + 100))
        count += 100
        time.sleep(0.5)
    ended = [each for each in (first, second) if each.process.poll() is not None]
    assert len(ended) == 1, "one of two drivers ends, and the other goes on"
    text = ended[0].text()
    told = ("two drivers run on one checkpoint", "CONCURRENT_STREAM_LOG_UPDATE", "another driver")
    assert any(words in text for words in told), text[-3000:]
    while len(copied(odradek, topic)) < count and time.monotonic() < deadline + 600:
        time.sleep(0.5)
    assert copied(odradek, topic) == list(range(count))


def test_the_broker_is_killed_while_batches_are_committed(topic: str, tmp_path: Path, spark: Any) -> None:
    with Node(tmp_path / "node") as node:
        create_topic(node.bootstrap, topic, 2)
        create_topic(node.bootstrap, f"{topic}-copy", 2)
        numbered(node.bootstrap, topic, range(5000))
        copying = Job(node.bootstrap, topic, tmp_path / "job")
        try:
            for _ in range(4):
                time.sleep(4)
                node.kill()
                node.start()
            assert copying.wait() == 0, copying.text()[-3000:]
        finally:
            copying.end()
        assert copied(node.bootstrap, topic) == list(range(5000))
