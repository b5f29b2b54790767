"""Fetches Kafka's jars with Maven and reads the message definitions in them."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

KAFKA_VERSION = "4.4.0"
ARTIFACTS = (
    "kafka-clients",
    "kafka-metadata",
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-share-coordinator",
    "kafka-raft",
    "kafka-storage",
)
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kafka-jars"


def fetch(version: str) -> list[Path]:
    """The jars of one release, copied from Maven's repository where they are not here yet."""
    mvn = shutil.which("mvn")
    jars = []
    for artifact in ARTIFACTS:
        jar = CACHE / f"{artifact}-{version}.jar"
        jars.append(jar)
        if jar.exists():
            continue
        if mvn is None:
            raise SystemExit("Maven is missing: install it (Debian: apt-get install maven) and try again")
        command = [mvn, "-q", "-B", "dependency:copy", f"-Dartifact=org.apache.kafka:{artifact}:{version}"]
        subprocess.run([*command, f"-DoutputDirectory={CACHE}"], check=True)
    return jars


def read_definitions(jars: list[Path]) -> list[tuple[str, dict[str, Any]]]:
    """(artifact, definition) of every message of these jars, by name."""
    found = []
    for jar, artifact in zip(jars, ARTIFACTS, strict=True):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    text = archive.read(name).decode()
                    lines = [line for line in text.splitlines() if not line.lstrip().startswith("//")]
                    found.append((artifact, json.loads("\n".join(lines))))
    return sorted(found, key=lambda pair: str(pair[1]["name"]))
