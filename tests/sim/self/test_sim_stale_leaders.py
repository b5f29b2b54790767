"""A member of a group that is given a partition, and is sent to a leader that lacks what the group has read already.

A broker that is cut off from the others leads on, as far as it knows, and clients that know of no other believe it.
An offset that was committed bears the leader epoch of the record before it (KIP-320): no member looks for it there.
"""

from __future__ import annotations

import itertools

import pytest

from odradek.common.errors import ApiError, ErrorCode, OdradekError
from tests.sim import faults
from tests.sim.clients import Producer, Recorder
from tests.sim.cluster import COPIES, ManyNodes
from tests.sim.cluster_world import ClusterWorld
from tests.sim.members import Member
from tests.sim.one_node import TOPIC, Admin
from tests.sim.polling import surely
from tests.sim.world import PORT

GROUP = "pair"
TRIES = 20
MORE = 10


def problems_of_a_member_that_meets_an_old_leader() -> list[str]:
    """The violations that it finds, asking again and again while the old leader is the only one in its metadata."""
    world = ClusterWorld(1, faults.none())
    recorder = Recorder()
    refused: list[OdradekError] = []

    async def scenario() -> None:
        ManyNodes(world).add_machines()
        for machine in world.machines.values():
            machine.start()
        admin = Admin(world, "admin", 0, recorder, copies=COPIES)
        await admin.create_surely(TOPIC, COPIES, {})
        first, late = (
            Member(world, name, number, recorder, group=GROUP, partitions={TOPIC: COPIES})
            for number, name in enumerate(("first", "late"), start=1)
        )
        coordinator = await first.cluster.coordinator(GROUP)
        # All others ask node 1 for the leader.
        old, key = next(
            (each.leader_id, (TOPIC, each.partition_index))
            for each in (await first.cluster.topic(TOPIC)).partitions
            if each.leader_id not in (1, coordinator)
        )
        first.positions, first._committed = {key: 0}, {key: 0}
        writer = Producer(
            world, "writer", 3, recorder, partitions=[key], idempotent=False, values=itertools.count(), acks=(-1,)
        )

        async def store(values: list[int]) -> None:
            if not await writer.send_once(*key, values):
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "it is not acknowledged")

        await surely(lambda: store([1, 2]))
        for name in world.machines:
            if name != f"node-{old}":
                world.wires.cut(name, f"node-{old}")
                world.wires.cut(f"node-{old}", name)
        # Like a broker of Apache Kafka, it does not notice that it is cut off, and goes on naming itself as leader.
        isolated = world.machines[f"node-{old}"].broker
        assert isolated is not None
        isolated.replicas.isolation.session_ms = 10**9
        await surely(lambda: store([3]))
        # Records sent before that may be in the old leader's log, without an acknowledgement. It lacks the next ones.
        await surely(lambda: store(list(range(4, 4 + MORE))))
        await surely(first.drain)
        await surely(first._commit)
        committed = first._committed[key]
        assert committed > MORE
        late.cluster._bootstrap = [(f"node-{old}", PORT)]
        assert (await late.cluster.topic(TOPIC)).partitions[key[1]].leader_id == old
        late._coordinator = await late.cluster.connection_to(coordinator)
        late._to_fetch = [key]
        await late._fetch_committed()
        assert late.positions == {key: committed}
        for _ in range(TRIES):
            try:
                await late.poll(max_wait_ms=0)
            except OdradekError as error:
                refused.append(error)
        world.wires.heal()
        await surely(lambda: store([0]))
        while late.positions[key] <= committed:
            await surely(late.poll)

    with world:
        world.loop.run_world(scenario(), limit_s=200)
    assert recorder.problems or len(refused) == TRIES
    return recorder.problems


def test_records_of_a_later_epoch_are_not_fetched_from_an_older_leader() -> None:
    assert not problems_of_a_member_that_meets_an_old_leader()


def test_a_member_that_does_not_look_at_epochs_misses_what_was_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Member, "heard_of_epoch", lambda self, key, leader_epoch: None)
    assert "was there and is gone" in problems_of_a_member_that_meets_an_old_leader()[0]
