"""The invariants bite: each is violated in a running world, from outside, and must be reported at the next look."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from odradek.client.connection import connect
from odradek.common.errors import StorageError
from odradek.log.log import Log
from odradek.log.truncation import truncate_to
from odradek.replica.partition import Partition
from tests.sim import faults, memory_growth
from tests.sim.clients import Producer, Recorder
from tests.sim.cluster import SETTINGS, ManyNodes
from tests.sim.cluster_invariants import ClusterWatch
from tests.sim.history import Operation, Outcome, Send
from tests.sim.invariants import Watch
from tests.sim.one_node import Admin
from tests.sim.world import PORT, Machine, World

NAME = "kept-0"


@dataclass
class Scene:
    """A node, or several, with some records in one partition, and the watch."""

    world: World
    machine: Machine
    watch: Watch
    recorder: Recorder
    writer: Producer

    @property
    def partition(self) -> Partition:
        return partition_on(self.machine)

    @property
    def log(self) -> Log:
        return self.partition.log

    def tail(self) -> bytearray:
        """The bytes of the active segment, as they are on the disk."""
        return self.machine.disk.seen(self.log.segments[-1].path)


def partition_on(machine: Machine) -> Partition:
    assert machine.broker is not None
    return next(each for each in machine.broker.replicas if each.name == NAME)


def in_world(act: Callable[[Scene], Any], *, nodes: int = 1) -> tuple[list[str], list[BaseException]]:
    """(problems of the watch, failures of the world) after `act`; before it there must be no problem."""
    world = World(3, faults.none(), settings=SETTINGS if nodes > 1 else {})
    recorder = Recorder()
    found: list[str] = []

    async def run() -> None:
        if nodes > 1:
            ManyNodes(world).add_machines()
        else:
            world.add_machine("node-1", 1)
        for machine in world.machines.values():
            machine.start()
        admin = Admin(world, "admin", 0, recorder, copies=nodes)
        await admin.create_surely("kept", 1, {})
        writer = Producer(
            world,
            "writer",
            1,
            recorder,
            partitions=[("kept", 0)],
            idempotent=False,
            values=itertools.count(1),
            acks=(-1,),
        )
        for _ in range(3):
            await writer.send_once("kept", 0, [next(writer._values) for _ in range(4)])
        await asyncio.sleep(3)
        leader = next(each for each in world.machines.values() if partition_on(each).is_leader)
        watch = ClusterWatch(world, recorder) if nodes > 1 else Watch(world, recorder)
        watch.check()
        assert not recorder.problems
        done = act(Scene(world, leader, watch, recorder, writer))
        if asyncio.iscoroutine(done):
            done = await done
        with done if done is not None else contextlib.nullcontext():
            watch.check()
        found.extend(recorder.problems)

    with world:
        world.loop.run_world(run(), limit_s=120)
        failures = list(world.loop.failures)
    return found, failures


# -- what an admin was answered ----------------------------------------------------------------------------------------


def acknowledged_setting(acknowledged: str, unanswered: list[str], change: bool = True) -> list[str]:
    """The violations where the setting was set to 100 if at all, and an admin remembers this of it."""

    async def act(scene: Scene) -> None:
        admin = Admin(scene.world, "admin", 2, scene.recorder)
        if change:
            await admin.change_setting("100")
            assert (admin.setting, admin.unanswered) == ("100", [])
        admin.setting, admin.unanswered = acknowledged, unanswered
        await admin.verify()

    return in_world(act)[0]


def test_a_lost_acknowledged_setting_is_reported() -> None:
    assert acknowledged_setting("100", []) == []
    (found,) = acknowledged_setting("200", [])
    assert "was set to 200 and is 100" in found
    assert len(acknowledged_setting("200", ["300"])) == 1
    assert len(acknowledged_setting("100", [], change=False)) == 1


def test_an_unanswered_change_may_have_either_value() -> None:
    assert acknowledged_setting("200", ["100"]) == []


# -- one node: violations, and the expected reports --------------------------------------------------------------------


def start_above_the_watermark(scene: Scene) -> None:
    scene.log.log_start_offset = scene.log.high_watermark + 1


def watermark_above_the_end(scene: Scene) -> None:
    scene.log.high_watermark = scene.log.log_end_offset + 1


def stable_above_the_watermark(scene: Scene) -> AbstractContextManager[Any]:
    return mock.patch.object(Log, "last_stable_offset", scene.log.high_watermark + 1)


def recovery_point_above_the_end(scene: Scene) -> None:
    scene.log.flush_state.recovery_point = scene.log.log_end_offset + 1


def watermark_goes_back(scene: Scene) -> None:
    scene.log.high_watermark -= 1


def stable_goes_back(scene: Scene) -> AbstractContextManager[Any]:
    return mock.patch.object(Log, "last_stable_offset", scene.log.last_stable_offset - 1)


def end_of_a_leader_goes_back(scene: Scene) -> None:
    scene.log.high_watermark = scene.log.log_end_offset = scene.log.log_end_offset - 4


def epoch_goes_back(scene: Scene) -> None:
    scene.partition.leader_epoch -= 1


async def _append_changed(scene: Scene, change: Callable[[bytearray, int], None]) -> None:
    tail = scene.tail()
    before = len(tail)
    await scene.writer.send_once("kept", 0, [next(scene.writer._values)])
    # It may have begun a segment.
    change(scene.tail(), before if scene.tail() is tail else 0)


def _put(data: bytearray, at: int, width: int, by: int) -> None:
    number = int.from_bytes(data[at : at + width], "big") + by
    data[at : at + width] = number.to_bytes(width, "big", signed=number < 0)


async def gap_in_the_log(scene: Scene) -> None:
    await _append_changed(scene, lambda data, at: _put(data, at, 8, 1))


async def overlap_in_the_log(scene: Scene) -> None:
    await _append_changed(scene, lambda data, at: _put(data, at, 8, -2))


async def epoch_goes_back_in_the_log(scene: Scene) -> None:
    await _append_changed(scene, lambda data, at: _put(data, at + 12, 4, -1))


def epoch_not_known(scene: Scene) -> None:
    scene.log.epochs.clear()
    scene.log.truncation_count += 1  # so that it is read again


def epochs_before_the_start(scene: Scene) -> None:
    scene.log.epochs.replace([(-1, 0), *scene.log.epochs.entries()])
    scene.log.log_start_offset = 1
    scene.log.truncation_count += 1


async def damage_in_the_log(scene: Scene) -> None:
    await _append_changed(scene, lambda data, at: _put(data, len(data) - 1, 1, -1))


def bytes_behind_the_last_batch(scene: Scene) -> None:
    scene.tail().extend(b"\1" * 7)
    scene.log.segments[-1].batches.size_bytes += 7
    scene.log.truncation_count += 1  # so that it is read again


def _acknowledge(scene: Scene, value: int, offset: int) -> None:
    scene.recorder.complete(Operation(1, Outcome.OK, [Send(NAME, value, offset)], invoked=scene.recorder.invoke()))


def acknowledged_and_not_there(scene: Scene) -> None:
    _acknowledge(scene, 999, scene.log.log_end_offset)


def another_value_is_there(scene: Scene) -> None:
    _acknowledge(scene, 999, scene.log.log_end_offset - 1)


def acknowledged_above_the_watermark(scene: Scene) -> None:
    scene.log.high_watermark = 3
    _acknowledge(scene, 4, 3)


def many_tasks(scene: Scene) -> None:
    for _ in range(memory_growth.MAX_TASKS + 1):
        scene.world.loop.spawn(scene.machine.name, asyncio.sleep(1000))


async def many_connections(scene: Scene) -> None:
    for _ in range(memory_growth.MAX_CONNECTIONS + 1):
        await connect(scene.writer.network, scene.machine.name, PORT, client_id="silent", timeout_s=5)


def many_timers(scene: Scene) -> None:
    for _ in range(memory_growth.MAX_TIMERS + 1):
        scene.world.loop.call_on("world", int, delay_s=1000)


def a_container_grows(scene: Scene) -> None:
    assert scene.machine.broker is not None
    scene.machine.broker.__dict__["forgotten"] = {"requests": list(range(memory_growth.MAX_ENTRIES + 1))}
    scene.watch._next_walk_s = 0.0


def a_buffer_grows(scene: Scene) -> None:
    assert scene.machine.broker is not None
    scene.machine.broker.__dict__["forgotten"] = bytearray(memory_growth.MAX_BYTES + 1)
    scene.watch._next_walk_s = 0.0


ONE_NODE: dict[Callable[[Scene], Any], str] = {
    start_above_the_watermark: "start, watermark and end are",
    watermark_above_the_end: "start, watermark and end are",
    stable_above_the_watermark: "last stable offset",
    recovery_point_above_the_end: "recovery point",
    watermark_goes_back: "marks went back",
    stable_goes_back: "marks went back",
    end_of_a_leader_goes_back: "marks went back",
    epoch_goes_back: "leader epoch went back",
    gap_in_the_log: "where 12 was to be",
    overlap_in_the_log: "offset 10 where 12 was to be",
    epoch_goes_back_in_the_log: "behind one of",
    epoch_not_known: "counts as of -1",
    epochs_before_the_start: "epochs begin at [0, 0], the log at 1",
    damage_in_the_log: "is damaged at position",
    bytes_behind_the_last_batch: "7 bytes behind its last batch",
    acknowledged_and_not_there: "999 was acknowledged at offset",
    another_value_is_there: "999 was acknowledged at offset",
    acknowledged_above_the_watermark: "offset 3 is acknowledged, the watermark is 3",
    many_tasks: "tasks are alive",
    many_connections: "connections are open",
    many_timers: "timers are set",
    a_container_grows: "Broker.forgotten holds",
    a_buffer_grows: "Broker.forgotten holds",
}


@pytest.mark.parametrize(("act", "text"), ONE_NODE.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_a_violation_in_one_node_is_reported(act: Callable[[Scene], Any], text: str) -> None:
    problems, _ = in_world(act)
    assert any(text in problem and problem.startswith("node-1: ") for problem in problems), problems


# -- between nodes -----------------------------------------------------------------------------------------------------


def two_leaders(scene: Scene) -> None:
    follower = next(each for each in scene.world.machines.values() if each is not scene.machine)
    assert follower.broker is not None
    partition_on(follower).leader_id = partition_on(follower).broker_id


def a_leader_without_what_was_committed(scene: Scene) -> None:
    follower = next(each for each in scene.world.machines.values() if each is not scene.machine)
    partition = partition_on(follower)
    partition.leader_id = partition.broker_id
    partition.leader_epoch += 1
    truncate_to(partition.log, 4)


def two_leaders_of_the_quorum(scene: Scene) -> AbstractContextManager[Any]:
    drivers = [each.broker.raft for each in scene.world.machines.values() if each.broker is not None]
    return mock.patch.object(type(drivers[0]), "leads", True)


def a_leader_of_the_quorum_without_what_was_committed(scene: Scene) -> AbstractContextManager[Any]:
    return mock.patch.object(type(scene.machine.broker.raft), "end_offset", 2)  # type: ignore[union-attr]  # the machine runs


BETWEEN_NODES: dict[Callable[[Scene], Any], str] = {
    two_leaders: "leads kept-0 in epoch 0, and so does node-",
    a_leader_without_what_was_committed: "with records up to 4, 12 was committed",
    two_leaders_of_the_quorum: "leads the quorum in epoch",
    a_leader_of_the_quorum_without_what_was_committed: "leads the quorum with 2 records",
}


@pytest.mark.parametrize(("act", "text"), BETWEEN_NODES.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_a_violation_between_nodes_is_reported(act: Callable[[Scene], Any], text: str) -> None:
    problems, _ = in_world(act, nodes=3)
    assert any(text in problem for problem in problems), problems


# -- tasks and their owners --------------------------------------------------------------------------------------------


def test_a_task_that_outlives_a_clean_stop_is_reported() -> None:
    async def act(scene: Scene) -> None:
        scene.world.loop.spawn(scene.machine.name, asyncio.sleep(1000), name="without-owner")
        await scene.world._stop(scene.machine, scene.world.random)

    _, failures = in_world(act)
    assert any("has not ended" in str(failure) and "without-owner" in str(failure) for failure in failures)


def test_a_clean_stop_leaves_nothing() -> None:
    async def act(scene: Scene) -> None:
        await scene.world._stop(scene.machine, scene.world.random)

    assert in_world(act) == ([], [])


def test_a_failed_task_that_is_never_awaited_is_reported() -> None:
    async def fails() -> None:
        raise KeyError("lost")

    async def act(scene: Scene) -> None:
        scene.world.loop.spawn(scene.machine.name, fails())
        await asyncio.sleep(1)

    _, failures = in_world(act)
    assert any(isinstance(failure, KeyError) for failure in failures)


@pytest.mark.parametrize("disk_failed", [False, True])
def test_a_broker_that_gives_up_without_a_disk_failure_is_reported(disk_failed: bool) -> None:
    async def act(scene: Scene) -> None:
        if disk_failed:
            scene.machine.disk.injected["sync error"] = 1
        assert scene.machine.broker is not None
        scene.machine.broker.failure.set_result(StorageError(Path("/data"), "made up"))
        await asyncio.sleep(10)

    _, failures = in_world(act)
    found = [failure for failure in failures if "gave up, and its disk has never failed" in str(failure)]
    assert bool(found) is not disk_failed


def test_a_look_costs_little() -> None:
    """Looking again at a world where nothing happens reads no log again."""

    async def act(scene: Scene) -> None:
        with mock.patch.object(scene.machine.disk, "seen", side_effect=AssertionError("read again")):
            for _ in range(50):
                scene.watch.check()

    assert in_world(act) == ([], [])
