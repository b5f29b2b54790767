"""Replication quotas (KIP-73) at the end of a run: they hold back a follower that lags, and no replica in sync."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from odradek.client.admin import ConfigOperation, ResourceType
from odradek.common.errors import ErrorCode, OdradekError
from odradek.metadata.model import PartitionImage
from odradek.protocol.messages import incremental_alter_configs_request as alter
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from tests.sim.clients import Client
from tests.sim.cluster_invariants import unconverged
from tests.sim.polling import surely, until
from tests.sim.world import World

# Where the bytes of a throttled partition count: at its leader, which sends them, or at each follower.
Side = Literal["leader", "follower"]
SIDES: tuple[Side, ...] = ("leader", "follower")
# One record uses up the quota of a day.
RATE = 1
IN_SYNC_WRITES, IN_SYNC_BYTES = 3, 20_000
# More than one fetch takes of a partition (replica.fetch.max.bytes is 1 MiB).
BACKLOG_WRITES, BACKLOG_BYTES = 4, 600_000
HELD_BACK_S = 2.0
CAUGHT_UP_WITHIN_S = 10.0


class ReplicationQuotas:
    """Throttles one topic's replication on one side, on every broker.

    Args:
        write: appends a record of so many bytes to the partition, with acks=all, however often it takes.
    """

    def __init__(self, world: World, operator: Client, topic: str, write: Callable[[int], Awaitable[object]]) -> None:
        self._world = world
        self._operator = operator
        self._topic = topic
        self._write = write

    async def check(self, side: Side) -> None:
        """Check what a quota does to replicas in sync and to one that was down, and that it ends with its setting."""
        brokers = [machine for machine in self._world.machines.values() if machine.is_broker]
        throttled = f"{side}.replication.throttled.replicas"
        rate = f"{side}.replication.throttled.rate"
        for machine in brokers:
            await self._set(ResourceType.BROKER, str(machine.node_id), {rate: str(RATE)})
        await self._set(ResourceType.TOPIC, self._topic, {throttled: "*"})
        await self._all_in_sync("replicas that were in sync before they were throttled")
        for _ in range(IN_SYNC_WRITES):
            await self._write(IN_SYNC_BYTES)
        await self._all_in_sync(f"in-sync replicas are held back by the quota of the {side}")
        leader = await self._state()
        lagging = next(machine for machine in brokers if machine.node_id != leader.leader)
        self._world.report(f"{lagging.name} is down, and its copies are throttled by the {side}")
        lagging.kill()
        for _ in range(BACKLOG_WRITES):
            await self._write(BACKLOG_BYTES)
        lagging.start()
        await until(lambda: lagging.broker is not None)
        await asyncio.sleep(HELD_BACK_S)
        if lagging.node_id in (await self._state()).isr:
            self._operator.problem(f"{lagging.name} caught up at once, though the {side} is throttled")
        for machine in brokers:
            await self._set(ResourceType.BROKER, str(machine.node_id), {rate: None})
        await self._all_in_sync(f"{lagging.name} is held back by a quota of the {side} that is removed")
        await self._set(ResourceType.TOPIC, self._topic, {throttled: None})

    async def _set(self, kind: ResourceType, name: str, values: Mapping[str, str | None]) -> None:
        """Set or remove (None) settings of one topic or broker, however often it takes."""
        changes = [
            alter.AlterableConfig(
                name=key, config_operation=ConfigOperation.DELETE if value is None else ConfigOperation.SET, value=value
            )
            for key, value in values.items()
        ]
        resource = alter.AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        request = alter.IncrementalAlterConfigsRequest(resources=[resource])

        async def once() -> None:
            answer = await self._operator.cluster.request(request, IncrementalAlterConfigsResponse)
            code, message = answer.responses[0].error_code, answer.responses[0].error_message
            if code:
                raise OdradekError(f"{ErrorCode(code).name}: {message}")

        await surely(once)

    async def _all_in_sync(self, meaning: str) -> None:
        """Check that every broker soon has the same metadata and every replica is in sync."""
        try:
            async with asyncio.timeout(CAUGHT_UP_WITHIN_S):
                await until(lambda: not unconverged(self._world))
        except TimeoutError:
            self._operator.problem(f"{meaning}: {unconverged(self._world)}")

    async def _state(self) -> PartitionImage:
        """The first partition, as the active controller knows it."""
        while True:
            for machine in self._world.machines.values():
                if machine.broker is not None and machine.broker.raft.leads:
                    state = machine.broker.publisher.image.partition(self._topic, 0)
                    if state is not None:
                        return state
            await asyncio.sleep(0.1)
