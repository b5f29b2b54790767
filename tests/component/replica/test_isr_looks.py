"""The interval between checks of lagging followers, on virtual time."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from odradek.replica.isr_service import IsrService
from odradek.replica.partition import Partition
from tests.sim.clock import SimClock
from tests.sim.loop import SimLoop


def test_followers_are_looked_at_twice_in_the_time_that_they_may_lag() -> None:
    looks: list[float] = []

    def partitions() -> list[Partition]:
        looks.append(loop.time())
        return []

    async def scenario() -> None:
        service = IsrService(
            SimClock(loop),
            broker_id=1,
            broker_epoch=lambda: 5,
            send=lambda _: asyncio.sleep(0, AlterPartitionResponse()),
            partitions=partitions,
            max_lag_ms=30_000,
        )
        service.start()
        await asyncio.sleep(46)
        service.max_lag_ms = 4
        await asyncio.sleep(14.015)
        await service.stop()

    with SimLoop(Random(1), start_s=0) as loop:
        loop.run_world(scenario(), limit_s=100)
    assert looks == pytest.approx([15, 30, 45, 60, 60.01]), "and not more often than every 10 ms"
