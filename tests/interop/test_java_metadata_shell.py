"""Apache Kafka's kafka-metadata-shell over our metadata log, of a node that was stopped."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import pytest

from odradek.testing.processes import ProcessCluster
from tests.support.clients.cli import odradek
from tests.support.nodes.apache_kafka import CACHE, TOOL_JVM_OPTIONS, VERSION, find_java, require_kafka

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

TRIES = 10
SHELL = "org.apache.kafka.shell.MetadataShell"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek.test</groupId><artifactId>shell</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-shell</artifactId>
      <version>{VERSION}</version></dependency>
  </dependencies>
</project>
"""


@functools.cache
def shell_libraries() -> Path:
    """The folder of the shell's jars, which are none of the broker's; skips where they cannot be fetched."""
    require_kafka()
    folder = CACHE / f"kafka-shell-{VERSION}"
    if (folder / "lib").exists():
        return folder / "lib"
    if shutil.which("mvn") is None:
        pytest.skip("mvn (Maven) is not on PATH")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(POM)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'fetched'}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        pytest.skip(f"Maven could not fetch kafka-shell {VERSION}")
    (folder / "fetched").rename(folder / "lib")
    return folder / "lib"


def shown(log: Path, *words: str, wanted: str) -> None:
    """Wait until one command of the shell prints this word: it may begin before it has read the whole log."""
    for _ in range(TRIES):
        if wanted in (printed := run(log, *words)).replace(",", " ").split():
            return
    raise AssertionError(f"{words} never printed {wanted}: {printed}")


def run(log: Path, *words: str) -> str:
    """The output of one command of the shell."""
    options = ["-cp", f"{shell_libraries()}/*", SHELL, "--snapshot", str(log), *words]
    command = [str(find_java()), *TOOL_JVM_OPTIONS, *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def test_kafka_metadata_shell_reads_our_log(tmp_path: Path) -> None:
    shell_libraries()
    cluster = ProcessCluster(tmp_path, brokers=1)
    with cluster:
        odradek(cluster.bootstrap_servers, "topics", "create", "--topic", "shown", "--partitions", "3")
    (log,) = (cluster[1].plan.data_dir / "__cluster_metadata-0").glob("*.log")
    shown(log, "ls", "/image/topics/byName", wanted="shown")
    for number in ("0", "1", "2"):
        shown(log, "ls", "/image/topics/byName/shown", wanted=number)
    shown(log, "cat", "/image/topics/byName/shown/0", wanted="PartitionRegistration(replicas=[1]")
    shown(log, "ls", "/image/cluster/brokers", wanted="1")
    shown(log, "tree", "/image/features", wanted="metadataVersion:")
