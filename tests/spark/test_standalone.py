"""Source and exactly-once sink on a standalone cluster: master, two workers and their executors are
processes of their own.

Staged files are on a folder that driver and executors share, as they do on a cluster with shared storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.jobs import Job, Standalone
from tests.spark.test_exact_sink import copied
from tests.support.clients import create_topic, produce_all

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
