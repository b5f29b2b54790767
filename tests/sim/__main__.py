"""Run seeds of the simulated worlds.

python -m tests.sim --seeds 200                          seeds 1 to 200 of each world
python -m tests.sim --world cluster --seed 17            one seed of one world, with its timeline
python -m tests.sim --world cluster --seed 17 --shrink   leave out fault after fault while it still fails
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.sim.cluster import ManyNodes
from tests.sim.compacted import CompactedNode
from tests.sim.movers import MovingHouse
from tests.sim.one_node import OneNode, Report, run_seed

KINDS = (OneNode, ManyNodes, MovingHouse, CompactedNode)
WORLDS: dict[str, type[OneNode]] = {world.world_name: world for world in KINDS}


def main() -> int:
    """Parse the command line; returns 1 where a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Run seeds of the simulated worlds.")
    parser.add_argument("--world", choices=WORLDS, help="one of them; with --seed it is node where not given")
    parser.add_argument("--seeds", type=int, default=20, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one alone and print its timeline")
    parser.add_argument("--shrink", action="store_true", help="with --seed: leave out what the failure does not need")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        kind = WORLDS[arguments.world or OneNode.world_name]
        return shrink(kind, arguments.seed) if arguments.shrink else replay(kind, arguments.seed)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    failed = [sweep(WORLDS[name], seeds) for name in ([arguments.world] if arguments.world else WORLDS)]
    return 1 if any(failed) else 0


def sweep(kind: type[OneNode], seeds: range) -> int:
    """Run many seeds of one world; one line for each that fails, and what was done in all; returns how many failed."""
    began = time.perf_counter()
    reports = []
    for seed in seeds:
        report = run_seed(seed, kind=kind)
        reports.append(report)
        if report.failed:
            print(failure(report), flush=True)
    real_s = time.perf_counter() - began
    simulated_s = sum(report.simulated_s for report in reports)
    faults: dict[str, int] = {}
    for report in reports:
        for fault, count in report.faults.items():
            faults[fault] = faults.get(fault, 0) + count
    failed = [report.seed for report in reports if report.failed]
    told = ", ".join(f"{count} {fault}" for fault, count in sorted(faults.items()))
    print(
        f"{kind.world_name}: {len(reports)} seeds, {len(failed)} failed; {simulated_s:.0f} simulated s in "
        f"{real_s:.0f} s ({simulated_s / real_s:.0f} x real time); "
        f"{sum(report.operations for report in reports)} operations; faults: {told}"
    )
    return len(failed)


def replay(kind: type[OneNode], seed: int) -> int:
    """Run one seed and print what happens; returns 1 where it fails."""
    report = run_seed(seed, kind=kind, on_event=print)
    print(report.swarm)
    print(f"trace {report.trace:08x}, {report.simulated_s:.1f} simulated s, {report.operations} operations")
    print(failure(report) if report.failed else "good")
    return 1 if report.failed else 0


def shrink(kind: type[OneNode], seed: int) -> int:
    """Leave out one kind of fault after the other for as long as the run still fails."""
    report = run_seed(seed, kind=kind)
    if not report.failed:
        print(f"seed {seed} does not fail")
        return 0
    without: frozenset[str] = frozenset()
    for fault in report.kinds:
        fewer = run_seed(seed, kind=kind, without=without | {fault})
        if fewer.failed:
            without, report = without | {fault}, fewer
    run_seed(seed, kind=kind, without=without, on_event=print)
    print(f"fails without {', '.join(sorted(without)) or 'anything left out'}")
    print(failure(report))
    return 1


def failure(report: Report) -> str:
    """What went wrong in a run, and the line that shows it again."""
    problems = "\n".join(f"    {problem}" for problem in report.problems[:12])
    return f"seed {report.seed} failed:\n{problems}\n  to see it: make sim WORLD={report.world} SEED={report.seed}"


if __name__ == "__main__":
    sys.exit(main())
