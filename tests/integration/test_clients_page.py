"""docs/clients.md: the programs of Python's clients and of kcat run as they are written."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.support.nodes.node import Node
from tests.support.snippets import HELLO, snippets


@pytest.mark.parametrize("number", range(3), ids=["confluent-kafka", "aiokafka", "kafka-python"])
def test_python_clients(node: Node, number: int) -> None:
    programs = snippets("clients.md", "python", node.bootstrap)
    assert len(programs) == 3
    done = subprocess.run([sys.executable, "-c", programs[number]], capture_output=True, text=True, timeout=240)
    assert sorted(done.stdout.splitlines()) == HELLO, done.stderr[-3000:]


def test_kcat(node: Node) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("no kcat on this machine")
    (commands,) = snippets("clients.md", "sh", node.bootstrap)
    done = subprocess.run(["sh", "-c", commands], capture_output=True, text=True, timeout=240)
    assert sorted(done.stdout.splitlines()) == HELLO, done.stderr[-3000:]
