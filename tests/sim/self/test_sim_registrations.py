"""Registrations of brokers on a slow network: that of a killed process may come after its successor's."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.sim import faults
from tests.sim.cluster import ManyNodes
from tests.sim.cluster_world import ClusterWorld
from tests.sim.network import NetworkFaults
from tests.sim.polling import until

pytestmark = pytest.mark.usefixtures("no_log_lines")

# A seed in which one comes late.
LATE_REGISTRATIONS = 10


def test_a_registration_of_a_killed_process_that_comes_late_is_replaced() -> None:
    """Its bytes were on their way when the node was killed and started again: the node that lives registers again."""
    random, replaced = Random(LATE_REGISTRATIONS), 0
    world = ClusterWorld(LATE_REGISTRATIONS, faults.none())

    async def run() -> None:
        nonlocal replaced
        ManyNodes(world).add_machines()
        for machine in world.machines.values():
            machine.start()
        node = world.machines["node-3"]
        for _ in range(4):
            await until(lambda: all(each.broker is not None for each in world.machines.values()), pause_s=0.05)
            node.kill()
            node.start()
            world.wires.faults = NetworkFaults(stall=0.3, stall_ms=(300.0, 600.0))
            await asyncio.sleep(random.uniform(0.05, 0.5))
            world.wires.faults = NetworkFaults()
            node.kill()
            node.start()
            await until(lambda: node.process is not None and node.process.lifecycle.broker_epoch >= 0, pause_s=0.001)
            assert node.process is not None
            lifecycle, before = node.process.lifecycle, node.process.lifecycle.broker_epoch
            await asyncio.sleep(2)
            replaced += lifecycle.broker_epoch > before

    with world:
        world.loop.run_world(run(), limit_s=200)
        assert not world.loop.failures and world.counts.get("gave up", 0) == 0
    assert replaced
