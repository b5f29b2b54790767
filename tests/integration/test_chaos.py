"""Three nodes under load while the worst happens to them, in short; `make chaos` plays all of it for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.scenarios import (
    NODES,
    SCENARIOS,
    TOPIC,
    Act,
    Scenario,
    cut_from_followers,
    killed_leader,
    play,
    world_of,
    zombie,
)
from tests.chaos.verdict import end_offsets, leaders, whole
from tests.support.nodes.cluster import topic_at
from tests.support.waiting import eventually


@pytest.mark.slow  # test_isolated_leader has its short forms
def test_cuts_of_the_network_in_short(tmp_path: Path) -> None:
    with world_of(Scenario("short", cut_from_followers, needs_hosts=True), tmp_path, 1, print) as world:
        assert play([cut_from_followers], world, rounds=1).problems == []


@pytest.mark.parametrize(
    "acts", [[killed_leader], pytest.param([killed_leader, zombie], marks=pytest.mark.slow)], ids=("kill", "all")
)
def test_ends_of_processes_in_short(tmp_path: Path, acts: list[Act]) -> None:
    with world_of(Scenario("short", killed_leader), tmp_path, 2, print) as world:
        assert play(acts, world, rounds=1).problems == []


@pytest.mark.slow
def test_a_leader_of_before_the_cut_does_not_end_the_wait(tmp_path: Path) -> None:
    with world_of(Scenario("short", cut_from_followers, needs_hosts=True), tmp_path, 1, print) as world:
        assert world.hosts is not None
        controller = world.cluster[world.cluster.await_controller()]
        found = leaders(world.cluster, TOPIC)
        number = next(number for number, leader in found.items() if leader != controller.node_id)
        old = world.cluster[found[number]]
        # A follower reaches it still, so that it does not take itself for cut off.
        world.hosts.cut_both(old.plan.host, controller.plan.host)

        def leader_now() -> int:
            partitions = topic_at(controller, TOPIC).partitions
            return next(each.leader_id for each in partitions if each.partition_index == number)

        eventually(lambda: leader_now() not in (-1, old.node_id), "another one leads")
        assert not any(whole(world.cluster, TOPIC, NODES) for _ in range(10))
        assert not end_offsets(world.cluster, TOPIC, NODES)
        world.hosts.heal()
        eventually(lambda: whole(world.cluster, TOPIC, NODES))
        assert end_offsets(world.cluster, TOPIC, NODES) == dict.fromkeys(found, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_one_scenario_alone(tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    with world_of(scenario, tmp_path, 3, print) as world:
        assert play([scenario.act], world, rounds=2).problems == []
