"""`make fuzz`: all targets in turns, under our engine and under Atheris; failing inputs go into the corpus."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence

from tests.fuzz.engine import Coverage, Finding, Target, executions, keep, run_one, shrink, signature
from tests.fuzz.targets import TARGETS
from tests.fuzz.under_atheris import is_installed, run_turn

TURN_S = 20.0
# Half of every turn is Atheris's, where it is installed; starting it takes some seconds.
ENGINES = ("both", "own", "atheris")
MAX_KEPT_BYTES = 600


def main(arguments: Sequence[str] | None = None) -> int:  # noqa: C901 - a case for each option
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first turn; a new one each run without it")
    parser.add_argument("--target", action="append", choices=[target.name for target in TARGETS])
    parser.add_argument("--keep", action="store_true", help="write small inputs that reach new lines into the corpus")
    parser.add_argument("--engine", choices=ENGINES, default="both")
    options = parser.parse_args(arguments)
    if options.engine != "own" and not is_installed():
        print("Atheris is not installed here (it has wheels for Linux on x86-64): our own engine runs alone")
        if options.engine == "atheris":
            return 2
        options.engine = "own"
    chosen = [target for target in TARGETS if options.target is None or target.name in options.target]
    seed = int(time.time()) if options.seed is None else options.seed
    turn_s = min(TURN_S, options.minutes * 60 / len(chosen))
    until = time.monotonic() + options.minutes * 60
    totals = dict.fromkeys((target.name for target in chosen), 0)
    coverage = {target.name: Coverage() for target in chosen}
    failures = Failures()
    print(f"seed {seed}", flush=True)
    while time.monotonic() < until - 0.05:
        for target in chosen:
            left = min(turn_s, until - time.monotonic())
            if left <= 0:
                break
            if options.engine != "own":
                left = left if options.engine == "atheris" else left / 2
                totals[target.name] += under_atheris(target, max(1, round(left)), seed, failures)
                if options.engine == "atheris":
                    continue
            for new in executions(target, seed, left, coverage=coverage[target.name], on_finding=failures.found):
                totals[target.name] += 1
                if options.keep and new is not None and len(new) <= MAX_KEPT_BYTES:
                    keep(target.name, new, "line")
            lines = len(coverage[target.name].lines)
            print(f"{target.name:16} {totals[target.name]:9,} executions, {lines:5,} lines", flush=True)
            failures.settle(target)
        seed += 1
    print(f"\n{sum(totals.values()):,} executions, {len(failures.lines)} different failures")
    for line in failures.lines:
        print(line)
    return 1 if failures.lines else 0


def under_atheris(target: Target, seconds: int, seed: int, failures: Failures) -> int:
    """Run Atheris once; run a failing input again here, to shorten and keep it. Returns the number of inputs."""
    turn = run_turn(target.name, seconds, seed)
    print(f"{target.name:16} {turn.executions:9,} executions under Atheris", flush=True)
    if turn.failing is not None:
        try:
            run_one(target, turn.failing)
        except Finding as finding:
            failures.found(finding)
            failures.settle(target)
        else:
            # It took too long, or too much memory, in that process alone.
            path = keep(target.name, turn.failing, "failed")
            failures.lines.append(f"{target.name}/{path.name}: {turn.output[-400:]}")
    return turn.executions


class Failures:
    """Collects each bug once, and writes the shortest input that shows it into the corpus."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._seen: set[tuple[str, str]] = set()
        self._new: list[Finding] = []

    def found(self, finding: Finding) -> None:
        key = (finding.target, signature(finding))
        if key not in self._seen:
            self._seen.add(key)
            self._new.append(finding)

    def settle(self, target: Target) -> None:
        """Shorten, keep and print what a turn has found."""
        for finding in self._new:
            path = keep(target.name, shrink(target, finding), "failed")
            traceback.print_exception(finding.__cause__, limit=-6)
            self.lines.append(
                f"{target.name}/{path.name}: {type(finding.__cause__).__name__}: {finding.__cause__}"[:400]
            )
            print(self.lines[-1], flush=True)
        self._new.clear()


if __name__ == "__main__":
    sys.exit(main())
