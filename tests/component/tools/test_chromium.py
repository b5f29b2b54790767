"""A test process that is killed leaves neither driver nor browser behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clients.chromium import MISSING
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.skipif(sys.platform != "linux", reason="Linux signals a process when its parent ends"),
]
HOLDER = """
from tests.support.clients.chromium import WIDE, chromium
with chromium(WIDE) as driver:
    print(driver.service.process.pid, flush=True)
    input()
"""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _runs(pid: int) -> bool:
    """Whether it has not ended; a zombie has."""
    return _stat(pid)[:1] not in ([], ["Z"])


def _children(pid: int) -> list[int]:
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    return [each for each in pids if _stat(each)[1:2] == [str(pid)]]


def test_a_killed_test_leaves_no_driver_and_no_browser() -> None:
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        driver = int(holder.stdout.readline())
        family = [driver, *_children(driver)]
        assert len(family) > 1
        holder.kill()
    try:
        eventually(lambda: not any(map(_runs, family)), lambda: f"{family} ended: {list(map(_runs, family))}")
    finally:
        for pid in filter(_runs, family):
            os.kill(pid, signal.SIGKILL)
