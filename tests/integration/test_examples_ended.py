"""Examples of several sites end their nodes, however they end themselves."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support.waiting import PATIENCE_S, eventually


def test_nodes_end_with_an_example_that_is_terminated(tmp_path: Path) -> None:
    """A stop by another program, as of a supervisor or `timeout`, is SIGTERM."""
    command = [sys.executable, "-m", "examples.tickets", "--folder", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as example:
        eventually(lambda: list((tmp_path / "west").rglob("__cluster_metadata-0")), "the last site has begun")
        assert nodes_in(tmp_path)
        example.terminate()
        assert example.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert not nodes_in(tmp_path)


def nodes_in(folder: Path) -> list[str]:
    """The command lines of running brokers whose files are there."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found.append(each.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if "odradek broker" in line and str(folder) in line]
