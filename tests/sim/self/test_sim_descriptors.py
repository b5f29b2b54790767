"""Files cannot be opened now and then, as sockets hold all descriptors: nothing is lost, and no node stops."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from odradek.common.errors import StorageError
from odradek.common.ports import is_out_of_descriptors
from odradek.log.rolling import roll
from odradek.server.network import descriptors
from tests.sim import faults
from tests.sim.cluster import ManyNodes
from tests.sim.disk import DiskFaults
from tests.sim.failures import failures
from tests.sim.one_node import OneNode
from tests.sim.runs import Scenario, run_seed
from tests.sim.self.test_sim_findings import DRAWS, LOOSE, append, new_disk, opened
from tests.sim.world import Machine

pytestmark = pytest.mark.usefixtures("no_log_lines")

OTHER_FAULTS = ("cut", "crash", "pause")


@pytest.fixture(autouse=True)
def files_are_opened_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "MAX_OPEN_FILES", 2)


def too_many_files(swarm: faults.Swarm, random: Random) -> faults.Swarm:
    """The same faults, but for those of machines and disks, of which this is the only one."""
    return replace(
        swarm,
        loses_power=False,
        every_s={kind: every if kind in OTHER_FAULTS else 0.0 for kind, every in swarm.every_s.items()},
        disk=DiskFaults(too_many_files=random.choice((0.01, 0.1, 0.3)), slow_sync=swarm.disk.slow_sync),
    )


def while_it_runs(machine: Machine) -> None:
    """A node that starts has no clients yet that could hold descriptors."""
    machine.disk.happens = lambda fault: machine.broker is not None


class Crowded(Scenario):
    """Machines whose processes run out of descriptors while they serve."""

    @classmethod
    def draw(cls, random: Random, without: frozenset[str]) -> faults.Swarm:
        return too_many_files(super().draw(random, without), random)

    def add_machines(self) -> None:
        super().add_machines()  # type: ignore[misc]
        for machine in self.world.machines.values():
            while_it_runs(machine)


class CrowdedNode(Crowded, OneNode):
    world_name = "crowded node"


class CrowdedCluster(Crowded, ManyNodes):
    world_name = "crowded cluster"


def test_a_flush_that_was_held_up_is_done_whole_by_the_next() -> None:
    for seed in range(DRAWS):
        disk = new_disk(seed)
        log = opened(disk, LOOSE)
        append(log)
        log.flush()
        append(log, epoch=3)
        roll(log, 0)
        append(log, epoch=4)
        disk.faults = DiskFaults(too_many_files=1.0)
        with pytest.raises(StorageError) as held_up:
            log.flush()
        assert is_out_of_descriptors(held_up.value.__cause__)
        disk.faults = DiskFaults()
        log.flush_state.undone()
        log.flush()
        disk.lose_power()
        after = opened(disk, LOOSE, log.recovery_point)
        assert [after.epoch_of(offset) for offset in range(after.log_end_offset)] == [0, 3, 4]


@pytest.mark.parametrize("seed", [4, 8, 12])
def test_a_node_without_descriptors_loses_nothing(seed: int) -> None:
    report = run_seed(seed, kind=CrowdedNode)
    assert not failures([report])


@pytest.mark.parametrize("seed", [4, 6])
def test_a_cluster_without_descriptors_loses_nothing(seed: int) -> None:
    report = run_seed(seed, kind=CrowdedCluster)
    assert not failures([report])
