"""`make fuzz`: all targets in turns, guided by the lines they reach; failing inputs go into the corpus."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence

from tests.fuzz.engine import Coverage, Finding, Target, executions, keep, shrink
from tests.fuzz.targets import TARGETS

TURN_S = 20.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first turn; a new one each run without it")
    parser.add_argument("--target", action="append", choices=[target.name for target in TARGETS])
    parser.add_argument("--keep", action="store_true", help="write small inputs that reach new lines into the corpus")
    options = parser.parse_args(arguments)
    chosen = [target for target in TARGETS if options.target is None or target.name in options.target]
    seed = int(time.time()) if options.seed is None else options.seed
    turn_s = min(TURN_S, options.minutes * 60 / len(chosen))
    until = time.monotonic() + options.minutes * 60
    totals = dict.fromkeys((target.name for target in chosen), 0)
    coverage = {target.name: Coverage() for target in chosen}
    failures: list[str] = []
    print(f"seed {seed}", flush=True)
    while time.monotonic() < until - 0.05:
        for target in chosen:
            left = min(turn_s, until - time.monotonic())
            if left <= 0:
                break
            totals[target.name] += _turn(target, seed, left, coverage[target.name], failures, keep_new=options.keep)
            lines = len(coverage[target.name].lines)
            print(f"{target.name:16} {totals[target.name]:9,} executions, {lines:5,} lines", flush=True)
        seed += 1
    print(f"\n{sum(totals.values()):,} executions, {len(failures)} failing inputs")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


def _turn(target: Target, seed: int, seconds: float, coverage: Coverage, failures: list[str], *, keep_new: bool) -> int:
    """One target for some seconds; goes on with other inputs after a finding, at most three times."""
    count, until = 0, time.monotonic() + seconds
    for attempt in range(3):
        try:
            left = until - time.monotonic()
            for new in executions(target, seed + 1_000_003 * attempt, left, coverage):
                count += 1
                if keep_new and new is not None and len(new) <= 600:
                    keep(target.name, new, "line")
            break
        except Finding as finding:
            small = shrink(target, finding)
            path = keep(target.name, small, "failed")
            traceback.print_exception(finding.__cause__, limit=-8)
            failures.append(f"{target.name}: {path}: {type(finding.__cause__).__name__}: {finding.__cause__}"[:400])
            print(failures[-1], flush=True)
    return count


if __name__ == "__main__":
    sys.exit(main())
