"""Replicas of one quorum in one process, over real sockets and files: voters with controllers, and observers.

`kill` stops a replica as kill -9 does: its port is closed, nothing is flushed, and no message is sent. The files stay,
and `start` begins again from them.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from odradek.client.connection import Connection as ClientConnection
from odradek.client.connection import connect
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.metrics import Metrics
from odradek.common.ports import Clock, Disk, Network
from odradek.common.real_io import RealClock, RealDisk, RealNetwork
from odradek.controller.config import ControllerConfig
from odradek.controller.service import ControllerService
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.raft.config import RaftConfig
from odradek.raft.driver import RaftDriver
from odradek.raft.metadata_log import DIRECTORY
from odradek.raft.peers import QuorumPeers
from odradek.raft.snapshot import SnapshotId, encode_snapshot, write_snapshot
from odradek.raft.voter_history import record_of
from odradek.raft.voters import Leader, ReplicaKey, Voter, VoterSet
from odradek.server.controller_gateway import ControllerGateway
from odradek.server.handlers import HANDLERS
from odradek.server.network.connection import Connection
from odradek.server.network.dispatch import Dispatcher, make_routes
from odradek.server.network.listeners import ConnectionConfig, Connections, ListenerSpec
from odradek.testing.layout import free_ports
from tests.support.disks.failing import FailingDisk
from tests.support.models.controller_harness import CLUSTER, Schema
from tests.support.nodes.services import services_with
from tests.support.waiting import eventually_async, some_turns

LISTENER = "CONTROLLER"
# Short timeouts, so that elections take a tenth of the usual time.
FAST = {"election_timeout_ms": 200, "fetch_timeout_ms": 400, "request_timeout_ms": 400, "election_backoff_max_ms": 100}


class Parts:
    """The parts of a node that the quorum needs, over any clock, disk and network: replica, controller, listener."""

    def __init__(
        self,
        directory: Path,
        key: ReplicaKey,
        address: tuple[str, int],
        voters: VoterSet,
        *,
        clock: Clock,
        disk: Disk,
        network: Network,
        chance: random.Random,
        bootstrap: Sequence[tuple[str, int]],
        cluster_id: str,
        is_controller: bool,
        publisher: MetadataPublisher,
        raft: dict[str, Any],
        on_failed: Callable[[BaseException], None],
        on_elected: Callable[[int], None] = lambda leader_epoch: None,
        on_leader_change: Callable[[Leader | None], None] = lambda leader: None,
    ) -> None:
        self.address = address
        self.network = network
        self.is_controller = is_controller
        self.service = ControllerService(
            clock, chance, ControllerConfig(), Schema(), cluster_id=cluster_id, on_failed=on_failed
        )

        def elected(leader_epoch: int) -> None:
            on_elected(leader_epoch)
            self.service.elected(leader_epoch)

        self.driver = RaftDriver(
            disk,
            clock,
            chance,
            directory,
            me=key,
            voters=voters,
            cluster_id=cluster_id,
            config=replace(RaftConfig(), **raft),
            publisher=publisher,
            peers=QuorumPeers(network, key.node_id),
            bootstrap=bootstrap,
            listener_name=LISTENER,
            endpoints={LISTENER: address} if is_controller else {},
            on_elected=elected,
            on_resigned=self.service.resigned,
            on_leader_change=on_leader_change,
            on_failed=on_failed,
        )
        self.service.attach(self.driver)
        routes = {"controller": make_routes(HANDLERS, "controller")}
        no_channel: Any = None  # all requests come over the controller listener, and are answered here
        services = services_with(
            node_id=key.node_id,
            cluster_id=cluster_id,
            clock=clock,
            metrics=Metrics(),
            publisher=publisher,
            controller=ControllerGateway(self.service, no_channel, no_channel, clock, lambda: self.driver.leads),
            quorum=self.driver,
            routes=routes,
        )
        limits = ConnectionConfig()
        connections = Connections(limits)
        connections.change_limits(limits)
        self.dispatcher = Dispatcher(services, limits, connections, routes)
        self.dispatcher.start_serving("controller")

    async def start(self) -> None:
        """Open the log, then the listener."""
        await self.driver.start()
        if self.is_controller:
            host, port = self.address
            spec = ListenerSpec(LISTENER, host, port, scope="controller")
            self.listener = await self.network.listen(lambda: Connection(self.dispatcher, spec), host, port)

    def close_listener(self) -> None:
        if self.is_controller:
            self.listener.close()

    async def stop(self) -> None:
        """Stop in good order."""
        self.close_listener()
        await self.service.stop()
        await self.driver.stop()
        await self.dispatcher.close()


class Replica:
    """One node of the quorum."""

    def __init__(
        self,
        root: Path,
        key: ReplicaKey,
        port: int,
        voters: VoterSet,
        *,
        bootstrap: Sequence[tuple[str, int]] = (),
        cluster_id: str = CLUSTER,
        is_controller: bool = True,
        **raft: Any,
    ) -> None:
        self.root = root / f"node-{key.node_id}"
        self.directory = self.root / DIRECTORY
        self.key = key
        self.port = port
        self.running = False
        self.failures: list[BaseException] = []
        self.leaders: list[Leader | None] = []
        self._voters = voters
        self._bootstrap = bootstrap
        self._cluster_id = cluster_id
        self._is_controller = is_controller
        self._raft = {**FAST, **raft}

    @property
    def driver(self) -> RaftDriver:
        return self.parts.driver

    @property
    def service(self) -> ControllerService:
        return self.parts.service

    async def start(self) -> Replica:
        self.disk = FailingDisk(errno.ENOSPC)
        self.publisher = MetadataPublisher(self._cluster_id)
        self.parts = Parts(
            self.directory,
            self.key,
            ("127.0.0.1", self.port),
            self._voters,
            clock=RealClock(),
            disk=self.disk,
            network=RealNetwork(),
            chance=random.Random(100 + self.key.node_id),
            bootstrap=self._bootstrap,
            cluster_id=self._cluster_id,
            is_controller=self._is_controller,
            publisher=self.publisher,
            raft=self._raft,
            on_failed=self.failures.append,
            on_leader_change=self.leaders.append,
        )
        await self.parts.start()
        self.running = True
        return self

    async def stop(self) -> None:
        """Stop in good order."""
        self.running = False
        await self.parts.stop()
        self.disk.close()
        await some_turns()

    async def kill(self) -> None:
        """End as kill -9 ends a process."""
        self.running = False
        self.parts.close_listener()
        await self.parts.dispatcher.close()
        await self.service.stop()
        for task in self.driver._tasks:
            task.cancel()
        await asyncio.gather(*self.driver._tasks, return_exceptions=True)
        await self.driver._outgoing.close()
        self.driver.log.close()
        self.disk.close()
        await some_turns()

    async def set(self, value: str, name: str = "g") -> int:
        """Write one record of metadata through this node's controller; returns the error code."""
        entry = AlterableConfig(name="x", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=32, resource_name=name, configs=[entry])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = await self.service.incremental_alter_configs(request)
        return answer.responses[0].error_code

    def get(self, name: str = "g") -> str | None:
        """The value of a setting in this node's metadata image; None if it is not set."""
        return self.publisher.image.config(32, name).get("x")

    async def client(self) -> ClientConnection:
        """A connection to the controller listener; close it."""
        return await connect(RealNetwork(), "127.0.0.1", self.port, client_id="test", timeout_s=5)


class Quorum:
    """Voters 1 to `count` of a static quorum, and observers from 101 on."""

    def __init__(self, root: Path, count: int = 3, **raft: Any) -> None:
        self.root = root
        self.raft = raft
        self.ports = list(islice(free_ports(), count))
        self.voters = VoterSet(
            Voter(ReplicaKey(number), {LISTENER: ("127.0.0.1", port)})
            for number, port in enumerate(self.ports, start=1)
        )
        self.replicas = {
            number: Replica(root, ReplicaKey(number, UUID(int=number)), port, self.voters, **raft)
            for number, port in enumerate(self.ports, start=1)
        }

    async def __aenter__(self) -> Self:
        for replica in self.replicas.values():
            await replica.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for replica in self.replicas.values():
            if replica.running:
                await replica.stop()
        await some_turns()

    async def observer(self, number: int = 101, **options: Any) -> Replica:
        """Start an observer, which finds the leader through bootstrap servers."""
        bootstrap = [("127.0.0.1", port) for port in self.ports]
        replica = Replica(
            self.root, ReplicaKey(number, UUID(int=number)), 0, VoterSet(), bootstrap=bootstrap, is_controller=False,
            **{**self.raft, **options},
        )  # fmt: skip
        self.replicas[number] = replica
        return await replica.start()

    @property
    def running(self) -> list[Replica]:
        return [replica for replica in self.replicas.values() if replica.running]

    async def leader(self) -> Replica:
        """The active controller, once there is one that all running replicas follow."""

        def found() -> Replica | None:
            leading = [replica for replica in self.running if replica.driver.leads and replica.service.active]
            if len(leading) != 1:
                return None
            epoch = leading[0].driver.leader_epoch
            agreed = all(replica.driver.leader_epoch == epoch for replica in self.running)
            agreed = agreed and all(replica.driver.leader() is not None for replica in self.running)
            return leading[0] if agreed else None

        return await eventually_async(found)

    async def write(self, value: str, name: str = "g") -> None:
        """Write one record of metadata through the active controller; on a busy machine that may be another by then."""

        async def is_written() -> bool:
            try:
                return await (await self.leader()).set(value, name) == 0
            except ApiError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
                return False

        await eventually_async(is_written)

    async def converged(self, value: str, name: str = "g") -> None:
        """Return when all running replicas have published `value`."""
        await eventually_async(lambda: all(replica.get(name) == value for replica in self.running))


class DynamicQuorum(Quorum):
    """Voters 1 to `count` as `storage format --initial-controllers` leaves them; more may join and leave (KIP-853)."""

    def __init__(self, root: Path, count: int = 3, **raft: Any) -> None:
        super().__init__(root, count, **raft)
        self.voters = VoterSet(
            Voter(ReplicaKey(number, UUID(int=number)), voter.endpoints)
            for number, voter in zip(self.replicas, self.voters, strict=True)
        )
        data = encode_snapshot(
            [], metadata_version=30, leader_epoch=0, now_ms=1, kraft_version=1, voters=record_of(self.voters)
        )
        disk = RealDisk()
        self.replicas = {}
        for number, port in enumerate(self.ports, start=1):
            replica = self._replica(ReplicaKey(number, UUID(int=number)), port)
            disk.make_dirs(replica.directory)
            write_snapshot(disk, replica.directory, SnapshotId(0, 0), data)
        disk.close()

    def _replica(self, key: ReplicaKey, port: int, **options: Any) -> Replica:
        bootstrap = [("127.0.0.1", each) for each in self.ports]
        replica = Replica(self.root, key, port, VoterSet(), bootstrap=bootstrap, **{**self.raft, **options})
        self.replicas[key.node_id] = replica
        return replica

    async def controller(self, number: int, directory: int | None = None, port: int = 0, **options: Any) -> Replica:
        """Start a controller that is not a voter yet; `directory` is that of its disk."""
        key = ReplicaKey(number, UUID(int=number if directory is None else directory))
        return await self._replica(key, port or next(free_ports()), **options).start()
