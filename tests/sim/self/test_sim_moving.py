"""The world in which partitions move: seeds that hold, brokers that come and leave, and bugs that are caught."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from odradek.client.reassignment import PREFERRED, elect_leaders, move_replicas, ongoing_reassignments
from tests.sim import faults
from tests.sim.bugs import known_seeds, problem_of
from tests.sim.clients import Producer
from tests.sim.cluster import COPIES
from tests.sim.cluster_invariants import METADATA_LOG
from tests.sim.cluster_world import ClusterWorld
from tests.sim.failures import failures
from tests.sim.one_node import TOPIC, Admin
from tests.sim.planted_cluster import MOVING
from tests.sim.polling import surely, until
from tests.sim.readers import Reader
from tests.sim.reassignments import Mover, MovingCluster
from tests.sim.runs import run_seed

# `make test` runs the first ones, in which all happens that is looked for, `make test-all` all of them.
SHORT_SEEDS = range(1, 3)
MORE_SEEDS = range(3, 11)
KEY = (TOPIC, 0)
# Enough of them to bring about a snapshot, and the end of what came before it.
EARLIER_TOPICS = 30
PATIENCE_S = 60.0


pytestmark = pytest.mark.usefixtures("no_log_lines")


@pytest.mark.parametrize("seeds", [SHORT_SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.slow)], ids=str)
def test_seeds_hold_while_partitions_move_and_brokers_come_and_leave(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    movers: list[Mover] = []
    original = MovingCluster.more_clients

    def watched(self: MovingCluster) -> list[Any]:
        clients = original(self)
        movers.extend(client for client in clients if isinstance(client, Mover))
        return clients

    monkeypatch.setattr(MovingCluster, "more_clients", watched)
    reports = [run_seed(seed, kind=MovingCluster) for seed in seeds]
    failed = failures(reports)
    assert not failed, failed
    for kind in ("new broker", "broker left", "topic deleted", "records deleted"):
        assert any(kind in report.faults for report in reports), kind
    assert sum(mover.begun for mover in movers) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_planted_bug_is_caught(number: int) -> None:
    bug = MOVING[number]
    known, _ = known_seeds()[bug.name]
    assert known is not None
    with bug.planted():
        assert any(problem_of(seed, MovingCluster) for seed in itertools.chain([known], range(1, 12))), bug.meaning


def a_new_broker_takes_over() -> None:
    """It begins at a snapshot of the metadata, is given a partition, leads it and has all that was written before."""
    world = ClusterWorld(2, faults.none(), settings=MovingCluster.settings)
    house = MovingCluster(world)
    house._late = [4, 5]

    async def scenario() -> None:
        house.add_machines()
        for machine in world.machines.values():
            machine.start()
        admin = Admin(world, "admin", 0, house.recorder, copies=COPIES)
        await admin.create_surely(TOPIC, 1, {})
        for number in range(EARLIER_TOPICS):
            await admin.create_surely(f"more-{number}", 1, {})
        writer = Producer(
            world, "writer", 1, house.recorder, partitions=[KEY], idempotent=False, values=itertools.count(), acks=(-1,)
        )
        await surely(lambda: writer.send_once(*KEY, [1, 2, 3]))
        newcomer = house.add_broker(4)
        newcomer.start()

        async def takes_the_move() -> bool:
            return (await move_replicas(admin.cluster, {KEY: (4, 1)}))[KEY] is None

        async def nothing_moves() -> bool:
            return not await ongoing_reassignments(admin.cluster)

        async def leads() -> bool:
            return (await admin.cluster.topic(TOPIC)).partitions[0].leader_id == 4

        async with asyncio.timeout(PATIENCE_S):
            await until(takes_the_move)
            await until(nothing_moves)
            await elect_leaders(admin.cluster, PREFERRED, [KEY])
            await until(leads)
        reader = Reader(world, "reader", 2, house.recorder, partitions=[KEY], sessions=False)
        await surely(reader.drain)
        assert reader.positions[KEY] == 3
        # One that dies over what it does not know would find the snapshot on its disk.
        assert newcomer.starts == 1
        names = [path.name for path in newcomer.disk.snapshot() if path.parent.name == METADATA_LOG]
        assert min(int(name.split(".")[0]) for name in names if name.endswith(".log")) > 0, names
        assert newcomer.broker is not None
        assert {topic.name for topic in newcomer.broker.publisher.image.topics_by_id.values()} >= set(admin.created)

    with world:
        world.loop.run_world(scenario(), limit_s=200)
        assert not house.problems


def test_a_new_broker_takes_over() -> None:
    a_new_broker_takes_over()


def test_a_new_broker_that_does_not_know_the_cluster_is_caught() -> None:
    with MOVING[1].planted(), pytest.raises((AssertionError, TimeoutError)):
        a_new_broker_takes_over()
