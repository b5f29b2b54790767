"""Apache Iceberg's own REST catalog, the server that its project tests clients with: one Java process over SQLite."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

import pytest

from tests.support.nodes.apache_kafka import CACHE, KafkaUnavailableError, find_java
from tests.support.nodes.node import free_port

VERSION = "1.9.2"
HOME = CACHE / f"iceberg-rest-{VERSION}"
JAR = HOME / f"iceberg-open-api-{VERSION}.jar"
ARTIFACT = f"org.apache.iceberg:iceberg-open-api:{VERSION}"
START_TIMEOUT_S = 120.0


def require_rest_catalog() -> None:
    """Skip the test at hand, with the reason, where the server is not available; its first download has 190 MB."""
    try:
        find_java()
    except KafkaUnavailableError as error:
        pytest.skip(f"needs Iceberg's REST catalog: {error}")
    if JAR.exists():
        return
    if shutil.which("mvn") is None:
        pytest.skip("needs Iceberg's REST catalog: mvn (Maven) is not on PATH")
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not JAR.exists():
            _fetch()


def _fetch() -> None:
    # `get` without dependencies is enough: the jar contains them.
    got = subprocess.run(
        ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={ARTIFACT}", "-Dtransitive=false"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    copied = subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={HOME}/fetched"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if got.returncode or copied.returncode:
        lines = [line for line in (got.stdout + copied.stdout).splitlines() if "ERROR" in line] or ["no reason given"]
        pytest.skip(f"needs Iceberg's REST catalog, which Maven could not fetch: {lines[0][:200]}")
    (HOME / "fetched" / JAR.name).rename(JAR)


class RestCatalog:
    """A running catalog; its data stay in the folder, and its port is the same, over kills and starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.properties = {"type": "rest", "uri": f"http://127.0.0.1:{self._port}"}

    def __enter__(self) -> RestCatalog:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = {
            "CATALOG_REST_PORT": str(self._port),
            "CATALOG_URI": f"jdbc:sqlite:{self._folder}/catalog.db",
            "CATALOG_WAREHOUSE": f"file://{self._folder}",
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        }
        said = self._folder / "rest-catalog.txt"
        with said.open("ab") as output:
            self._process = subprocess.Popen(
                [str(find_java()), "-XX:TieredStopAtLevel=1", "-jar", str(JAR)],
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"Iceberg's REST catalog did not start: {said.read_text()[-2000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.properties['uri']}/v1/config", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False
