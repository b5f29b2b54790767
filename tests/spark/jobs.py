"""Drivers in processes of their own, and a standalone cluster of Spark for them: master and workers, as on machines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pyspark

from tests.spark import jvm
from tests.spark.stores import Copies
from tests.support.nodes.apache_kafka import find_java
from tests.support.nodes.node import free_port

ROOT = Path(__file__).resolve().parents[2]
# Spark gives a Python process ten seconds to start, without a setting: a busy machine takes longer now and then.
SLOW_START = "Python worker failed to connect back"
STARTS = 3


def environment(folder: Path) -> dict[str, str]:
    """The environment of a process of Spark that runs our sources."""
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": ":".join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(spark_home(folder)),
    }


def spark_home(folder: Path) -> Path:
    """A home of Spark in a folder of ours, since executors write into it."""
    home = folder / "spark-home"
    if not home.exists():
        home.mkdir(parents=True)
        for entry in Path(pyspark.__file__).parent.iterdir():
            (home / entry.name).symlink_to(entry)
    return home


class Job:
    """A driver in a process group of its own: tests.spark.copy_job."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, *arguments: str, into: Sequence[Copies] = ()) -> None:
        folder.mkdir(exist_ok=True)
        for store in into:
            arguments += ("--into", json.dumps(store.options))
        self._folder = folder
        self._command = [sys.executable, "-m", "tests.spark.copy_job", bootstrap, topic, str(folder), *arguments]
        self._settings = environment(folder) | {"JAVA_TOOL_OPTIONS": jvm.options()}
        if "--master" not in arguments:
            # One JVM, which writes nothing there, and whose class archive is of Spark's own.
            del self._settings["SPARK_HOME"]
        self._start()

    def _start(self) -> None:
        self.log = self._folder / f"job-{time.monotonic_ns()}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                self._command, stdout=output, stderr=output, start_new_session=True, cwd=ROOT, env=self._settings
            )

    def wait(self) -> int:
        """The exit code; a driver that Spark ended for a Python process that started slowly is started again."""
        for _ in range(STARTS - 1):
            code = self.process.wait(timeout=800)
            if code >= 0 and SLOW_START in self.text():
                self._start()
            else:
                return code
        return self.process.wait(timeout=800)

    def end(self) -> None:
        """kill -9 of the driver and its JVM."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def text(self) -> str:
        return self.log.read_text(errors="replace")


class Standalone:
    """A master and workers of one core each; an executor is a process that a worker starts.

    Workers have an address each, 127.0.0.1 and up: Spark runs no task twice on one host.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.workers = workers
        self.port = free_port()
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def __enter__(self) -> Standalone:
        self._start("master.Master", "--port", str(self.port))
        for number in range(self.workers):
            of_worker = ["--cores", "1", "--memory", "600m", "--work-dir", str(self.folder / f"worker-{number}")]
            self._start("worker.Worker", *of_worker, self.master, host=f"127.0.0.{number + 1}")
        log = self.folder / "master.Master-0.log"
        deadline = time.monotonic() + 300
        while log.read_text(errors="replace").count("Registering worker") < self.workers:
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self.processes):  # workers before the master, whose executors end with them
            process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str, *arguments: str, host: str = "127.0.0.1") -> None:
        home = spark_home(self.folder)
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        command += ["--host", host, "--webui-port", "0", *arguments]
        settings = {
            **environment(self.folder),
            "JAVA_HOME": find_java().parents[1].as_posix(),
            "SPARK_DAEMON_MEMORY": "200m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
            "SPARK_LOCAL_IP": host,
        }
        log = self.folder / f"{name}-{len(self.processes)}.log"
        with log.open("wb") as output:
            self.processes.append(
                subprocess.Popen(command, stdout=output, stderr=output, cwd=self.folder, env=settings)
            )
