"""The committed declarations are those that Kafka's own jars give."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.generate_messages.jars import ARTIFACTS, CACHE, KAFKA_VERSION

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.java
def test_the_declarations_are_as_generated() -> None:
    there = all((CACHE / f"{artifact}-{KAFKA_VERSION}.jar").exists() for artifact in ARTIFACTS)
    if not there and not shutil.which("mvn"):
        pytest.skip("Kafka's jars are not here and Maven, which would fetch them, is missing")
    command = [sys.executable, "-m", "tools.generate_messages", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr + "\nrun `make generate`"
