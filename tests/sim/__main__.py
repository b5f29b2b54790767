"""Run seeds of the simulated worlds.

python -m tests.sim --seeds 200                          seeds 1 to 200 of each world
python -m tests.sim --world cluster --seed 17            one seed of one world, with its timeline
python -m tests.sim --world cluster --seed 17 --shrink   leave out fault after fault while it still fails
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.sim.failures import failure
from tests.sim.one_node import OneNode
from tests.sim.runs import Report, Scenario, run_seed
from tests.sim.shrink import TRIES, shrink
from tests.sim.worlds import MORE_WORLDS, WORLDS


def main() -> int:
    """Parse the command line; returns 1 where a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Run seeds of the simulated worlds.")
    worlds = WORLDS | MORE_WORLDS
    parser.add_argument("--world", choices=worlds, help="one of them; with --seed it is node where not given")
    parser.add_argument("--seeds", type=int, default=20, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one alone and print its timeline")
    parser.add_argument("--without", default="", help='with --seed: faults to leave out, as "clock,crash:3"')
    parser.add_argument("--shrink", action="store_true", help="with --seed: leave out what the failure does not need")
    parser.add_argument("--tries", type=int, default=TRIES, help="with --shrink: runs at most")
    arguments = parser.parse_args()
    if arguments.seed is None and (arguments.shrink or arguments.without):
        parser.exit(2, "error: --shrink and --without (SHRINK, WITHOUT) need a seed: --seed 17 (SEED=17)\n")
    if arguments.seed is not None:
        kind = worlds[arguments.world or OneNode.world_name]
        without = frozenset(fault for fault in arguments.without.split(",") if fault)
        if arguments.shrink:
            return show_shrunk(kind, arguments.seed, without, arguments.tries)
        return 1 if replay(kind, arguments.seed, without).failed else 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    failed = [sweep(worlds[name], seeds) for name in ([arguments.world] if arguments.world else WORLDS)]
    return 1 if any(failed) else 0


def sweep(kind: type[Scenario], seeds: range) -> int:
    """Run many seeds of one world; report each that fails, and a summary; return the number that failed."""
    # The log lines of brokers that are killed would drown the findings; `replay` shows them.
    logging.disable(logging.CRITICAL)
    began = time.perf_counter()
    reports = []
    for seed in seeds:
        report = run_seed(seed, kind=kind)
        reports.append(report)
        if report.failed:
            print(failure(report), flush=True)
    logging.disable(logging.NOTSET)
    real_s = time.perf_counter() - began
    simulated_s = sum(report.simulated_s for report in reports)
    faults: dict[str, int] = {}
    for report in reports:
        for fault, count in report.faults.items():
            faults[fault] = faults.get(fault, 0) + count
    failed = [report.seed for report in reports if report.failed]
    counted = ", ".join(f"{count} {fault}" for fault, count in sorted(faults.items()))
    print(
        f"{kind.world_name}: {len(reports)} seeds, {len(failed)} failed; {simulated_s:.0f} simulated s in "
        f"{real_s:.0f} s ({simulated_s / real_s:.0f} x real time); "
        f"{sum(report.operations for report in reports)} operations; faults: {counted}",
        flush=True,
    )
    return len(failed)


def replay(kind: type[Scenario], seed: int, without: frozenset[str]) -> Report:
    """Run one seed and print what happens."""
    report = run_seed(seed, kind=kind, without=without, on_event=print)
    print(report.swarm)
    print(f"trace {report.trace}, {report.simulated_s:.1f} simulated s, {report.operations} operations")
    print(failure(report) if report.failed else "good")
    return report


def show_shrunk(kind: type[Scenario], seed: int, without: frozenset[str], tries: int) -> int:
    """Leave out faults for as long as the run still fails in the same way, and print what is left of it."""
    logging.disable(logging.CRITICAL)
    report = run_seed(seed, kind=kind, without=without)
    if not report.failed:
        print(f"seed {seed} does not fail")
        return 0
    shrunk = shrink(report, lambda fewer: run_seed(seed, kind=kind, without=fewer), tries=tries)
    logging.disable(logging.NOTSET)
    left = replay(kind, seed, shrunk.report.without)
    print(f"in {shrunk.tries} runs; it still needs {', '.join(left.happened) or 'no fault that can be left out'}")
    if shrunk.given_up:
        print(f"not all was tried; go on with --without and --tries above {tries}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
