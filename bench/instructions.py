"""Machine instructions that a broker executes for one request, counted by Valgrind: the same on a busy machine.

Only instructions of the process are counted, not those of the kernel for it (of a Produce of 1 KiB the smaller part).
A request is sent when the one before it is answered. What the broker does by the clock meanwhile is measured without
requests, and taken off.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.nodes.node import Node

IDLE_S = 2.0
# What the broker does by the clock falls into some counts more than into others.
COUNTS = 5
COUNTED = 160
# The caches of the interpreter and of the broker are filled by then.
WARM_UP = 60


def can_count() -> bool:
    """Whether Valgrind is installed."""
    return shutil.which("valgrind") is not None


# Quotas are filled, and time is paid for, once a millisecond: as many requests are to share that as without Valgrind.
SLOWER = 50
_SLOWED = """
import runpy, time
from odradek.common import real_io
from odradek.server.network import request_quotas
request_quotas.LEAST_PAID_NS *= {times}
real_io.RealClock.monotonic_ms = lambda self: time.monotonic_ns() // (1_000_000 * {times})
runpy.run_module("{name}", run_name="__main__", alter_sys=True)
"""


class CountedNode(Node):
    """A node under Valgrind's callgrind, SLOWER times slower while its instructions are counted."""

    start_timeout_s = 600.0

    def environment(self) -> dict[str, str]:
        """With the same hashes of names in each process: with others, dicts are laid out otherwise, at 2 to 4 %."""
        return super().environment() | {"PYTHONHASHSEED": "0"}

    def command(self) -> list[str]:
        python, _, name, *options = super().command()
        target = f"--callgrind-out-file={self.directory}/counted"
        counting = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", target]
        return [*counting, python, "-c", _SLOWED.format(name=name, times=SLOWER), *options]

    def per_request(self, work: Callable[[], object]) -> float:
        """Instructions of one call of `work`, which sends a request and waits for its answer."""
        for _ in range(WARM_UP):
            work()
        counts = []
        for _ in range(COUNTS):
            idle, idle_s = self._count(lambda: time.sleep(IDLE_S))
            used, used_s = self._count(lambda: [work() for _ in range(COUNTED)])
            counts.append((used - idle * used_s / idle_s) / COUNTED)
        return statistics.median(counts)

    def _count(self, work: Callable[[], object]) -> tuple[int, float]:
        """Instructions and seconds of some work."""
        self._tell("--instr=on")
        self._tell("--zero")
        begun = time.monotonic()
        work()
        took_s = time.monotonic() - begun
        self._tell("--dump")
        self._tell("--instr=off")
        newest = max(Path(self.directory).glob("counted*"), key=lambda path: path.stat().st_mtime_ns)
        total = re.search(r"^totals: (\d+)$", newest.read_text(), re.MULTILINE)
        assert total is not None, newest
        return int(total[1]), took_s

    def _tell(self, what: str) -> None:
        subprocess.run(["callgrind_control", what, str(self.pid)], check=True, capture_output=True, timeout=120)
