"""A profile of the broker's time in one cell of the table.

    python -m bench.profile "send to read, p50"

The cell's load runs twice against a node of its own: once as it is, for the processor time in user and kernel and the
idle time of the generator and the machine; once under cProfile, for the share of each function. cProfile makes every
call
dearer and so overrates functions that are called often; the kernel's part counts for the call that went there
(sendfile, writev, the loop's own poll).
"""

from __future__ import annotations

import argparse
import os
import pstats
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.__main__ import fill
from bench.brokers import SETTINGS, TICKS_PER_S, Contestant
from bench.cells import CELLS, LIMIT_BYTES, PARTITIONS, Cell
from bench.generator import LoadResult, build, run_load
from tests.support.clients.confluent import create_topic
from tests.support.nodes.node import Node

SHOWN = 25


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds so far: the broker's on a processor, in user and kernel, and its main thread's ready without one; idle
    over all processors of the machine."""

    user_s: float
    kernel_s: float
    waiting_s: float
    idle_s: float
    wall_s: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        machine = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        user, kernel = int(stat[11]) / TICKS_PER_S, int(stat[12]) / TICKS_PER_S
        waiting_s = int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
        return cls(user, kernel, waiting_s, int(machine[4]) / TICKS_PER_S, time.monotonic())


class ProfiledNode(Node):
    """A node under cProfile; its clean stop writes `profile`."""

    @property
    def profile(self) -> Path:
        return self.directory / "profile"

    def command(self) -> list[str]:
        plain = super().command()
        return [plain[0], "-m", "cProfile", "-o", str(self.profile), *plain[1:]]


def load(program: Path, node: Node, cell: Cell, topic: str, seconds: float) -> tuple[LoadResult, Usage, Usage]:
    """Run the cell's load; the broker's usage before and after."""
    if cell.filled_topic is None:
        create_topic(node.bootstrap, topic, PARTITIONS)
    defaults = {"partitions": PARTITIONS, "seconds": seconds, "limit": LIMIT_BYTES}
    before = Usage.of(node.pid)
    options = defaults | dict(cell.options)
    result = run_load(program, cell.mode, node.bootstrap, cell.filled_topic or topic, options)
    return result, before, Usage.of(node.pid)


def print_usage(result: LoadResult, before: Usage, after: Usage) -> None:
    wall = after.wall_s - before.wall_s
    user, kernel = after.user_s - before.user_s, after.kernel_s - before.kernel_s
    idle = (after.idle_s - before.idle_s) / (os.cpu_count() or 1)
    print(f"{result.record_count:,} records in {wall:.1f} s (start of the generator included)")
    print(f"broker: user {user:.2f} s, kernel {kernel:.2f} s, busy {100 * (user + kernel) / wall:.0f} % of the time")
    print(f"broker: {1e6 * (user + kernel) / result.record_count:.2f} us of processor per record")
    print(f"broker: ready without a processor for {after.waiting_s - before.waiting_s:.2f} s")
    print(f"machine: idle {100 * idle / wall:.0f} % of the time")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("cell", help="part of the name of a cell; the first that has it")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    cell = next((each for each in CELLS if options.cell in each.name), None)
    if cell is None:
        names = "\n  ".join(each.name for each in CELLS)
        print(f"no cell has {options.cell!r} in its name; there are\n  {names}", file=sys.stderr)
        return 2
    program = build()
    print(cell.name)
    with tempfile.TemporaryDirectory() as folder:
        with Node(Path(folder) / "plain", dict(SETTINGS)) as node:
            fill(program, Contestant("Odradek", node))
            print_usage(*load(program, node, cell, "profiled", options.seconds))
        with ProfiledNode(Path(folder) / "profiled", dict(SETTINGS)) as profiled:
            if cell.filled_topic is not None:
                fill(program, Contestant("Odradek", profiled))
            load(program, profiled, cell, "profiled", options.seconds)
        stats = pstats.Stats(str(profiled.profile))
        stats.strip_dirs().sort_stats("tottime").print_stats(SHOWN)
    return 0


if __name__ == "__main__":
    sys.exit(main())
