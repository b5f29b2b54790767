"""Source and exactly-once sink on a standalone cluster: master, two workers and their executors are
processes of their own.

Staged files are on a folder that driver and executors share, as they do on a cluster with shared storage.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.jobs import Job, Standalone, environment
from tests.spark.test_exact_sink import copied
from tests.support.clients import create_topic, produce_all, read_all

PADDING = b" " * 2000  # so that the records of a task are staged in a file, and not sent in its message


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with Standalone(folder) as running:
        yield running


def filled(bootstrap: str, topic: str, count: int) -> None:
    for name in (topic, f"{topic}-copy"):
        create_topic(bootstrap, name, 2)
    produce_all(bootstrap, topic, [(b"%d" % n, b"%d" % n + PADDING) for n in range(count)])


def check(bootstrap: str, topic: str, folder: Path, count: int, job: Job) -> None:
    assert job.wait() == 0, job.text()[-3000:]
    assert (folder / "killed").exists(), "no executor was killed"
    assert copied(bootstrap, topic) == list(range(count))
    staging = folder / "checkpoint" / "odradek-staging"
    assert staging.is_dir(), "nothing was staged"
    # What a task had staged that died is removed by a later batch's commit, of the last batch by the next run.
    assert len([path for path in staging.rglob("*") if path.is_file()]) <= 2


@pytest.mark.timeout(600)
def test_a_copy_while_an_executor_is_killed(
    cluster: Standalone, odradek: str, topic: str, tmp_path: Path, spark: Any
) -> None:
    """`spark` is asked for since it skips where there is no Java."""
    filled(odradek, topic, 400)
    folder = tmp_path / "job"
    job = Job(odradek, topic, folder, "--master", cluster.master, "--kill-executor-at", "300")
    try:
        check(odradek, topic, folder, 400, job)
    finally:
        job.end()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_driver_dies_and_another_goes_on(
    cluster: Standalone, odradek: str, topic: str, tmp_path: Path, spark: Any
) -> None:
    """A driver is killed after its transaction and one before it; the third writes the rest, every record once."""
    filled(odradek, topic, 2000)
    folder = tmp_path / "job"
    for when in ("after end", "before end"):
        dying = Job(odradek, topic, folder, "--master", cluster.master, "--die", when)
        assert dying.wait() < 0, dying.text()[-3000:]
    job = Job(odradek, topic, folder, "--master", cluster.master, "--kill-executor-at", "1500")
    try:
        check(odradek, topic, folder, 2000, job)
    finally:
        job.end()


@pytest.mark.slow
@pytest.mark.timeout(900)
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
        done = subprocess.run(command, cwd=where, env=settings, capture_output=True, text=True, timeout=800)
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
    told = pipeline("run", "--master", cluster.master, "--json", where=spec.parent)
    rows = {flow["flow"]: flow["rows"] for flow in json.loads(told)["flows"]}
    assert (rows["visits"], rows["tell_of_long_visits"], rows["pages"]) == (3, 2, None)
    assert [message.key() for message in read_all(odradek, f"{topic}-long")] == [b"/b"]
    assert "executor" in (cluster.folder / "master.Master-0.log").read_text()
