"""Count the seeds that each planted bug survives, and keep the table of docs/simulation.md.

python -m tests.sim.bugs                       all bugs, and write the table
python -m tests.sim.bugs --only "fsync" --seeds 50    those whose names contain a text; nothing is written
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import FrameType

from tests.sim.one_node import run_seed
from tests.sim.planted import ONE_NODE, Bug

SEEDS = 1000
# A seed takes about a third of a second: a run that takes this long in real time hangs.
HANG_S = 60
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "simulation.md"
KNOWN = Path(__file__).with_name("planted_seeds.json")
BEGIN, END = "<!-- planted bugs: begin -->", "<!-- planted bugs: end -->"


@dataclass(frozen=True, slots=True)
class Measure:
    """How long one bug lived; `seeds` None where all that were tried are green."""

    bug: Bug
    seeds: int | None
    tried: int
    real_s: float
    problem: str


class HangError(Exception):
    """A run does not end in real time."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise HangError in the main thread after so long."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise HangError(f"a seed did not end within {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def problem_of(seed: int) -> str:
    """The first thing that a seed finds wrong; empty where it finds nothing."""
    try:
        with at_most(HANG_S):
            report = run_seed(seed)
    except HangError as error:
        return str(error)
    return report.problems[0].splitlines()[0] if report.problems else ""


def measure(bug: Bug, seeds: int) -> Measure:
    """Run seed after seed with the bug until one fails."""
    began = time.perf_counter()
    with bug.planted():
        for seed in range(1, seeds + 1):
            problem = problem_of(seed)
            if problem:
                return Measure(bug, seed, seed, time.perf_counter() - began, problem)
    return Measure(bug, None, seeds, time.perf_counter() - began, "")


def silence() -> None:
    """The broker's own lines would drown the table."""
    logging.disable(logging.CRITICAL)


def table(measures: list[Measure]) -> str:
    """The table of docs/simulation.md."""
    lines = ["| Planted bug | What it does | Seeds until caught |", "| --- | --- | ---: |"]
    for each in measures:
        seeds = f"{each.seeds}" if each.seeds is not None else f"more than {each.tried}; a scenario catches it"
        lines.append(f"| {each.bug.name} | {each.bug.meaning} | {seeds} |")
    return "\n".join(lines)


def known_seeds() -> dict[str, int | None]:
    """What was measured last: the first seed that catches a bug, None for one that no seed caught."""
    known: dict[str, int | None] = json.loads(KNOWN.read_text())
    return known


def write_table(text: str) -> None:
    """Replace what stands between the marks in the document."""
    document = DOCUMENT.read_text()
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> int:
    """Parse the command line and measure; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.bugs", description="Measure the planted bugs.")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many to try for each bug")
    parser.add_argument("--only", default="", help="bugs whose names contain this; the document stays as it is")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="bugs at a time")
    arguments = parser.parse_args()
    bugs = [bug for bug in ONE_NODE if arguments.only in bug.name]
    measures = []
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn"), initializer=silence) as pool:
        for measured in pool.map(measure, bugs, itertools.repeat(arguments.seeds)):
            measures.append(measured)
            found = f"seed {measured.seeds}" if measured.seeds is not None else f"survived {measured.tried}"
            print(f"{measured.bug.name}: {found} in {measured.real_s:.0f} s; {measured.problem[:150]}", flush=True)
    if not arguments.only and arguments.seeds >= SEEDS:
        write_table(table(measures))
        KNOWN.write_text(json.dumps({each.bug.name: each.seeds for each in measures}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
