"""A quorum in the box: real raft drivers and controllers on simulated machines, a writer, the faults of a seed.

The checks: there is one leader in an epoch; two replicas publish the same at an offset; acknowledged records are there
when everything is healed; everything works again soon after; if the leader's disk stays full, another one leads soon;
no running replica fails, as no disk fails here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from odradek.client.connection import connect
from odradek.common.errors import ErrorCode, OdradekError
from odradek.common.ports import make_dirs_durably
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages import incremental_alter_configs_request as configs
from odradek.protocol.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from odradek.protocol.messages.add_raft_voter_response import AddRaftVoterResponse
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from odradek.protocol.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from odradek.raft.metadata_log import DIRECTORY
from odradek.raft.snapshot import SnapshotId, encode_snapshot, write_snapshot
from odradek.raft.voter_history import record_of
from odradek.raft.voters import ReplicaKey, Voter, VoterSet
from tests.sim import faults
from tests.sim.disk import UNLIMITED_BYTES
from tests.sim.network import SimNetwork
from tests.sim.polling import until
from tests.sim.progress import progress
from tests.sim.runs import Scenario
from tests.sim.world import Machine, World
from tests.support.models.controller_harness import CLUSTER
from tests.support.nodes.quorum_replicas import LISTENER, Parts

PORT = 9093
TROUBLE_S = (8.0, 20.0)
PROGRESS_S = 40.0
GROUP = 32
RAFT = {"snapshot_bytes": 2000, "retention_bytes": 5000, "fetch_snapshot_max_bytes": 700, "snapshot_interval_ms": 0}


class QuorumChecker:
    """Violations by all replicas together."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.leaders: dict[int, str] = {}
        self.published: dict[int, str] = {}

    def elected(self, name: str, leader_epoch: int) -> None:
        other = self.leaders.setdefault(leader_epoch, name)
        if other != name:
            self.problems.append(f"{other} and {name} both lead epoch {leader_epoch}")

    def committed(self, name: str, records: Sequence[tuple[int, Any]], leader_epoch: int) -> None:
        for offset, record in records:
            text = f"epoch {leader_epoch}: {record}"
            other = self.published.setdefault(offset, text)
            if other != text:
                self.problems.append(f"{name} published at {offset} {text}; before that was {other}")


class CheckedPublisher(MetadataPublisher):
    """Passes what is published to the checker."""

    def __init__(self, checker: QuorumChecker, name: str) -> None:
        super().__init__(CLUSTER)
        self._checker = checker
        self._name = name

    def committed(self, records: Sequence[tuple[int, Any]], leader_epoch: int, *, is_part: bool = False) -> None:
        self._checker.committed(self._name, records, leader_epoch)
        super().committed(records, leader_epoch, is_part=is_part)


class QuorumMachine(Machine):
    """A machine whose process is a replica with its controller."""

    world: QuorumWorld

    @property
    def is_broker(self) -> bool:
        return False

    @property
    def directory(self) -> Path:
        return Path("/data") / DIRECTORY

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, UUID(int=self.node_id))

    async def _process(self) -> None:
        world = self.world
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        def on_failed(error: BaseException) -> None:
            if not failed.done():
                failed.set_result(error)

        publisher = CheckedPublisher(world.checker, self.name)
        parts = Parts(
            self.directory,
            self.key,
            (self.name, PORT),
            VoterSet() if world.dynamic else world.voters,
            clock=self.clock,
            disk=self.disk,
            network=SimNetwork(world.wires, self.name),
            chance=Random(world.random.getrandbits(64)),
            bootstrap=[(f"node-{number}", PORT) for number in (1, 2, 3)],
            cluster_id=CLUSTER,
            is_controller=self.node_id <= world.controllers,
            publisher=publisher,
            raft={**RAFT, "auto_join": self.node_id == world.controllers},
            on_failed=on_failed,
            on_elected=lambda leader_epoch: world.checker.elected(self.name, leader_epoch),
        )
        try:
            await parts.start()
            self.broker = parts  # type: ignore[assignment]  # its machines have parts of a broker
            world.report(f"{self.name} is ready")
            failure = await failed
        except (OdradekError, OSError) as error:
            failure = error
        started = self.broker is not None
        if started or "no space" not in self.disk.injected:  # a disk that is full at a start ends it
            world.checker.problems.append(f"{self.name} gave up: {type(failure).__name__}: {failure}")
        world.ended_by_itself(self, failure)

    @property
    def parts(self) -> Parts | None:
        return self.broker  # type: ignore[return-value]  # its machines have parts of a broker


class QuorumWorld(World):
    """Machines 1 to 3 are the first voters; the fourth is an observer, or a controller that may become a voter."""

    def __init__(self, seed: int, swarm: faults.Swarm, on_event: Callable[[str], None] | None = None) -> None:
        super().__init__(seed, swarm, on_event=on_event)
        self.checker = QuorumChecker()
        self.dynamic = self.random.random() < 0.5
        self.controllers = 5 if self.dynamic else 3
        keys = [ReplicaKey(number, UUID(int=number if self.dynamic else 0)) for number in (1, 2, 3)]
        self.voters = VoterSet(Voter(key, {LISTENER: (f"node-{key.node_id}", PORT)}) for key in keys)

    def build(self) -> None:
        """Make the machines, formatted, and start them."""
        data = encode_snapshot(
            [], metadata_version=30, leader_epoch=0, now_ms=1, kraft_version=1, voters=record_of(self.voters)
        )
        for number in range(1, 6 if self.dynamic else 5):
            machine = self.machines[f"node-{number}"] = QuorumMachine(self, f"node-{number}", number, {})
            if self.dynamic and number <= 3:
                make_dirs_durably(machine.disk, machine.directory)
                write_snapshot(machine.disk, machine.directory, SnapshotId(0, 0), data)
            machine.start()


class QuorumRun(Scenario):
    """One run: a writer, perhaps someone who changes voters, faults, and the verdict."""

    world_name = "quorum"
    salt = 0x0D12
    limit_s = 200.0
    world: QuorumWorld

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.world.checker.problems = self.recorder.problems
        self.network = SimNetwork(world.wires, "writer")
        self.acknowledged: dict[str, str] = {}
        self.stopping = False

    @classmethod
    def draw(cls, random: Random, without: frozenset[str]) -> faults.Swarm:
        """Draw faults without failing disks; disks may be full."""
        swarm = faults.draw(random, without)
        for kind in faults.DISK_ERRORS:
            setattr(swarm.disk, kind, 0.0)
        return swarm

    @classmethod
    def make_world(cls, seed: int, swarm: faults.Swarm, on_event: Callable[[str], None] | None) -> QuorumWorld:
        return QuorumWorld(seed, swarm, on_event)

    @property
    def operations(self) -> int:
        """The acknowledged values, which takes a leader."""
        return len(self.acknowledged)

    async def run(self) -> None:
        """Run from the first start to the last check."""
        async with self.watched():
            await self._run()

    async def _run(self) -> None:
        world = self.world
        world.build()
        tasks = [world.loop.spawn("writer", self._write(), name="writer")]
        if world.dynamic:
            tasks.append(world.loop.spawn("writer", self._change_voters(), name="voters"))
        await world.make_trouble(self.random.uniform(*TROUBLE_S))
        world.heal()
        self.stopping = True
        async with progress(world.loop, PROGRESS_S, lambda: f"missing: {self._missing()}", world.checker.problems):
            await asyncio.gather(*tasks)
            await until(lambda: self._write_once("last", "1"), pause_s=0.05)
            await until(lambda: self._missing() == [], pause_s=0.05)
            await self._fill_the_leader()

    async def _fill_the_leader(self) -> None:
        """Fill the leader's disk for good, if two other voters can elect another, and wait until a write succeeds."""
        machines = [machine for machine in self.world.machines.values() if isinstance(machine, QuorumMachine)]
        leader = next(each for each in machines if each.parts is not None and each.parts.driver.leads)
        assert leader.parts is not None
        if len(leader.parts.driver.node.voters) < 3:
            return
        self.world.report(f"the disk of {leader.name}, the leader's, is full for good")
        leader.disk.faults = replace(leader.disk.faults, capacity_bytes=leader.disk.used_bytes())
        await until(lambda: self._write_once("full", "1"), pause_s=0.05)
        leader.disk.faults = replace(leader.disk.faults, capacity_bytes=UNLIMITED_BYTES)
        await until(lambda: self._missing() == [], pause_s=0.05)

    def _missing(self) -> list[str] | None:
        """The acknowledged values that a replica lacks; None where one does not run."""
        missing = []
        for machine in self.world.machines.values():
            assert isinstance(machine, QuorumMachine)
            if machine.parts is None:
                return None
            image = machine.parts.dispatcher.services.publisher.image
            for group, value in self.acknowledged.items():
                if image.config(GROUP, group).get("x") != value:
                    missing.append(f"{machine.name} lacks {group}={value}")
                    break
        return missing

    async def _write(self) -> None:
        for number in itertools.count(1):
            if self.stopping:
                return
            if await self._write_once(f"g{number}", str(number)):
                await asyncio.sleep(self.random.uniform(0.0, 0.1))
            else:
                await asyncio.sleep(self.random.uniform(0.02, 0.2))

    async def _write_once(self, group: str, value: str) -> bool:
        entry = configs.AlterableConfig(name="x", config_operation=0, value=value)
        resource = configs.AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[entry])
        request = configs.IncrementalAlterConfigsRequest(resources=[resource])
        for answer in await self._send_to_each(request, IncrementalAlterConfigsResponse):
            if answer.responses and answer.responses[0].error_code == ErrorCode.NONE:
                self.acknowledged[group] = value
                return True
        return False

    async def _send_to_each(self, request: Any, response: Any) -> list[Any]:
        """The answers of the controllers, one after the other, in a random order, up to the first good one."""
        answers: list[Any] = []
        numbers = self.random.sample(range(1, self.world.controllers + 1), self.world.controllers)
        for number in numbers:
            try:
                connection = await connect(self.network, f"node-{number}", PORT, client_id="w", timeout_s=1)
            except OdradekError:
                continue
            try:
                answer = await connection.request(request, response, timeout_s=2)
            except OdradekError:
                continue
            finally:
                connection.close()
            answers.append(answer)
            codes = [answer.error_code] if hasattr(answer, "error_code") else [answer.responses[0].error_code]
            if codes == [ErrorCode.NONE]:
                break
        return answers

    async def _change_voters(self) -> None:
        """Add and remove voters until `stopping`; refused changes are not repeated."""
        while not self.stopping:
            await asyncio.sleep(self.random.uniform(0.3, 3.0))
            number = self.random.randrange(1, self.world.controllers + 1)
            key = ReplicaKey(number, UUID(int=number))
            if self.random.random() < 0.6:
                where = Listener(name=LISTENER, host=f"node-{number}", port=PORT)
                request: Any = AddRaftVoterRequest(
                    cluster_id=CLUSTER, timeout_ms=1500, voter_id=number, voter_directory_id=key.directory_id,
                    listeners=[where],
                )  # fmt: skip
                await self._send_to_each(request, AddRaftVoterResponse)
            else:
                request = RemoveRaftVoterRequest(
                    cluster_id=CLUSTER, voter_id=number, voter_directory_id=key.directory_id
                )
                await self._send_to_each(request, RemoveRaftVoterResponse)
