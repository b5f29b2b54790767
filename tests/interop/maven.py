"""Parts of Apache Kafka that its broker does not need, and Debezium, from Maven Central."""

from __future__ import annotations

from pathlib import Path

from tests.interop.packages import cache_folder, require_command, run_step
from tests.support.nodes.apache_kafka import VERSION

DEBEZIUM_VERSION = "3.6.1.Final"
POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek.test</groupId><artifactId>{artifact}</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


def kafka_artifact(artifact: str) -> Path:
    """The folder of the jars of one artifact of Apache Kafka and its dependencies; raises MissingError."""
    return _fetched("org.apache.kafka", artifact, VERSION)


def debezium() -> Path:
    """The folder of the jars of Debezium's PostgreSQL connector and its dependencies; raises MissingError."""
    return _fetched("io.debezium", "debezium-connector-postgres", DEBEZIUM_VERSION)


def _fetched(group: str, artifact: str, version: str) -> Path:
    mvn = require_command("mvn")
    with cache_folder(f"{artifact}-{version}") as folder:
        if not (folder / "lib" / f"{artifact}-{version}.jar").exists():
            (folder / "pom.xml").write_text(POM.format(group=group, artifact=artifact, version=version))
            command = [mvn, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
            run_step(command, folder, folder / "fetched.txt", "mvn")
        return folder / "lib"
