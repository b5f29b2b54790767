"""The world with a compacted topic: green as it is, and not with bugs that only a real run can show."""

from __future__ import annotations

import pytest

from tests.sim.bugs import problem_of
from tests.sim.compacted import CompactedNode
from tests.sim.failures import failures
from tests.sim.planted import Bug
from tests.sim.planted_compacted import CAUGHT_BY_SEED, COMPACTED_BUGS
from tests.sim.runs import run_seed
from tests.support.order import slow_after
from tests.support.planted.compaction_bugs import AT_DEATH, IN_PEACE

SEEDS = range(1, 21)
IN_SHORT = "last value lost"
BUGS = [
    bug for bug in (*IN_PEACE, *AT_DEATH) if bug.name in ("last value lost", "offset changed", "swap without fsync")
]


@pytest.mark.parametrize("first", slow_after(1, SEEDS[::5]))
def test_keys_read_as_they_were_left(first: int) -> None:
    failed = failures(run_seed(seed, kind=CompactedNode) for seed in range(first, first + 5))
    assert not failed, failed


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=[] if bug.name == IN_SHORT else pytest.mark.slow) for bug in BUGS],
    ids=lambda bug: bug.name.replace(" ", "-"),
)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    with bug.planted():
        assert any(problem_of(seed, CompactedNode) for seed in range(1, 81)), bug.meaning


@pytest.mark.parametrize("bug", COMPACTED_BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_planted_bug_is_caught_by_its_seed(bug: Bug) -> None:
    seed = CAUGHT_BY_SEED[bug.name]
    assert not problem_of(seed, CompactedNode)
    with bug.planted():
        assert any(problem_of(each, CompactedNode) for each in (seed, *range(1, 201))), bug.meaning


def test_epochs_begin_with_the_log_after_a_start_amid_deleted_records() -> None:
    """Deleted records are still in the files after a start; their leader epochs are not in the checkpoint."""
    report = run_seed(199, kind=CompactedNode)
    assert not report.problems
