"""Transactions in the simulator: worlds without a finding, and bugs that are found."""

from __future__ import annotations

import itertools

import pytest

from tests.sim.planted import Bug
from tests.sim.planted_transactions import CAUGHT_BY_SEED, TRANSACTIONS
from tests.sim.transactional import run_seed

# The seed that once caught a bug may be another run after a change of the product: then it must be one of these.
OTHER_SEEDS = range(1, 60)


@pytest.mark.parametrize("seed", range(1, 13))
def test_no_interleaving_tears_a_transaction(seed: int) -> None:
    report = run_seed(seed)
    assert not report.problems, f"seed {seed}: {report.problems[0]}"


def test_a_seed_is_the_same_run_twice() -> None:
    assert run_seed(3).trace == run_seed(3).trace


@pytest.mark.parametrize(
    "bug", [each for each in TRANSACTIONS if each.name in CAUGHT_BY_SEED], ids=lambda bug: bug.name
)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with bug.planted():
        assert any(run_seed(seed).problems for seed in itertools.chain([CAUGHT_BY_SEED[bug.name]], OTHER_SEEDS))


def test_every_bug_has_its_line() -> None:
    for bug in TRANSACTIONS:
        with bug.planted():
            pass
