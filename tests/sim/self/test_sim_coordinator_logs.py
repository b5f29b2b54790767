"""A broker that leads a coordinator's partition whose log it cannot have: it lives on, and has a coordinator later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.common.errors import ApiError
from tests.sim import faults
from tests.sim.directories import TwoDirectories
from tests.sim.disk import DiskFaults
from tests.sim.polling import until
from tests.sim.runs import run_seed
from tests.sim.world import World

pytestmark = pytest.mark.usefixtures("no_log_lines")

TOPIC = "__consumer_offsets"
PARTITIONS = 2
# Bytes that are left when the first client asks for its coordinator: from too few for the records that make the topic
# to enough for the logs of all its partitions.
ROOM = range(0, 2000, 40)


def made_on_a_full_disk(room_bytes: int) -> int:
    """The number of the topic's logs that found no space at first, in a run in which there is space a while later."""
    world = World(1, faults.none())
    machine = world.add_machine("node-1", 1)
    unplaced: list[Any] = []

    async def ask() -> None:
        assert machine.broker is not None
        try:
            await machine.broker.coordinator.find_coordinator("g", "PLAINTEXT")
        except ApiError:
            return

    async def run() -> None:
        machine.start()
        await until(lambda: machine.broker is not None, pause_s=0.05)
        broker = machine.broker
        assert broker is not None
        machine.disk.faults = DiskFaults(capacity_bytes=machine.disk.used_bytes() + room_bytes)
        world.loop.spawn(machine.name, ask())
        await asyncio.sleep(2)
        unplaced.extend(key for key in broker.replicas._unplaced if key[0] == TOPIC)
        machine.disk.faults = DiskFaults()
        async with asyncio.timeout(60):
            while machine.broker is None or len(machine.broker.coordinator.shards) < PARTITIONS:
                if machine.broker is not None:
                    await world.loop.spawn(machine.name, ask())
                await asyncio.sleep(1)
        if unplaced:
            assert machine.broker is broker, "it has ended, and was started again"

    with world:
        world.loop.run_world(run(), limit_s=200)
        failures = list(world.loop.failures)
    assert not failures
    return len(unplaced)


def test_there_is_no_space_for_the_log_until_later() -> None:
    assert any(made_on_a_full_disk(room_bytes) for room_bytes in ROOM)


def test_its_directory_was_offline_when_it_started() -> None:
    """A seed in which a broker starts without a directory, and leads there by what it knew before."""
    report = run_seed(301, kind=TwoDirectories)
    assert not report.failed, report.problems
