"""Apache Kafka's MirrorMaker 2 as a process that can be measured, from Maven Central."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.interop.packages import cache_folder
from tests.support.nodes.apache_kafka import VERSION, KafkaUnavailableError, find_java
from tests.support.nodes.server_process import ServerProcess

TARGET = "here"
HEAP = "1g"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek.bench</groupId><artifactId>mirror-maker</artifactId><version>1</version><packaging>pom</packaging>
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
# Nothing but records: a link's offsets, settings and ACLs are off as well.
_SETTINGS = {
    "replication.factor": 1,
    "offset-syncs.topic.replication.factor": 1,
    "heartbeats.topic.replication.factor": 1,
    "config.storage.replication.factor": 1,
    "offset.storage.replication.factor": 1,
    "status.storage.replication.factor": 1,
    "offset.storage.partitions": 5,
    "emit.heartbeats.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "sync.topic.configs.enabled": "false",
    "refresh.topics.interval.seconds": 1,
}


def libraries() -> Path:
    """The folder of its jars, fetched where they are missing; raises KafkaUnavailableError."""
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
    """One worker of it that mirrors one topic.

    Args:
        alias: the source's name, before that of the topic at the target. One that is new knows of no mirror before.
        producer: settings of its producer, over Kafka's defaults.
    """

    what = "MirrorMaker"
    stop_timeout_s = 30.0

    def __init__(
        self,
        directory: Path,
        alias: str,
        source: str,
        target: str,
        topic: str,
        *,
        tasks: int,
        producer: dict[str, object],
    ) -> None:
        super().__init__(directory, "mirror-maker.log", 0)
        self._properties = directory / "mm2.properties"
        directory.mkdir(parents=True, exist_ok=True)
        lines = {
            "clusters": f"{alias}, {TARGET}",
            f"{alias}.bootstrap.servers": source,
            f"{TARGET}.bootstrap.servers": target,
            f"{alias}->{TARGET}.enabled": "true",
            f"{alias}->{TARGET}.topics": topic,
            f"{TARGET}->{alias}.enabled": "false",
            f"{TARGET}->{alias}.emit.heartbeats.enabled": "false",
            "tasks.max": tasks,
            **_SETTINGS,
            **{f"{TARGET}.producer.{name}": value for name, value in producer.items()},
        }
        self._properties.write_text("".join(f"{name} = {value}\n" for name, value in lines.items()))

    def command(self) -> list[str]:
        """With the collector of Kafka's own start script."""
        options = ["-Xms256m", f"-Xmx{HEAP}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{libraries()}/*"]
        return [str(find_java()), *options, "org.apache.kafka.connect.mirror.MirrorMaker", str(self._properties)]

    def await_port(self) -> None:
        """It has none: what it mirrors shows that it runs."""

    def _killed(self, code: int) -> int:
        return code
