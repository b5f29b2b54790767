"""Run seeds of the simulated world.

python -m tests.sim --seeds 200          seeds 1 to 200
python -m tests.sim --seed 17            one seed, with its timeline
python -m tests.sim --seed 17 --shrink   leave out fault after fault while it still fails
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.sim.one_node import Report, run_seed


def main() -> int:
    """Parse the command line; returns 1 where a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Run seeds of the simulated world.")
    parser.add_argument("--seeds", type=int, default=20, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one alone and print its timeline")
    parser.add_argument("--shrink", action="store_true", help="with --seed: leave out what the failure does not need")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return shrink(arguments.seed) if arguments.shrink else replay(arguments.seed)
    return sweep(range(arguments.first, arguments.first + arguments.seeds))


def sweep(seeds: range) -> int:
    """Run many seeds; one line for each that fails, and what was done in all."""
    began = time.perf_counter()
    reports = []
    for seed in seeds:
        report = run_seed(seed)
        reports.append(report)
        if report.failed:
            print(failure(report), flush=True)
    real_s = time.perf_counter() - began
    simulated_s = sum(report.simulated_s for report in reports)
    faults: dict[str, int] = {}
    for report in reports:
        for kind, count in report.faults.items():
            faults[kind] = faults.get(kind, 0) + count
    failed = [report.seed for report in reports if report.failed]
    print(
        f"{len(reports)} seeds, {len(failed)} failed; {simulated_s:.0f} simulated s in {real_s:.0f} s "
        f"({simulated_s / real_s:.0f} x real time); {sum(report.operations for report in reports)} operations; "
        f"faults: {', '.join(f'{count} {kind}' for kind, count in sorted(faults.items()))}"
    )
    return 1 if failed else 0


def replay(seed: int) -> int:
    """Run one seed and print what happens."""
    report = run_seed(seed, on_event=print)
    print(report.swarm)
    print(f"trace {report.trace:08x}, {report.simulated_s:.1f} simulated s, {report.operations} operations")
    print(failure(report) if report.failed else "good")
    return 1 if report.failed else 0


def shrink(seed: int) -> int:
    """Leave out one kind of fault after the other for as long as the run still fails."""
    report = run_seed(seed)
    if not report.failed:
        print(f"seed {seed} does not fail")
        return 0
    without: frozenset[str] = frozenset()
    for kind in report.kinds:
        fewer = run_seed(seed, without=without | {kind})
        if fewer.failed:
            without, report = without | {kind}, fewer
    run_seed(seed, without=without, on_event=print)
    print(f"fails without {', '.join(sorted(without)) or 'anything left out'}")
    print(failure(report))
    return 1


def failure(report: Report) -> str:
    """What went wrong in a run, and the line that shows it again."""
    problems = "\n".join(f"    {problem}" for problem in report.problems[:12])
    return f"seed {report.seed} failed:\n{problems}\n  to see it: make sim SEED={report.seed}"


if __name__ == "__main__":
    sys.exit(main())
