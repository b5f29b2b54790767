"""Directed scenarios, one for each planted bug of several nodes that seeds find late or not at all.

A scenario is a file of `tests/scenarios`, a function that asserts something, or a random walk of the controller.
"""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import OdradekError
from tests.scenarios.script import ScriptError, play
from tests.scenarios.words_controller import ControllerWords
from tests.scenarios.words_isr import IsrWords
from tests.scenarios.words_raft import RaftWords
from tests.sim import faults
from tests.sim.disk import DiskFaults
from tests.sim.polling import until
from tests.sim.quorum_box import QuorumMachine, QuorumRun, QuorumWorld
from tests.unit.controller.test_controller_walks import Walk
from tests.unit.replica import test_fetcher, test_replica_planted

FILES = Path(__file__).parents[1] / "scenarios"
WORDS: dict[str, Callable[[], Any]] = {"raft": RaftWords, "isr": IsrWords, "controller": ControllerWords}
WALK_SEEDS = 10
WALK_STEPS = 200
SLOW_S = 3.0
PATIENCE_S = 40.0


def metadata_is_durable_before_it_counts() -> None:
    """Two of three controllers have a record, one of them not on its disk yet: it is not acknowledged until then."""
    world = next(each for seed in range(9) if not (each := QuorumWorld(seed, faults.none())).dynamic)
    scenario = QuorumRun(world)

    async def run() -> None:
        world.build()
        await until(lambda: scenario._write_once("first", "1"), pause_s=0.05)
        await asyncio.sleep(1)
        leader, slow, away, *_ = sorted(voters(world), key=lambda each: not leads(each))
        for other in (leader, slow):
            world.wires.cut(away.name, other.name)
            world.wires.cut(other.name, away.name)
        slow.disk.faults = DiskFaults(slow_sync=1.0, slow_sync_ms=(1000 * SLOW_S, 1000 * SLOW_S))
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: scenario._write_once("second", "2"), pause_s=0.05)
            for machine in (slow, leader):
                machine.kill(power=True)
            slow.disk.faults = DiskFaults()
            world.wires.heal()
            slow.start()
            await until(lambda: any(leads(each) for each in (slow, away)), pause_s=0.05)
            await asyncio.sleep(1)
        new_leader = next(each for each in (slow, away) if leads(each))
        assert new_leader.parts is not None
        known = new_leader.parts.dispatcher.services.publisher.image.config(32, "second").get("x")
        assert known == "2", f"acknowledged, and {new_leader.name} knows {known}"

    with world:
        world.loop.run_world(run(), limit_s=200)


def voters(world: QuorumWorld) -> list[QuorumMachine]:
    return [each for each in world.machines.values() if isinstance(each, QuorumMachine) and each.node_id <= 3]


def leads(machine: QuorumMachine) -> bool:
    return machine.running and machine.parts is not None and machine.parts.driver.leads


def eligible_replicas_have_all() -> None:
    """Run random walks of the controller, which check that every eligible replica has all committed records."""
    for seed in range(WALK_SEEDS):
        walk = Walk(seed)
        for _ in range(WALK_STEPS):
            walk.step()


DIRECTED: dict[str, str | Callable[..., None]] = {
    "two votes in one epoch": "raft_restart",
    "votes for a shorter log": "raft_stale_log",
    "metadata acknowledged before it is durable": metadata_is_durable_before_it_counts,
    "a leader without a majority stays": "raft_partition",
    "a response of an earlier leader epoch is appended": (
        test_fetcher.test_dropped_partitions_are_named_again_in_the_session
    ),
    "fetches of an old epoch are counted": test_replica_planted.fetches_of_another_epoch_are_refused,
    "a follower is asked for what is not durable": test_fetcher.nothing_is_acknowledged_before_it_is_durable,
    "in-sync sets are taken from old leaders": "controller_election",
    "in-sync sets overtake each other": "controller_election",
    "fenced brokers join in-sync sets": "controller_epochs",
    "eligible replicas are those that left in good time": eligible_replicas_have_all,
    "metadata committed by its leader alone": "raft_election",
    "watermark of the leader alone": "isr_watermark",
    "watermark below min.insync.replicas": "isr_minimum",
    "anybody joins the in-sync set": "isr_joining",
    "anybody is elected": "controller_unclean",
    "a leader's epoch does not rise": "controller_election",
    "a broker without space keeps what it leads": "controller_full_disks",
}


def finds(scenario: str | Callable[..., None]) -> bool:
    """Whether a scenario finds something wrong."""
    try:
        if isinstance(scenario, str):
            path = FILES / f"{scenario}.txt"
            return bool(play(path.read_text(), WORDS[scenario.partition("_")[0]])[1])
        with tempfile.TemporaryDirectory() as folder:
            scenario(*([Path(folder) / "logs"] if inspect.signature(scenario).parameters else []))
    except (AssertionError, ScriptError, OdradekError, TimeoutError, pytest.fail.Exception):
        # The rest of a file may not even make sense any more.
        return True
    return False
