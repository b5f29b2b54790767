"""Parts of Apache Kafka that its broker does not need, from Maven Central."""

from __future__ import annotations

from pathlib import Path

from tests.interop.packages import cache_folder, require_command, run_step
from tests.support.nodes.apache_kafka import VERSION

POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek.test</groupId><artifactId>{artifact}</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


def kafka_artifact(artifact: str) -> Path:
    """The folder of the jars of one artifact of Apache Kafka and all that it needs; raises MissingError."""
    mvn = require_command("mvn")
    with cache_folder(f"{artifact}-{VERSION}") as folder:
        if not (folder / "lib" / f"{artifact}-{VERSION}.jar").exists():
            (folder / "pom.xml").write_text(POM.format(artifact=artifact, version=VERSION))
            command = [mvn, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
            run_step(command, folder, folder / "fetched.txt", "mvn")
        return folder / "lib"
