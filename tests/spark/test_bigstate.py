"""The example of a query with much state, with fewer keys: killed, and replaced by its standby or started again."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.jobs import ROOT, environment


def run(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "examples.bigstate", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, cwd=ROOT, env=environment(folder))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)  # half a minute where the machine is idle
def test_the_standby_of_a_killed_query_goes_on_with_its_state(spark: Any, tmp_path: Path) -> None:
    said = run(tmp_path, "--keys", "3000", "--settle", "1", "--standby")
    assert re.search(r"the standby took over: first live output after \d+\.\d\d s", said)
    assert re.search(r"payments, 0 lost, 0 twice: the state is equal", said)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_query_is_started_again_with_its_state(spark: Any, tmp_path: Path) -> None:
    said = run(tmp_path, "--keys", "20000", "--settle", "3")
    assert re.search(r"it was started again: first live output after \d+\.\d\d s", said)
    assert re.search(r"payments, 0 lost, 0 twice: the state is equal", said)
