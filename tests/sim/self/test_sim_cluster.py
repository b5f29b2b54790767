"""The world of many nodes: seeds that must hold."""

from __future__ import annotations

from random import Random

import pytest

from tests.sim import faults
from tests.sim.clients import Recorder
from tests.sim.cluster import SETTINGS, ManyNodes
from tests.sim.cluster_invariants import different_logs
from tests.sim.cluster_world import ClusterWorld
from tests.sim.failures import failures
from tests.sim.one_node import Admin
from tests.sim.runs import Report, run_seed
from tests.sim.world import World

pytestmark = pytest.mark.usefixtures("no_log_lines")

# `test_sim_cluster_more.py` has as many again, so that another worker runs them at the same time.
# `make test` runs the first ones, `make test-all` all of them.
SEEDS = 50
SHORT_SEEDS = 2
CHUNK = 5
# The number of first seeds whose events are checked; in the long form there are more.
LOOKED_AT = 5
LOOKED_AT_LONG = 10
first_events: dict[int, str] = {}


def run(seed: int) -> Report:
    """One seed, of which is kept what happened where that is looked at too."""
    events: list[str] = []
    report = run_seed(seed, kind=ManyNodes, on_event=events.append if seed <= LOOKED_AT_LONG else None)
    if seed <= LOOKED_AT_LONG:
        first_events[seed] = "\n".join(events)
    return report


def test_the_first_seeds_hold() -> None:
    failed = failures(run(seed) for seed in range(1, SHORT_SEEDS + 1))
    assert not failed, failed


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_seeds_hold(first: int) -> None:
    failed = failures(run(seed) for seed in range(first, first + CHUNK))
    assert not failed, failed


def events_of(seeds: int) -> list[str]:
    """The events of the first seeds, which run here unless another test has run them."""
    for seed in range(1, seeds + 1):
        if seed not in first_events:
            run(seed)
    return [first_events[seed] for seed in range(1, seeds + 1)]


@pytest.mark.slow
def test_both_kinds_of_clusters_come_up_and_faults_reach_all_their_nodes() -> None:
    worlds = events_of(LOOKED_AT)
    assert any("node-101 is ready" in events for events in worlds)
    assert any("node-101 is ready" not in events for events in worlds)
    for node in ("node-1", "node-2", "node-3"):
        assert any(f"{node} loses power" in events for events in worlds)
        assert any(f"the way from {node} to node-" in events for events in worlds)
    assert any("kill -9 node-" in events for events in worlds)


@pytest.mark.slow
def test_every_node_is_killed() -> None:
    worlds = events_of(LOOKED_AT_LONG)
    for node in ("node-1", "node-2", "node-3"):
        assert any(f"kill -9 {node}" in events for events in worlds)


@pytest.mark.parametrize("disks_fail", [False, True])
def test_a_disk_is_replaced_only_when_no_copy_depends_on_it(disks_fail: bool) -> None:
    swarm = faults.none()
    may_die: set[str] = set()
    in_sync: list[tuple[int, ...]] = []

    def note(event: str) -> None:
        if "gets an empty disk" in event:
            may_die.update(name for name, machine in world.machines.items() if world.may_die(machine))
            in_sync.extend(each.isr for each in world._partitions())

    world = ClusterWorld(3, swarm, settings=SETTINGS, on_event=note)

    async def run() -> None:
        ManyNodes(world).add_machines()
        one, *others = world.machines.values()
        for machine in world.machines.values():
            machine.start()
        await Admin(world, "admin", 0, Recorder(), copies=3).create_surely("kept", 1, {})
        assert await world._is_healthy()
        swarm.disk.sync_error = 1e-9 if disks_fail else 0.0
        await world._wipe(one, Random(1))
        assert all(world.may_die(machine) for machine in others)
        while not await world._is_healthy():
            pass

    with world:
        world.loop.run_world(run(), limit_s=400)
        assert may_die == (set(world.machines) if disks_fail else {"node-1"})
        assert {1 in each for each in in_sync} == {not disks_fail}


@pytest.mark.slow  # test_sim_removers has a short form
def test_copies_that_differ_below_the_high_watermark_are_reported() -> None:
    world = World(1, faults.none())
    scenario = ManyNodes(world)
    problems: list[str] = []

    async def run() -> None:
        await scenario.run()
        machine = world.machines["node-2"]
        path = next(path for path in machine.disk.snapshot() if path.name.endswith(".log") and "kept-" in str(path))
        file = machine.disk.open(path)
        file.write_at(file.size() - 1, [b"\xee"])
        problems.extend(different_logs(world))

    with world:
        world.loop.run_world(run(), limit_s=400)
        assert not scenario.recorder.problems
        assert any("differ at offset" in problem for problem in problems), problems
