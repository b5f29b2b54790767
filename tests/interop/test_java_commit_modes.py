"""Kafka's Java consumer commits in every mode, seeks, is surplus and comes back, as a member of either protocol."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop.brokers import start_broker
from tests.support.clients.confluent import create_topic
from tests.support.nodes.apache_kafka import java_command, require_kafka

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "java" / "CommitModes.java"
MODES = [
    "auto",
    "sync",
    "async",
    "at least once",
    "at most once",
    "seek, rewind, skip to now",
    "surplus",
    "comes back",
]


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def test_every_mode(tmp_path: Path, protocol: str) -> None:
    require_kafka()
    with start_broker(tmp_path / "broker") as broker:
        for partitions, topic in enumerate(("one", "two"), 1):
            create_topic(broker.bootstrap, topic, partitions)
        command = java_command(str(PROGRAM), [broker.bootstrap, protocol, "one", "two"])
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.splitlines() == MODES
