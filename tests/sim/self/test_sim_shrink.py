"""A failing run is made smaller, and its report is enough to repeat it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from tests.sim import failures
from tests.sim.failures import failure
from tests.sim.one_node import OneNode
from tests.sim.planted import ONE_NODE
from tests.sim.runs import Report, run_seed
from tests.sim.shrink import shrink

# Needs one answer that is lost, and nothing else of what its seed has.
BUG = next(bug for bug in ONE_NODE if bug.name == "no sequence check")
# Shows it in a short run; after a change of the product it must be one of the others.
CAUGHT_BY = 15


@pytest.mark.slow  # the tests below shrink what is made up
def test_single_faults_of_a_real_run_are_left_out() -> None:
    with BUG.planted():
        for seed in (CAUGHT_BY, *range(1, 30)):
            report = run_seed(seed, kind=OneNode)
            if report.failed:
                break
        # No kinds, to see single faults go.
        singly = dataclasses.replace(report, kinds=[])
        shrunk = shrink(singly, lambda without: run_seed(seed, kind=OneNode, without=without), tries=8)
        again = run_seed(seed, kind=OneNode, without=shrunk.report.without)
    assert again.problems == shrunk.report.problems
    assert again.trace == shrunk.report.trace != report.trace
    assert len(shrunk.report.happened) < len(report.happened)
    assert shrunk.report.without and all(":" in fault for fault in shrunk.report.without)


def made_up(needs: set[str], happened: list[str], without: frozenset[str]) -> Report:
    left = [fault for fault in happened if fault not in without and fault.split(":")[0] not in without]
    problems = ["lost-write in kept-0: value 17 was never read"] if needs <= set(left) else []
    return Report("node", 17, problems, "", [], 1.0, 1, {}, "", ["cut", "crash"], left, without)


@pytest.mark.parametrize("needs", [set(), {"cut:3"}, {"cut:1", "crash:20"}, {f"crash:{n}" for n in range(1, 7)}])
def test_shrinking_keeps_what_the_failure_needs(needs: set[str]) -> None:
    happened = [f"{kind}:{number}" for kind in ("cut", "crash") for number in range(1, 21)]
    first = made_up(needs, happened, frozenset())
    shrunk = shrink(first, lambda without: made_up(needs, happened, without))
    assert set(shrunk.report.happened) == needs
    assert not shrunk.given_up


def test_another_failure_is_not_taken_for_the_same() -> None:
    first = made_up(set(), ["cut:1"], frozenset())

    def run(without: frozenset[str]) -> Report:
        report = made_up(set(), ["cut:1"], without)
        report.problems = ["no progress 90 s after the faults ended"]
        return report

    assert shrink(first, run).report is first


def test_shrinking_ends_after_a_number_of_tries() -> None:
    happened = [f"cut:{number}" for number in range(500)]
    shrunk = shrink(
        made_up(set(happened), happened, frozenset()), lambda w: made_up(set(happened), happened, w), tries=9
    )
    assert shrunk.given_up and shrunk.tries == 9


def test_a_failure_prints_seed_world_commit_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    text = failure(made_up(set(), ["cut:1"], frozenset({"crash:2", "clock"})))
    assert "seed 17 of the world node failed" in text
    assert "lost-write in kept-0" in text
    assert "make sim WORLD=node SEED=17 WITHOUT=clock,crash:2" in text
    assert re.search(r"\((commit [0-9a-z.-]{7,}|no commit: .*)\)", text)
    monkeypatch.setattr(failures, "ROOT", Path("/"))
    failures.commit.cache_clear()
    assert "no commit" in failure(made_up(set(), [], frozenset()))
    failures.commit.cache_clear()
