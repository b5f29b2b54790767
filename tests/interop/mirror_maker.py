"""Apache Kafka's MirrorMaker 2 as a process (its own driver, `connect-mirror-maker`), from Maven Central."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.interop.packages import cache_folder
from tests.support.nodes.apache_kafka import VERSION, KafkaUnavailableError, find_java
from tests.support.nodes.server_process import ServerProcess

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek.test</groupId><artifactId>mirror-maker</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-mirror</artifactId>
      <version>{VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId>
      <version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
# Settings for clusters of one broker, with intervals of a second instead of minutes.
ONE_BROKER_EACH: Mapping[str, object] = {
    "replication.factor": 1,
    "offset-syncs.topic.replication.factor": 1,
    "checkpoints.topic.replication.factor": 1,
    "heartbeats.topic.replication.factor": 1,
    "config.storage.replication.factor": 1,
    "offset.storage.replication.factor": 1,
    "status.storage.replication.factor": 1,
    "offset.storage.partitions": 5,
    "refresh.topics.interval.seconds": 1,
    "refresh.groups.interval.seconds": 1,
    "emit.checkpoints.interval.seconds": 1,
    "sync.group.offsets.interval.seconds": 1,
    "sync.topic.acls.enabled": "false",
}


def libraries() -> Path:
    """The folder of the jars, fetched if they are missing; raises KafkaUnavailableError."""
    find_java()
    with cache_folder(f"mirror-maker-{VERSION}") as folder:
        found = folder / "lib"
        if not found.exists():
            if shutil.which("mvn") is None:
                raise KafkaUnavailableError("mvn (Maven) is not on PATH")
            (folder / "pom.xml").write_text(_POM)
            fetched = folder / "fetched"
            command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode:
                raise KafkaUnavailableError(f"Maven could not fetch MirrorMaker {VERSION}: {done.stdout[-200:]}")
            fetched.rename(found)
        return found


class MirrorMaker(ServerProcess):
    """A dedicated MirrorMaker 2.

    Args:
        clusters: the bootstrap servers of each cluster by its alias, which prefixes topics mirrored from it.
        flows: for each pair (source alias, target alias) that is enabled, a pattern of topics. All other pairs are
            disabled, heartbeats too.
        settings: more lines of its configuration.
        heap: of the JVM, as in -Xmx.
    """

    what = "MirrorMaker"
    stop_timeout_s = 30.0

    def __init__(
        self,
        directory: Path,
        clusters: Mapping[str, str],
        flows: Mapping[tuple[str, str], str],
        settings: Mapping[str, object],
        *,
        heap: str = "400m",
    ) -> None:
        super().__init__(directory, "mirror-maker.log", 0)
        self._properties = directory / "mm2.properties"
        self._heap = heap
        lines: dict[str, object] = {"clusters": ", ".join(clusters)}
        for alias, servers in clusters.items():
            lines[f"{alias}.bootstrap.servers"] = servers
        for pair in ((source, target) for source in clusters for target in clusters if source != target):
            flow, topics = "->".join(pair), flows.get(pair)
            lines[f"{flow}.enabled"] = str(topics is not None).lower()
            if topics is None:
                lines[f"{flow}.emit.heartbeats.enabled"] = "false"
            else:
                lines[f"{flow}.topics"] = topics
        directory.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{name} = {value}\n" for name, value in (lines | dict(settings)).items()))

    def command(self) -> list[str]:
        """The command of MirrorMaker, with the garbage collector of Kafka's own start script."""
        options = ["-Xms256m", f"-Xmx{self._heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{libraries()}/*"]
        return [str(find_java()), *options, "org.apache.kafka.connect.mirror.MirrorMaker", str(self._properties)]

    def await_port(self) -> None:
        """It has no port: the records that it mirrors show that it runs."""

    def _killed(self, code: int) -> int:
        return code
