"""Examples of several sites end their nodes, however they end themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import PATIENCE_S, eventually


def test_nodes_end_with_an_example_that_is_terminated(tmp_path: Path) -> None:
    """A stop by another program, as of a supervisor or `timeout`, is SIGTERM."""
    command = [sys.executable, "-m", "examples.tickets", "--folder", str(tmp_path)]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL) as example:
        eventually(lambda: list(tmp_path.rglob("*.log")), "nodes have logs")
        example.terminate()
        assert example.wait(PATIENCE_S) == 128 + signal.SIGTERM
    eventually(lambda: not is_group_alive(example.pid), "no node is left")


def is_group_alive(process_group: int) -> bool:
    try:
        os.killpg(process_group, 0)
    except ProcessLookupError:
        return False
    return True
