"""The switchboard of planted bugs, and that each of them is found: by a seed, or by a scenario made for it."""

from __future__ import annotations

import itertools

import pytest

from odradek.log import files
from odradek.log.log import Log
from odradek.replica.partition import Partition
from tests.sim.bugs import ALL_BUGS, EASY_SEEDS, known_seeds, problem_of, world_of
from tests.sim.planted import ONE_NODE, Bug
from tests.sim.planted_cluster import MANY_NODES

KNOWN = known_seeds()
# The seed that once caught a bug may be another run after a change of the product: then it must be one of these.
OTHER_SEEDS = range(1, 6 * EASY_SEEDS)
# A seed of the cluster takes longer.
OTHER_CLUSTER_SEEDS = range(1, 2 * EASY_SEEDS)
BY_SEED = [bug for bug in ALL_BUGS if (KNOWN.get(bug.name, (None, 0))[0] or EASY_SEEDS + 1) <= EASY_SEEDS]


@pytest.mark.parametrize("bug", BY_SEED, ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    known, _ = KNOWN[bug.name]
    assert known is not None
    with bug.planted():
        others = OTHER_CLUSTER_SEEDS if bug in MANY_NODES else OTHER_SEEDS
        assert any(problem_of(seed, world_of(bug)) for seed in itertools.chain([known], others)), bug.meaning


def test_every_bug_was_measured() -> None:
    assert list(KNOWN) == [bug.name for bug in ALL_BUGS]
    assert len(ONE_NODE) >= 15
    assert len(MANY_NODES) >= 15


def test_a_bug_is_gone_when_its_block_ends() -> None:
    append, due, make_durable = Log._append, Partition.flush_is_due, files.make_durable
    for bug in ALL_BUGS:
        with bug.planted():
            pass
    assert (Log._append, Partition.flush_is_due, files.make_durable) == (append, due, make_durable)


def test_a_bug_whose_line_is_gone_is_not_planted() -> None:
    bug = Bug("gone", "log.log:Log._append", "a line that is not there", "pass", "nothing")
    with pytest.raises(LookupError, match="gone"), bug.planted():
        pass


def test_a_bug_is_planted_wherever_the_function_was_imported() -> None:
    bug = next(each for each in ONE_NODE if each.name == "failed fsync tried again")
    from odradek.log import log

    before = files.make_durable
    with bug.planted():
        assert log.make_durable is files.make_durable is not before
    assert log.make_durable is files.make_durable is before
