"""Leaves out of a run that fails what its failure does not need: kinds of faults first, then single faults.

Single faults are left out in halves, quarters and so on, down to one by one (delta debugging): a run without some is
another run from there on, and counts only where it fails in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.sim.runs import Report

# Runs that are tried before one gives up: some minutes of a cluster.
TRIES = 200

Run = Callable[[frozenset[str]], Report]


@dataclass
class Shrunk:
    """The smallest failing run that was found.

    Attributes:
        report: of that run; `report.without` is what was left out, `report.happened` what it still needs.
        tries: how many runs it took.
        given_up: whether there was more to try.
    """

    report: Report
    tries: int = 0
    given_up: bool = False


def signature(report: Report) -> str:
    """The identity of a failure: its first problem, without the numbers and names of this run."""
    return re.sub(r"\d+|node-\w+", "#", report.problems[0].split("\n")[0])[:80] if report.problems else ""


def shrink(report: Report, run: Run, *, tries: int = TRIES) -> Shrunk:
    """Leave out more and more of what happened in a failing run.

    Args:
        run: runs its seed again without some faults.
        tries: how many runs at most.
    """
    assert report.failed
    wanted = signature(report)
    shrunk = Shrunk(report)

    def fails_without(more: list[str]) -> bool:
        if shrunk.tries >= tries:
            shrunk.given_up = True
            return False
        shrunk.tries += 1
        fewer = run(shrunk.report.without | frozenset(more))
        if signature(fewer) != wanted:
            return False
        shrunk.report = fewer
        return True

    for kind in report.kinds:
        fails_without([kind])
    size = max(1, len(shrunk.report.happened) // 2)
    while shrunk.report.happened and not shrunk.given_up:
        at = before = 0
        while at < len(shrunk.report.happened):
            # After a success other faults are at this position, as the list is that of another run.
            if fails_without(shrunk.report.happened[at : at + size]):
                before += 1
            else:
                at += size
        if size == 1 and not before:
            break
        size = size if before and size == 1 else max(1, size // 2)
    return shrunk
