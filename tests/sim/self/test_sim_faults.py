"""Every kind of fault is drawn by seeds, and drawn faults happen: a fault that never happens proves nothing."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.sim import faults
from tests.sim.cluster import ManyNodes
from tests.sim.cluster_world import ClusterWorld
from tests.sim.copying import CopyingCluster
from tests.sim.directories import TwoDirectories
from tests.sim.keyed import KeyedCluster
from tests.sim.lasting import LastingCluster
from tests.sim.one_node import OneNode
from tests.sim.permissions import GuardedCluster
from tests.sim.producers import ProducersCluster
from tests.sim.quorum_box import QuorumRun
from tests.sim.reassignments import MovingCluster
from tests.sim.runs import Scenario, run_seed
from tests.sim.throttled import ThrottledCluster
from tests.sim.world import World
from tests.sim.worlds import KINDS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "simulation-faults.md"
# The number of seeds of which some have each kind of fault.
DRAWN_SEEDS = 200
# A kind must have happened by the time when so many seeds were run that have drawn it.
RUNS_OF_A_KIND = 24
WITH_COPIES = (
    ManyNodes,
    MovingCluster,
    CopyingCluster,
    TwoDirectories,
    ProducersCluster,
    LastingCluster,
    KeyedCluster,
    GuardedCluster,
    ThrottledCluster,
)
ONLY_WITH_COPIES = ("wipe", "older")


def drawn(kind: type[Scenario], seed: int) -> list[str]:
    """The kinds of faults that a seed has in a world."""
    return faults.shrinkable(kind.draw(Random(seed ^ kind.salt), frozenset()))


def all_kinds(kind: type[Scenario]) -> list[str]:
    """The kinds of faults that seeds of a world may have."""
    kinds = [each for each in faults.KINDS if kind in WITH_COPIES or each not in ONLY_WITH_COPIES]
    kinds += [*faults.NETWORK_KINDS, *faults.DISK_KINDS, "buggify"]
    return [each for each in kinds if kind is not QuorumRun or each not in faults.DISK_ERRORS]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.world_name)
def test_seeds_draw_every_kind_of_fault_and_no_seed_all(kind: type[Scenario]) -> None:
    seeds = [drawn(kind, seed) for seed in range(1, DRAWN_SEEDS + 1)]
    counts = {each: sum(each in seed for seed in seeds) for each in all_kinds(kind)}
    assert all(DRAWN_SEEDS * 0.1 < count < DRAWN_SEEDS * 0.9 for count in counts.values()), counts
    assert {each for seed in seeds for each in seed} == set(counts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OneNode, ManyNodes], ids=lambda kind: kind.world_name)
def test_every_kind_of_fault_that_is_drawn_happens(kind: type[Scenario]) -> None:
    """Seeds are run that have drawn what has not happened yet, until all has."""
    # Kinds that the other world shows do not run again here, where a run takes longer.
    kinds = ONLY_WITH_COPIES if kind is ManyNodes else all_kinds(kind)
    missing = {each: set(faults.counted(each)) for each in kinds}
    runs = dict.fromkeys(kinds, 0)
    for seed in range(1, DRAWN_SEEDS):
        wanted = [each for each in drawn(kind, seed) if missing.get(each)]
        if not wanted:
            continue
        happened = run_seed(seed, kind=kind).faults
        for each in wanted:
            runs[each] += 1
            missing[each] -= happened.keys()
            assert not missing[each] or runs[each] < RUNS_OF_A_KIND, f"{each} has not brought about {missing[each]}"
        if not any(missing.values()):
            return
    pytest.fail(f"never happened: {missing}")


@pytest.mark.slow
def test_points_of_the_product_are_held_up_and_each_seed_has_its_own() -> None:
    held_up = []
    for seed in (1, 2):
        swarm = faults.none()
        swarm.buggify = 0.3
        world = World(seed, swarm)
        scenario = OneNode(world)
        with world:
            world.loop.run_world(scenario.run(), limit_s=400)
            assert not scenario.problems
            held_up.append(world.held_up)
    assert all(len(points) >= 2 for points in held_up)
    assert held_up[0].keys() != held_up[1].keys()


@pytest.mark.slow
def test_a_broker_with_an_empty_disk_joins_no_isr_before_it_caught_up() -> None:
    """Its log directory has another id then, and its records are fetched again; meanwhile others lead."""
    swarm = faults.none()
    swarm.every_s["wipe"] = 1.0
    events: list[str] = []
    world = ClusterWorld(3, swarm, on_event=events.append)
    scenario = ManyNodes(world)
    with world:
        world.loop.run_world(scenario.run(), limit_s=400)
        assert not scenario.problems
        assert world.counts["wiped disk"] >= 2


def test_the_page_names_every_kind_of_fault() -> None:
    text = PAGE.read_text()
    table = text[text.index("## Faults") :].split("\n## ")[0]
    named = {line.split("|")[2].strip().strip("`") for line in table.splitlines() if line.startswith("| ")}
    kinds = {*faults.KINDS, *faults.NETWORK_KINDS, *faults.DISK_KINDS, "buggify"}
    assert kinds <= {name.strip("` ") for names in named for name in names.split(",")}


def test_the_page_says_which_worlds_have_copies() -> None:
    legend = " ".join(PAGE.read_text().split("## Faults")[1].split("| Fault")[0].split())
    copies = ", ".join(f"`{kind.world_name}`" for kind in WITH_COPIES)
    assert f"`copies` for those of several brokers ({copies})" in legend
    assert all(f"`{kind.world_name}`" in legend for kind in KINDS)
