"""The core of the connector with each version of Spark that it is for, as users get it.

Versions other than the one of the development environment are installed into `.cache/`, once.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.testing import Cluster
from tests.spark.version_job import LIMIT, RECORDS
from tests.support.nodes.apache_kafka import KafkaUnavailableError, find_java

ROOT = Path(__file__).resolve().parents[2]
OTHERS = ("4.0", "4.1", "4.2")


HIDING = """
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in {} else super().find_spec(name, path, target)

sys.meta_path[:] = [Hiding if each is PathFinder else each for each in sys.meta_path]
"""


def interpreter_with(version: str) -> Path:
    """The Python of an environment with this Spark and this interpreter's packages; skips if it cannot be fetched."""
    home = ROOT / ".cache" / f"spark-{version}"
    home.parent.mkdir(exist_ok=True)
    with (home.parent / f"spark-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = home / "bin" / "python"
        if not (home / "installed").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
            wanted = ROOT / "requirements" / f"spark-{version}.txt"
            command: list[str | Path] = [
                python,
                "-m",
                "pip",
                "install",
                "-q",
                "--no-deps",
                "--require-hashes",
                "-r",
                wanted,
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"Spark {version} cannot be installed: {done.stderr.strip().splitlines()[-1][:200]}")
            (home / "installed").touch()
        (packages,) = home.glob("lib/python*/site-packages")
        (packages / "beside.pth").write_text("".join(f"{each}\n" for each in sys.path if "site-packages" in each))
    return python


def ran(python: str | Path, bootstrap: str, folder: Path, *sinks: str, before: str = "") -> dict[str, Any]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([before, str(ROOT / "src"), str(ROOT)])}
    environment.pop("SPARK_HOME", None)
    done = subprocess.run(
        [python, "-m", "tests.spark.version_job", bootstrap, folder, *sinks],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def require_java() -> None:
    try:
        find_java()
    except KafkaUnavailableError as error:
        pytest.skip(f"needs Java 17 for Spark: {error}")


@pytest.mark.slow
def test_a_plain_query_needs_the_extra_spark_alone(tmp_path: Path) -> None:
    """Driver, planners and workers find none of the packages of other extras."""
    require_java()
    hidden = ("deltalake", "fastavro", "google.protobuf", "grpc", "pandas", "psycopg", "pyiceberg", "yaml")
    (tmp_path / "hiding").mkdir()
    (tmp_path / "hiding" / "sitecustomize.py").write_text(HIDING.format(hidden))
    with Cluster(1) as cluster:
        found = ran(sys.executable, cluster.bootstrap_servers, tmp_path, before=str(tmp_path / "hiding"))
    for name in ("in", "exact", "once"):
        assert found[name] == list(range(2 * RECORDS)), name


@pytest.mark.slow
@pytest.mark.parametrize("version", OTHERS)
def test_the_core_with(version: str, tmp_path: Path) -> None:
    """Reading and both deliveries, as a batch and as a stream with limits, into topics and a table, over two runs."""
    require_java()
    python = interpreter_with(version)
    with Cluster(1) as cluster:
        found = [ran(python, cluster.bootstrap_servers, tmp_path, "delta") for _ in range(2)]
    for run, each in enumerate(found, 1):
        assert each["version"].startswith(f"{version}.")
        everything = list(range(run * 2 * RECORDS))
        for name in ("in", "exact", "once", "table"):
            assert each[name] == everything, (name, run)
        assert max(each["exact_batches"]) <= LIMIT
        assert sum(each["exact_batches"]) == 2 * RECORDS
        assert sum(each["late_batches"]) == (0 if run == 1 else 2 * RECORDS)
