"""Source and exactly-once sinks on a standalone cluster: master, two workers and their executors are
processes of their own.

Staged files are on a folder that driver and executors share, as they do on a cluster with shared storage.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.jobs import Job, Standalone, environment
from tests.spark.stores import Copies, DeltaStore, ids
from tests.support.clients.confluent import create_topic, produce_all, read_committed

PADDING = b" " * 2000  # so that the records of a task are staged in a file, and not sent in its message
OF_FILES = ("delta", "iceberg")  # what tasks stage in vain is not removed by their sinks


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with Standalone(folder) as running:
        yield running


@pytest.fixture
def job(
    cluster: Standalone, odradek: str, topic: str, tmp_path: Path, copies: list[Copies], spark: Any
) -> Iterator[Any]:
    """Starts drivers; `spark` is asked for since it skips where there is no Java."""
    create_topic(odradek, topic, 2)
    started: list[Job] = []

    def start(*arguments: str) -> Job:
        started.append(Job(odradek, topic, tmp_path / "job", "--master", cluster.master, *arguments, into=copies))
        return started[-1]

    yield start
    for each in started:
        each.end()


def filled(bootstrap: str, topic: str, count: int) -> None:
    produce_all(bootstrap, topic, [(b"%d" % n, b"%d" % n + PADDING) for n in range(count)])


def check(store: Copies, count: int, left: int) -> None:
    """Check that every row is there once, and that `left` files of failed tasks are left."""
    assert ids(store) == list(range(count)), store.name
    assert len(store.leftovers()) == (left if store.name in OF_FILES else 0), store.name
    if isinstance(store, DeltaStore):
        vacuumed(store)
        assert ids(store) == list(range(count))


def vacuumed(store: DeltaStore) -> None:
    """Vacuum the table by the documentation, without the default retention of a week."""
    from deltalake import DeltaTable

    DeltaTable(store.path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert store.leftovers() == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("copies", ["topic delta", "tasks"], indirect=True)
def test_a_copy_while_an_executor_is_killed(
    job: Any, odradek: str, topic: str, tmp_path: Path, copies: list[Copies]
) -> None:
    filled(odradek, topic, 400)
    running = job("--kill-executor-at", "300")
    assert running.wait() == 0, running.text()[-3000:]
    for store in copies:
        assert (tmp_path / "job" / f"killed-{store.name}-at").exists(), "no executor was killed"
        check(store, 400, left=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("copies", ["topic", "tasks", "delta", "iceberg", "postgres"], indirect=True)
def test_drivers_and_executors_are_killed(
    job: Any, odradek: str, topic: str, tmp_path: Path, copies: list[Copies]
) -> None:
    """A driver dies before its commit, another after; executors with a part of a task staged, and with all of it."""
    filled(odradek, topic, 1200)
    (store,) = copies
    step = "end" if store.name == "topic" else "commit_once"
    for when in ("before", "after"):
        dying = job("--die", f"{when} {step}")
        assert dying.wait() == -signal.SIGKILL, dying.text()[-3000:]
    last = job("--kill-executor-at", "700", "--kill-executor-after", "1000")
    assert last.wait() == 0, last.text()[-3000:]
    killed = {path.name for path in (tmp_path / "job").glob("killed-*")}
    assert killed == {f"killed-{store.name}-at", f"killed-{store.name}-after"}
    # The four tasks of the first batch have staged three times, and only the second driver's rows are in the table.
    check(store, 1200, left=4 + 4 + 2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("copies", ["topic delta iceberg postgres", "tasks"], indirect=True)
@pytest.mark.parametrize("trouble", ["--fail", "--speculate"])
def test_tasks_run_twice(
    job: Any, odradek: str, topic: str, tmp_path: Path, copies: list[Copies], trouble: str
) -> None:
    """A task that has staged all of its rows fails, or is slow and runs a second time on another host.

    An attempt may stage when its batch is committed and its files are removed; a batch of the next run removes those.
    """
    filled(odradek, topic, 600)
    running = job(trouble)
    assert running.wait() == 0, running.text()[-3000:]
    produce_all(odradek, topic, [(b"600", b"600")])
    after = job()
    assert after.wait() == 0, after.text()[-3000:]
    lines = (tmp_path / "job" / "attempts").read_text().splitlines()
    for store in copies:
        attempts = [line.split() for line in lines if line.split()[0] == store.name]
        again = sum(attempt != "0" for *_, attempt in attempts)
        twice = len(attempts) - len({tuple(task) for *task, _ in attempts})
        assert again >= 3, f"{store.name}: three batches or more, in each a task with a second attempt"
        # In an executor's first batch a slow first attempt may be killed before it has staged.
        assert twice >= (3 if trouble == "--fail" else 1), f"{store.name}: both attempts have staged"
        check(store, 601, left=twice)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="needs the extra `pipelines`")
def test_a_pipeline_runs_on_the_cluster(
    cluster: Standalone, odradek: str, topic: str, tmp_path: Path, spark: Any
) -> None:
    """Its storage is a folder that driver and executors share."""
    create_topic(odradek, topic, 2)
    produce_all(odradek, topic, [(None, b"/a 5"), (None, b"/b 70"), (None, b"junk")])
    settings = {**environment(tmp_path), "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}

    def pipeline(*arguments: str, where: Path) -> str:
        command = [sys.executable, "-m", "odradek", "pipeline", *arguments]
        done = subprocess.run(command, cwd=where, env=settings, capture_output=True, text=True, timeout=1500)
        assert done.returncode == 0, done.stderr
        return done.stdout

    pipeline("init", "shop", "--bootstrap-server", odradek, "--topic", topic, where=tmp_path)
    spec = tmp_path / "shop/spark-pipeline.yml"
    configuration = {
        "spark.executorEnv.PYTHONPATH": settings["PYTHONPATH"],
        "spark.executor.memory": "500m",
        "spark.driver.host": "127.0.0.1",
    }
    lines = "".join(f"  {name}: '{value}'\n" for name, value in configuration.items())
    spec.write_text(f"{spec.read_text()}configuration:\n{lines}")
    reported = pipeline("run", "--master", cluster.master, "--json", where=spec.parent)
    rows = {flow["flow"]: flow["rows_read"] for flow in json.loads(reported)["flows"]}
    assert (rows["visits"], rows["tell_of_long_visits"], rows["pages"]) == (3, 2, None)
    assert [message.key() for message in read_committed(odradek, f"{topic}-long")] == [b"/b"]
    assert "executor" in (cluster.folder / "master.Master-0.log").read_text()
