"""Worlds whose processes run out of descriptors while they serve; seeds of them are run by their test alone."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from odradek.server.network import descriptors
from tests.sim import faults
from tests.sim.cluster import ManyNodes
from tests.sim.disk import DiskFaults
from tests.sim.one_node import OneNode
from tests.sim.runs import Scenario
from tests.sim.world import Machine

# Few files stay open, so that many are opened.
KEPT_OPEN = 2
OTHER_FAULTS = ("cut", "crash", "pause")


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

    async def run(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(descriptors, "MAX_OPEN_FILES", KEPT_OPEN)
            await super().run()

    def add_machines(self) -> None:
        super().add_machines()  # type: ignore[misc]  # a mixin: the world is the other base
        for machine in self.world.machines.values():
            while_it_runs(machine)


class CrowdedNode(Crowded, OneNode):
    world_name = "crowded-node"


class CrowdedCluster(Crowded, ManyNodes):
    world_name = "crowded-cluster"
