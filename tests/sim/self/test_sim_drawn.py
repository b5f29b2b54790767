"""Each simulated world with seeds drawn from the commit: runs that no commit before it has tried."""

from __future__ import annotations

import pytest

from tests.sim import drawn
from tests.sim.failures import failures
from tests.sim.runs import run_seed
from tests.sim.worlds import WORLDS

pytestmark = pytest.mark.usefixtures("no_log_lines")

# The seeds that run in two or three processor seconds.
COUNTS = {"node": 6, "cluster": 2, "quorum": 3, "transactions": 3}
FEW = 2


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_seeds_of_this_commit_hold(world: str) -> None:
    first = drawn.first_seed()
    count = COUNTS.get(world, FEW)
    print(f"to run them again: make sim WORLD={world} FIRST={first} SEEDS={count}")
    failed = failures(run_seed(seed, kind=WORLDS[world]) for seed in range(first, first + count))
    assert not failed, failed


def test_a_commit_has_its_seeds_and_a_number_given_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = "0123456789abcdef", "fedcba9876543210"
    assert drawn.drawn_from(one) == drawn.drawn_from(one[:12]) != drawn.drawn_from(other)
    assert all(drawn.LOWEST <= drawn.drawn_from(each) <= drawn.HIGHEST for each in (one, other, "00000000", "ffffffff"))
    monkeypatch.setenv(drawn.FIRST, "17")
    assert drawn.first_seed.__wrapped__() == 17
