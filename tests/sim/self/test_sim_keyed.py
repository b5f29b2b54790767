"""Compaction with transactions and tombstones in the simulator: worlds without a finding, and bugs that are found."""

from __future__ import annotations

import itertools

import pytest

from tests.sim.bugs import known_seeds, problem_of
from tests.sim.clients import Recorder
from tests.sim.failures import failure
from tests.sim.history import Operation, Outcome, Send
from tests.sim.keyed import KeyAccount, KeyedCluster, is_tombstone, key_of
from tests.sim.planted import Bug
from tests.sim.runs import run_seed
from tests.support.order import slow_after
from tests.support.planted.compaction_bugs import IN_TRANSACTIONS

# The seed that once caught a bug may be another run after a change of the product: then it must be one of these.
OTHER_SEEDS = range(1, 60)
# Numbers of one key.
FIRST, SECOND, TOMBSTONE, LATER = 12, 24, 84, 96
KEY = (0, 0)


def account(*transactions: tuple[Outcome, int]) -> KeyAccount:
    """The account of one key, after transactional writes of these values with these outcomes."""
    made = KeyAccount(Recorder())
    for outcome, number in transactions:
        made.is_sending(0, number)
        made.complete(Operation(1, outcome, [Send("keyed-0", number, None)], transactional=True))
    return made


def is_wrong(made: KeyAccount, found: int | None, *, later: int | None = None) -> bool:
    """Whether a reader that found this, and before whose end another number was sent, has a problem."""
    before = {key: [*allowed] for key, allowed in made.allowed.items()}
    if later is not None:
        made.is_sending(0, later)
    return bool(made.wrong(before, {} if found is None else {KEY: found}))


def test_the_numbers_of_these_tests_are_of_one_key() -> None:
    assert {key_of(number) for number in (FIRST, SECOND, TOMBSTONE, LATER)} == {KEY[1]}
    assert [is_tombstone(number) for number in (FIRST, SECOND, TOMBSTONE, LATER)] == [False, False, True, False]


def test_a_key_reads_as_its_last_commit_or_as_what_came_since() -> None:
    made = account((Outcome.OK, FIRST), (Outcome.OK, SECOND))
    assert not is_wrong(made, SECOND) and not is_wrong(made, LATER, later=LATER)
    assert is_wrong(made, FIRST) and is_wrong(made, None)


def test_aborted_writes_do_not_count_and_unknown_ones_may() -> None:
    aborted = account((Outcome.OK, FIRST), (Outcome.FAIL, SECOND))
    assert not is_wrong(aborted, FIRST)
    unknown = account((Outcome.OK, FIRST), (Outcome.INFO, SECOND))
    assert not is_wrong(unknown, FIRST) and not is_wrong(unknown, SECOND) and is_wrong(unknown, None)


@pytest.mark.parametrize("keeps_all", [False, True])
def test_a_tombstone_may_be_gone_once_its_time_is_over(keeps_all: bool) -> None:
    made = account((Outcome.OK, FIRST), (Outcome.FAIL, SECOND), (Outcome.OK, TOMBSTONE))
    made.keeps_all = keeps_all
    assert not is_wrong(made, TOMBSTONE) and is_wrong(made, SECOND)
    assert is_wrong(made, None) == keeps_all
    assert is_wrong(made, FIRST) == keeps_all, "a copy that was away for so long keeps what the tombstone deletes"


@pytest.mark.parametrize("seed", slow_after(1, range(1, 31)))
def test_each_key_reads_as_its_last_commit_left_it(seed: int) -> None:
    report = run_seed(seed, kind=KeyedCluster)
    assert not report.failed, failure(report)


@pytest.mark.slow
@pytest.mark.parametrize("bug", IN_TRANSACTIONS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with bug.planted():
        seeds = itertools.chain([known_seeds()[bug.name][0] or 1], OTHER_SEEDS)
        assert any(problem_of(seed, KeyedCluster) for seed in seeds), bug.meaning
