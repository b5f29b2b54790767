"""Topics that are deleted and recreated: while a broker is away, whose old log must not become the new topic's, and
while their logs are flushed, which is no fault of a disk."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from odradek.client.admin import create_topic, delete_topic
from odradek.common.errors import OdradekError
from tests.sim import faults
from tests.sim.clients import RETRY_S, Producer, Recorder
from tests.sim.cluster import COPIES, ManyNodes
from tests.sim.cluster_invariants import different_logs
from tests.sim.cluster_world import ClusterWorld
from tests.sim.disk import DiskFaults
from tests.sim.planted_cluster import MOVING
from tests.sim.polling import surely, until

NAME = "again"
PATIENCE_S = 60.0
SLOW_SYNC_MS = (20.0, 200.0)
ROUNDS = 5
ROLLING = {"segment.ms": "1", "flush.ms": "1", "message.timestamp.after.max.ms": str(2**63 - 1)}
BLAMED = next(bug for bug in MOVING if bug.name == "a disk is blamed for a log that was deleted under a flush")
RECREATED = next(bug for bug in MOVING if bug.name == "a recreated topic takes the old log")


def problems_of_a_broker_that_was_away() -> list[str]:
    """Recreate a topic while a broker is away; the differences between its copy of the new topic and the others'."""
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
    with RECREATED.planted():
        assert any(f"{NAME}-0: " in problem for problem in problems_of_a_broker_that_was_away())


async def attempted(world: ClusterWorld, work: Callable[[], Awaitable[object]]) -> None:
    """Do something until it succeeds, or something is found to be wrong."""
    while not world.loop.failures:
        with contextlib.suppress(OdradekError):
            await work()
            return
        await asyncio.sleep(RETRY_S)


def problems_of_deletions_under_flushes() -> list[str]:
    """Failures of three brokers with slow disks while a topic that rolls with every batch is deleted and recreated."""
    world = ClusterWorld(5, faults.none(), settings={"log.flush.scheduler.interval.ms": "20"})
    scenario = ManyNodes(world)

    async def run() -> None:
        scenario.add_machines()
        for machine in world.machines.values():
            machine.disk.faults = DiskFaults(sync_ms=SLOW_SYNC_MS)
            machine.start()
        await until(lambda: all(machine.broker for machine in world.machines.values()))
        values: Any = iter(range(1000))
        writer = Producer(
            world, "writer", 1, Recorder(), partitions=[(NAME, 0)], idempotent=False, values=values, acks=(-1,)
        )
        rolling: dict[str, Any] = {"partitions": 1, "replication_factor": COPIES, "configs": ROLLING}
        for _ in range(ROUNDS):
            await attempted(world, lambda: create_topic(writer.cluster, NAME, **rolling))
            for _ in range(4):
                await attempted(world, lambda: writer.send_once(NAME, 0, [next(values)]))
                await asyncio.sleep(0.02)
            await attempted(world, lambda: delete_topic(writer.cluster, NAME))

    with world:
        world.loop.run_world(run(), limit_s=200)
        return [str(failure) for failure in world.loop.failures]


def test_topics_are_deleted_while_slow_disks_make_them_durable() -> None:
    assert problems_of_deletions_under_flushes() == []


def test_a_disk_that_is_blamed_for_it_is_caught() -> None:
    with BLAMED.planted():
        assert any("its disk has never failed" in problem for problem in problems_of_deletions_under_flushes())
