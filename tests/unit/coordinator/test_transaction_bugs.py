"""Bugs planted in transactions that seeds find late or never: a scenario or a test that is run with it catches each.

The others are caught by seeds (tests/sim/self/test_sim_transactions.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.common.errors import OdradekError
from tests.scenarios.script import ScriptError, play
from tests.scenarios.words_txn import TxnWords
from tests.sim.planted_transactions import CAUGHT_BY_SEED, CAUGHT_BY_TEST, TRANSACTIONS, table, transaction_bug
from tests.unit.log.test_log import Home
from tests.unit.log.test_log_transactions import (
    test_a_marker_makes_what_was_verified_before_it_worthless as late_batch,
)
from tests.unit.log.test_log_transactions import (
    test_a_verification_during_an_end_is_answered_after_its_marker as next_transaction,
)
from tests.unit.log.test_producers import test_a_fence_outlives_all_that_had_the_epoch_before as fence
from tests.unit.log.test_producers import test_silence_counts_and_not_what_records_say_of_time as silence

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
BY_SCENARIO = {
    "an end over a dead connection counts": "txn_connections",
    "a fence without a bump": "txn_fencing",
    "the last epoch is given away": "txn_exhausted",
    "an abort that timed out is not tried": "txn_timeout",
    "a completion for any epoch": "txn_late_completion",
    "a transaction of two-phase commit times out": "txn_two_phase",
    "a kept transaction leaves its writer in": "txn_two_phase",
    "the next client of a kept transaction is not fenced": "txn_two_phase",
}
BY_TEST: dict[str, Callable[[Path], None]] = {
    "late batch opens a transaction": lambda folder: late_batch(Home(folder), True),
    "a marker ends what follows on it": lambda folder: next_transaction(Home(folder), 2),
    "open transactions expire": lambda folder: silence(Home(folder)),
    "old snapshots of producers passed over": lambda folder: fence(Home(folder)),
}
# Planted by the tests of the service themselves.
BY_THE_SERVICE = {"failed marker not sent again", "marker before its decision is durable"}
PAGE = Path(__file__).resolve().parents[3] / "docs" / "simulation-bugs.md"


# Their scenarios are long: slow tests.
LONG = ("the last epoch is given away", "the next client of a kept transaction is not fenced")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LONG else []) for name in BY_SCENARIO],
    ids=lambda name: name.replace(" ", "-"),
)
def test_a_scenario_catches_a_planted_bug(name: str) -> None:
    # The scenario itself shows that it finds nothing without the bug.
    text = (SCENARIOS / f"{BY_SCENARIO[name]}.txt").read_text()
    with transaction_bug(name).planted(), contextlib.suppress(ScriptError, AssertionError):
        assert not play(text, TxnWords)[1], "caught"
        raise RuntimeError(f"{name} is not caught")


@pytest.mark.parametrize("name", BY_TEST, ids=lambda name: name.replace(" ", "-"))
def test_a_test_catches_a_planted_bug(name: str, tmp_path: Path) -> None:
    with transaction_bug(name).planted(), contextlib.suppress(AssertionError, OdradekError):
        BY_TEST[name](tmp_path)
        raise RuntimeError(f"{name} is not caught")


def test_every_bug_is_caught_by_something() -> None:
    caught = {*CAUGHT_BY_SEED, *BY_SCENARIO, *BY_TEST, *BY_THE_SERVICE}
    assert caught == {bug.name for bug in TRANSACTIONS}
    assert {*BY_SCENARIO, *BY_TEST} | BY_THE_SERVICE >= set(CAUGHT_BY_TEST)
    assert len(TRANSACTIONS) >= 20


def test_the_page_has_the_table_as_it_is() -> None:
    assert f"<!-- transaction bugs: begin -->\n{table()}\n<!-- transaction bugs: end -->" in PAGE.read_text()
