"""A log in random walks beside a plain model: appended to, cut, aged, closed, killed, and without power."""

from __future__ import annotations

import pytest

from tests.support.models.log_walk import walk


@pytest.mark.parametrize("seeds", [range(10), range(10, 20), range(20, 30)], ids=str)
def test_a_log_is_what_its_model_is(seeds: range) -> None:
    ends = [walk(seed).model.end for seed in seeds]
    assert max(ends) > 100, "something was written"


# Each of these lost an aborted transaction, an open one, or a time, before its bug was fixed.
@pytest.mark.parametrize("seed", [91, 136, 551, 635, 730])
def test_walks_that_found_something(seed: int) -> None:
    walk(seed)
