"""`make chaos`: every scenario, some rounds each, and a line for each; NAME… plays only those."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.chaos.scenarios import SCENARIOS, Scenario, play, world_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--rounds", type=int, default=5, help="how often each does its worst (default 5)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of what is drawn; the time by default")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in SCENARIOS]
    if unknown:
        parser.error(f"there is no scenario {', '.join(unknown)}")
    failed = [name for name in options.names or SCENARIOS if not run(SCENARIOS[name], options.seed, options.rounds)]
    print(f"{len(failed)} failed: {', '.join(failed)}" if failed else "nothing lost, nothing twice, all in order")
    return 1 if failed else 0


def run(scenario: Scenario, seed: int, rounds: int) -> bool:
    """Whether it holds, or could not be played here."""
    print(f"{scenario.name}: {(scenario.act.__doc__ or '').strip()} (seed {seed})", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="odradek-chaos-"))
    try:
        with world_of(scenario, directory, seed, lambda text: print(f"    {text}", flush=True)) as world:
            found = play([scenario.act], world, rounds=rounds)
    except pytest.skip.Exception as why:
        print(f"  left out: {why}", flush=True)
        return True
    except AssertionError as error:
        print(f"  FAILED: {error}; the nodes' files and logs are in {directory}", flush=True)
        return False
    print(
        f"  {found.acknowledged:,} acknowledged, longest wait {found.longest_gap_s:.1f} s, "
        f"whole {found.whole_after_s:.1f} s after the last fault",
        flush=True,
    )
    for problem in found.problems:
        print(f"  FAILED: {problem}; see {directory}", flush=True)
    return not found.problems


if __name__ == "__main__":
    sys.exit(main())
