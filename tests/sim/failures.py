"""The text about a run that failed: the seed, the world, the commit, and the command that repeats the run."""

from __future__ import annotations

import functools
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.sim.runs import Report, run_seed
from tests.sim.trace import parted_s
from tests.sim.worlds import MORE_WORLDS, WORLDS

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = 12


@functools.cache
def commit() -> str:
    """The commit that is checked out, with "-dirty" where files differ from it; says so where there is no commit."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "no commit: git does not answer"
    return f"commit {done.stdout.strip()}" if done.returncode == 0 else "no commit: not a checkout of git"


def command(report: Report) -> str:
    """The line that runs it again, or where the world is that no name on the command line means."""
    if report.kind is not None and report.kind is not (WORLDS | MORE_WORLDS).get(report.world):
        return f"run_seed({report.seed}, kind={report.kind.__qualname__}) of {report.kind.__module__}"
    without = f" WITHOUT={shlex.quote(','.join(sorted(report.without)))}" if report.without else ""
    return f"make sim WORLD={report.world} SEED={report.seed}{without}"


def failure(report: Report) -> str:
    """The problems of a run, and the command that repeats it."""
    problems = "\n".join(f"    {problem}" for problem in report.problems[:PROBLEMS])
    if len(report.problems) > PROBLEMS:
        problems += f"\n    … and {len(report.problems) - PROBLEMS} more"
    return (
        f"seed {report.seed} of the world {report.world} failed ({commit()}):\n{problems}\n"
        f"  faults: {report.swarm}\n  to see it: {command(report)}"
    )


def again(report: Report) -> str:
    """Whether the same seed, run once more in this process, is the same run.

    Where it is not, something that is no part of the seed took part in the run, and the failure may not be seen again.
    """
    assert report.kind is not None, "a report of a run"
    other = run_seed(report.seed, kind=report.kind, without=report.without)
    if other.trace == report.trace:
        return f"run again at once: the same (trace {report.trace})"
    after_s = parted_s(report.marks, other.marks)
    how = "failed, too" if other.failed else "good"
    return (
        f"run again at once: ANOTHER RUN, {how}; they part after {after_s} simulated s ({report.trace}, {other.trace})"
    )


def failures(reports: Iterable[Report]) -> str:
    """The same of all that failed; empty where none did."""
    return "\n".join(f"{failure(report)}\n  {again(report)}" for report in reports if report.failed)
