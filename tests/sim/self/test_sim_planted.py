"""The switchboard of planted bugs, and that each of them is found: by a seed, or by a scenario made for it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from odradek.coordinator.group.runtime import Shard
from odradek.log import files
from odradek.log.log import Log
from odradek.replica.partition import Partition
from tests.sim.bugs import ALL_BUGS, EASY_SEEDS, known_seeds, problem_of, world_of
from tests.sim.directed import DIRECTED, finds
from tests.sim.planted import ONE_NODE, Bug
from tests.sim.planted_cluster import MANY_NODES
from tests.sim.self.test_sim_findings import CAUGHT

KNOWN = known_seeds()
# The seed that once caught a bug may be another run after a change of the product: then it must be one of these.
OTHER_SEEDS = range(1, 6 * EASY_SEEDS)
# A seed of the cluster takes longer.
OTHER_CLUSTER_SEEDS = range(1, 2 * EASY_SEEDS)
# The others have their tests beside those of their worlds.
MEASURED = (*ONE_NODE, *MANY_NODES)
# Bugs that a scenario finds at once: seeds that find them late need not be tried.
WITH_SCENARIO = {*DIRECTED, *(name for _, name in CAUGHT)}
SOON = 10


def caught_by_seed(bug: Bug) -> bool:
    caught, _ = KNOWN.get(bug.name, (None, 0))
    return caught is not None and caught <= (SOON if bug.name in WITH_SCENARIO else EASY_SEEDS)


BY_SEED = [bug for bug in MEASURED if caught_by_seed(bug)]
# `make test` runs every eighth one of those that the first seed catches, but for those that take that seed long.
IN_SHORT = {bug.name for bug in [bug for bug in BY_SEED if KNOWN[bug.name][0] == 1][::8]}
IN_SHORT -= {"a broker without space keeps what it leads", "divergence is not looked for"}

# The first seed is a long run; these catch it in a short one.
SOONER = {"generations forgotten on load": 2}


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=[] if bug.name in IN_SHORT else pytest.mark.slow) for bug in BY_SEED],
    ids=lambda bug: bug.name.replace(" ", "-"),
)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    known, _ = KNOWN[bug.name]
    assert known is not None
    with bug.planted():
        others = OTHER_CLUSTER_SEEDS if bug in MANY_NODES else OTHER_SEEDS
        seeds = itertools.chain([SOONER.get(bug.name, known)], others)
        assert any(problem_of(seed, world_of(bug)) for seed in seeds), bug.meaning


def test_every_bug_is_caught_by_a_seed_or_by_a_scenario() -> None:
    assert {bug.name for bug in MEASURED} <= {*WITH_SCENARIO, *(bug.name for bug in BY_SEED)}


def test_every_bug_was_measured() -> None:
    assert [name for name in KNOWN if name in [bug.name for bug in MEASURED]] == [bug.name for bug in MEASURED]
    assert len(ALL_BUGS) == len(dict.fromkeys(bug.name for bug in ALL_BUGS)), "two bugs have one name"
    assert len(ONE_NODE) >= 15
    assert len(MANY_NODES) >= 15


# This one takes as long as all others together.
LONG = "metadata acknowledged before it is durable"


@pytest.mark.parametrize(
    ("name", "scenario"),
    [
        pytest.param(name, scenario, id=name.replace(" ", "-"), marks=[pytest.mark.slow] if name == LONG else [])
        for name, scenario in DIRECTED.items()
    ],
)
def test_a_scenario_catches_what_seeds_may_not(name: str, scenario: Any) -> None:
    bug = next(bug for bug in MANY_NODES if bug.name == name)
    assert not finds(scenario), "it finds something without the bug"
    with bug.planted():
        assert finds(scenario), bug.meaning


def test_a_bug_is_gone_when_its_block_ends() -> None:
    append, due, make_durable = Log.append_with_offsets, Partition.flush_is_due, files.make_durable
    for bug in ALL_BUGS:
        with bug.planted():
            pass
    assert (Log.append_with_offsets, Partition.flush_is_due, files.make_durable) == (append, due, make_durable)


def test_a_bug_whose_line_is_gone_is_not_planted() -> None:
    bug = Bug("gone", "log.log:Log.append_with_offsets", "a line that is not there", "pass", "nothing")
    with pytest.raises(LookupError, match="gone"), bug.planted():
        pass


def test_a_bug_is_planted_wherever_the_function_was_imported() -> None:
    bug = next(each for each in ONE_NODE if each.name == "failed fsync tried again")
    from odradek.log import flush_state

    before = files.make_durable
    with bug.planted():
        assert vars(flush_state)["make_durable"] is files.make_durable is not before
    assert vars(flush_state)["make_durable"] is files.make_durable is before


def test_a_bug_has_the_names_of_the_module_that_its_function_stands_in() -> None:
    bug = next(each for each in ONE_NODE if each.name == "commit answered before it is durable")
    before = Shard.__init__
    assert before.__module__ != f"odradek.{bug.where.partition(':')[0]}", "the class is found where it was imported"
    with bug.planted():
        assert Shard.__init__ is not before
        assert Shard.__init__.__globals__ is before.__globals__
