"""Count the seeds that each planted bug survives, and keep the table of docs/simulation-bugs.md.

The table has the bugs of `IN_TABLE`; those of other worlds are measured and kept beside this file alone.

python -m tests.sim.bugs                              all bugs, and write the table
python -m tests.sim.bugs --survivors --seeds 2000     go on with those that no seed has caught yet
python -m tests.sim.bugs --world quorum --seeds 100   those of one world; the table keeps what it says of the others
python -m tests.sim.bugs --only fsync --seeds 50      those whose names contain a text; nothing is written
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import FrameType

from tests.sim.cluster import ManyNodes
from tests.sim.compacted import CompactedNode
from tests.sim.copying import CopyingCluster
from tests.sim.damaged import DamagedCluster
from tests.sim.directories import TwoDirectories
from tests.sim.hosts import HostsCluster
from tests.sim.keyed import KeyedCluster
from tests.sim.lasting import LastingCluster
from tests.sim.linked import LinkedClusters
from tests.sim.one_node import OneNode
from tests.sim.permissions import GuardedCluster
from tests.sim.planted import ONE_NODE, Bug
from tests.sim.planted_cluster import MANY_NODES, MOVING
from tests.sim.planted_compacted import COMPACTED_BUGS
from tests.sim.planted_copying import COPYING
from tests.sim.planted_damaged import DAMAGED
from tests.sim.planted_directories import DIRECTORY_BUGS
from tests.sim.planted_hosts import HOST_BUGS
from tests.sim.planted_lasting import LASTING_BUGS
from tests.sim.planted_linked import LINK_BUGS
from tests.sim.planted_permissions import PERMISSION_BUGS
from tests.sim.planted_producers import PRODUCER_BUGS
from tests.sim.planted_quotas import QUOTA_BUGS
from tests.sim.planted_transactions import TRANSACTIONS
from tests.sim.producers import ProducersCluster
from tests.sim.quorum_box import QuorumRun
from tests.sim.quorum_bugs import BY_SEED, BY_TEST
from tests.sim.reassignments import MovingCluster
from tests.sim.runs import Scenario, run_seed
from tests.sim.throttled import ThrottledCluster
from tests.sim.transactional import TransactionalNode
from tests.support.planted.compaction_bugs import AT_DEATH, IN_PEACE, IN_TRANSACTIONS

SEEDS = 1000
# A run that takes this many processor seconds hangs; a seed takes some seconds, on a busy machine, too.
HANG_S = 120
# A bug that lives longer is too dear to be caught by seeds in every test run: it has a scenario.
EASY_SEEDS = 40
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "simulation-bugs.md"
KNOWN = Path(__file__).with_name("planted_seeds.json")
# Errors of the interpreter where a planted text is itself broken: that such a bug is seen proves nothing.
BROKEN = ("NameError", "TypeError", "AttributeError", "UnboundLocalError", "SyntaxError")
# Each bug is hunted in its own world. Those of the first two must all be measured.
WORLD_OF: tuple[tuple[type[Scenario], tuple[Bug, ...]], ...] = (
    (OneNode, ONE_NODE),
    (ManyNodes, MANY_NODES),
    (MovingCluster, MOVING),
    (CopyingCluster, COPYING),
    (DamagedCluster, DAMAGED),
    (HostsCluster, HOST_BUGS),
    (TwoDirectories, DIRECTORY_BUGS),
    (TransactionalNode, TRANSACTIONS),
    (ProducersCluster, PRODUCER_BUGS),
    (LastingCluster, LASTING_BUGS),
    (GuardedCluster, PERMISSION_BUGS),
    (ThrottledCluster, QUOTA_BUGS),
    (LinkedClusters, LINK_BUGS),
    (QuorumRun, (*(bug for bug, _ in BY_SEED), *BY_TEST)),
    (KeyedCluster, IN_TRANSACTIONS),
    (CompactedNode, (*COMPACTED_BUGS, *(bug for bug in (*IN_PEACE, *AT_DEATH) if bug not in IN_TRANSACTIONS))),
)
# The worlds whose bugs are in the table; other worlds have tables or tests of their own.
IN_TABLE: tuple[type[Scenario], ...] = (OneNode, ManyNodes, CopyingCluster)
ALL_BUGS = tuple(bug for _, bugs in WORLD_OF for bug in bugs)
BEGIN, END = "<!-- planted bugs: begin -->", "<!-- planted bugs: end -->"


@dataclass(frozen=True, slots=True)
class Measure:
    """The seeds and seconds until one bug was found; `seeds` is None if no seed that was tried found it."""

    bug: Bug
    seeds: int | None
    tried: int
    real_s: float
    problem: str


class HangError(Exception):
    """A run does not end in real time."""


class BrokenBugError(Exception):
    """A planted text makes Python itself fail, and not the product do something wrong."""


class _TimeIsUpError(KeyboardInterrupt):
    """The one kind of error that neither a task nor the product keeps for itself."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise HangError in the main thread after so many processor seconds, even if the block catches it."""
    rang = False

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal rang
        rang = True
        raise _TimeIsUpError

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except BaseException:
        if not rang:
            raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if rang:
        raise HangError(f"a seed did not end within {seconds} s of processor time")


def world_of(bug: Bug) -> type[Scenario]:
    """The world that a bug is hunted in."""
    return next(kind for kind, bugs in WORLD_OF if bug in bugs)


def problem_of(seed: int, kind: type[Scenario] = OneNode) -> str:
    """The first thing that a seed of a world finds wrong; empty where it finds nothing.

    Raises:
        HangError: it does not end, which no checker has found wrong.
        BrokenBugError: among what it finds is an error of Python's.
    """
    with at_most(HANG_S):
        report = run_seed(seed, kind=kind)
    broken = [problem for problem in report.problems if problem.startswith(BROKEN)]
    if broken:
        raise BrokenBugError(f"seed {seed} of the world {kind.world_name}: {broken[0]}")
    return report.problems[0].splitlines()[0] if report.problems else ""


def measure(bug: Bug, tried: int, seeds: int) -> Measure:
    """Run seed after seed with the bug until one fails; the first `tried` are known to be green.

    One that hangs, or in which the planted text itself fails, is the last: the bug is not caught.
    """
    began = time.perf_counter()
    with bug.planted():
        for seed in range(tried + 1, seeds + 1):
            try:
                problem = problem_of(seed, world_of(bug))
            except (HangError, BrokenBugError) as error:
                return Measure(bug, None, seed - 1, time.perf_counter() - began, f"not caught: {error}")
            if problem:
                return Measure(bug, seed, seed, time.perf_counter() - began, problem)
    return Measure(bug, None, max(tried, seeds), time.perf_counter() - began, "")


def silence() -> None:
    """The broker's own lines would drown the table."""
    logging.disable(logging.CRITICAL)


def table(measures: list[Measure]) -> str:
    """The table of docs/simulation-bugs.md: the bugs of those worlds that are in it."""
    lines = ["| Planted bug | World | What it does | Seeds until caught |", "| --- | --- | --- | ---: |"]
    for each in measures:
        if world_of(each.bug) not in IN_TABLE:
            continue
        seeds = f"{each.seeds}" if each.seeds is not None else f"more than {each.tried}"
        if each.seeds is None or each.seeds > EASY_SEEDS:
            # The tests of planted bugs see to it that there is one.
            seeds += "; a test catches it at once"
        lines.append(f"| {each.bug.name} | {world_of(each.bug).world_name} | {each.bug.meaning} | {seeds} |")
    return "\n".join(lines)


def known_seeds() -> dict[str, tuple[int | None, int]]:
    """The last measurement: the first seed that catches a bug, None where none did; and how many were tried."""
    return {name: (each["caught"], each["tried"]) for name, each in json.loads(KNOWN.read_text()).items()}


def known_problems() -> dict[str, str]:
    """The problem that this seed found, or why the hunt ended without a catch; empty where none did, or unknown."""
    return {name: each["problem"] for name, each in json.loads(KNOWN.read_text()).items()}


def write_results(measures: dict[str, Measure]) -> None:
    """Keep what is known now, in the order of the switchboard."""
    ordered = [measures[bug.name] for bug in ALL_BUGS if bug.name in measures]
    known = {each.bug.name: {"caught": each.seeds, "tried": each.tried, "problem": each.problem} for each in ordered}
    KNOWN.write_text(json.dumps(known, indent=2) + "\n")
    write_table(table(ordered))


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
    parser.add_argument("--survivors", action="store_true", help="go on with those that no seed has caught yet")
    parser.add_argument("--world", default="", help="bugs of this world alone; the others stay as they were measured")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="bugs at a time")
    arguments = parser.parse_args()
    measures: dict[str, Measure] = {}
    tried: dict[str, int] = {}
    wanted = [bug for bug in ALL_BUGS if arguments.world in ("", world_of(bug).world_name)]
    known, problems = known_seeds(), known_problems()
    for bug in ALL_BUGS:
        if bug.name in known and (arguments.survivors or bug not in wanted):
            caught, tries = known[bug.name]
            measures[bug.name] = Measure(bug, caught, tries, 0.0, problems[bug.name])
            if arguments.survivors:
                tried[bug.name] = tries
    bugs = [
        bug for bug in wanted if arguments.only in bug.name and getattr(measures.get(bug.name), "seeds", None) is None
    ]
    # A run that was given up leaves its tasks behind, which disturb what comes after it in the same process.
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn"), initializer=silence, max_tasks_per_child=1) as pool:
        for each in as_completed(pool.submit(measure, bug, tried.get(bug.name, 0), arguments.seeds) for bug in bugs):
            measured = each.result()
            measures[measured.bug.name] = measured
            found = f"seed {measured.seeds}" if measured.seeds is not None else f"survived {measured.tried}"
            print(f"{measured.bug.name}: {found} in {measured.real_s:.0f} s; {measured.problem[:150]}", flush=True)
            if not arguments.only:
                write_results(measures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
