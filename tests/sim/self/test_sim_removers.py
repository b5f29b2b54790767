"""Topics that are deleted and made anew while a broker is away: it must not take what it has for the new one's."""

from __future__ import annotations

import asyncio
from typing import Any

from odradek.client.admin import create_topic, delete_topic
from tests.sim import faults
from tests.sim.clients import Producer, Recorder
from tests.sim.cluster import COPIES, ManyNodes
from tests.sim.cluster_invariants import different_logs
from tests.sim.cluster_world import ClusterWorld
from tests.sim.patience import surely, until
from tests.sim.planted_cluster import MOVING

NAME = "again"
PATIENCE_S = 60.0
ANEW = next(bug for bug in MOVING if bug.name == "a topic that is made anew takes the old log")


def problems_of_a_broker_that_was_away() -> list[str]:
    """What its copy of the new topic differs in from the others'."""
    world = ClusterWorld(3, faults.none())
    scenario = ManyNodes(world)
    problems: list[str] = []

    async def run() -> None:
        scenario.add_machines()
        for machine in world.machines.values():
            machine.start()
        away = world.machines[f"node-{COPIES}"]
        values: Any = iter(range(100))
        writer = Producer(
            world, "writer", 1, Recorder(), partitions=[(NAME, 0)], idempotent=False, values=values, acks=(-1,)
        )

        async def make_and_write(count: int) -> None:
            await surely(lambda: create_topic(writer.cluster, NAME, partitions=1, replication_factor=COPIES))
            for _ in range(count):
                await surely(lambda: writer.send_once(NAME, 0, [next(values)]))

        await until(lambda: all(machine.broker for machine in world.machines.values()))
        await make_and_write(3)
        await until(world._is_well)
        away.kill()
        await surely(lambda: delete_topic(writer.cluster, NAME))
        await make_and_write(5)
        away.start()
        async with asyncio.timeout(PATIENCE_S):
            await until(world._is_well)
        problems.extend(different_logs(world))

    with world:
        world.loop.run_world(run(), limit_s=200)
    return problems


def test_a_broker_that_was_away_does_not_take_the_old_records_for_new_ones() -> None:
    assert problems_of_a_broker_that_was_away() == []


def test_one_that_does_is_caught() -> None:
    with ANEW.planted():
        assert any(f"{NAME}-0: " in problem for problem in problems_of_a_broker_that_was_away())
