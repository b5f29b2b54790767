"""Fills the disk of one broker at the end of a run: the partitions that it led must soon be written elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count

from odradek.common.errors import OdradekError
from tests.sim.clients import Producer, Recorder
from tests.sim.disk import UNLIMITED_BYTES
from tests.sim.polling import until
from tests.sim.world import Machine, World


async def works_without_space(world: World, machine: Machine, partitions: Sequence[tuple[str, int]]) -> None:
    """Fill a disk, and return when each partition has taken a record and is led by another one; then there is space."""
    writer = Producer(
        world, "late-writer", 7, Recorder(), partitions=list(partitions), idempotent=False, values=count(1), acks=(-1,)
    )
    world.report(f"the disk of {machine.name} is full for good")
    machine.disk.faults = replace(machine.disk.faults, capacity_bytes=0)
    for topic, partition in partitions:
        await until(partial(_sent, writer, topic, partition))
        assert leader_of(world, topic, partition) != machine.node_id, "it has taken what it cannot write"
    world.report(f"the disk of {machine.name} has room")
    machine.disk.faults = replace(machine.disk.faults, capacity_bytes=UNLIMITED_BYTES)


async def _sent(writer: Producer, topic: str, partition: int) -> bool:
    try:
        return await writer.send_once(topic, partition, writer.batch())
    except OdradekError:
        return False


def leader_of(world: World, topic: str, partition: int) -> int:
    """The leader, as the active controller knows it; -1 where none is active."""
    for machine in world.machines.values():
        if machine.broker is not None and machine.broker.raft.leads:
            known = machine.broker.publisher.image.partition(topic, partition)
            return -1 if known is None else known.leader
    return -1
