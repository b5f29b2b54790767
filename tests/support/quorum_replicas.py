"""Replicas of one quorum in one process, over real sockets and files: voters with controllers, and observers.

`kill` drops a replica as kill -9 does: its port is closed, nothing is flushed, nothing is said. What is on the disk
stays, and `start` begins again from it.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from odradek.client.connection import Connection as ClientConnection
from odradek.client.connection import connect
from odradek.common.metrics import Metrics
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
from odradek.server.connection import Connection
from odradek.server.context import BrokerServices
from odradek.server.dispatch import Dispatcher, make_routes
from odradek.server.handlers import HANDLERS
from odradek.server.listeners import ConnectionConfig, Connections, ListenerSpec
from tests.support.controller_harness import CLUSTER, Schema

LISTENER = "CONTROLLER"
# Short time-outs, so that elections take a tenth of the usual time.
FAST = {"election_timeout_ms": 200, "fetch_timeout_ms": 400, "request_timeout_ms": 400, "election_backoff_max_ms": 100}


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


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

    async def start(self) -> Replica:
        self.disk = RealDisk()
        clock = RealClock()
        self.publisher = MetadataPublisher(self._cluster_id)
        self.service = ControllerService(
            clock,
            random.Random(self.key.node_id),
            ControllerConfig(),
            Schema(),
            cluster_id=self._cluster_id,
            on_failed=self.failures.append,
        )
        self.driver = RaftDriver(
            self.disk,
            clock,
            random.Random(100 + self.key.node_id),
            self.directory,
            me=self.key,
            voters=self._voters,
            cluster_id=self._cluster_id,
            config=replace(RaftConfig(), **self._raft),
            publisher=self.publisher,
            peers=QuorumPeers(RealNetwork(), self.key.node_id),
            bootstrap=self._bootstrap,
            listener_name=LISTENER,
            endpoints={LISTENER: ("127.0.0.1", self.port)} if self._is_controller else {},
            on_elected=self.service.elected,
            on_resigned=self.service.resigned,
            on_leader_change=self.leaders.append,
            on_failed=self.failures.append,
        )
        self.service.attach(self.driver)
        routes = {"controller": make_routes(HANDLERS, "controller")}
        parts: dict[str, Any] = dict.fromkeys(each.name for each in fields(BrokerServices))
        parts |= {
            "node_id": self.key.node_id,
            "cluster_id": self._cluster_id,
            "clock": clock,
            "metrics": Metrics(),
            "publisher": self.publisher,
            "controller": self.service,
            "quorum": self.driver,
            "routes": routes,
        }
        services = BrokerServices(**parts)  # the quorum's handlers use no more of a node
        limits = ConnectionConfig()
        connections = Connections(limits)
        connections.change_limits(limits)
        self.dispatcher = Dispatcher(services, limits, connections, routes)
        self.dispatcher.open_doors("controller")
        await self.driver.start()
        if self._is_controller:
            spec = ListenerSpec(LISTENER, "127.0.0.1", self.port, scope="controller")
            self._listener = await RealNetwork().listen(
                lambda: Connection(self.dispatcher, spec), "127.0.0.1", self.port
            )
        self.running = True
        return self

    async def stop(self) -> None:
        """Stop in good order."""
        await self._close_doors(lambda: self.driver.stop())

    async def kill(self) -> None:
        """End as kill -9 ends a process."""
        await self._close_doors(self._drop)

    async def _close_doors(self, end: Callable[[], Any]) -> None:
        self.running = False
        if self._is_controller:
            self._listener.close()
        if end == self._drop:
            await self.dispatcher.close()
        await self.service.stop()
        await end()
        await self.dispatcher.close()
        self.disk.close()

    async def _drop(self) -> None:
        for task in self.driver._tasks:
            task.cancel()
        await asyncio.gather(*self.driver._tasks, return_exceptions=True)
        await self.driver._courier.close()
        self.driver.log.close()

    async def set(self, value: str, name: str = "g") -> int:
        """Write one record of metadata through this node's controller; returns the error code."""
        entry = AlterableConfig(name="x", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=32, resource_name=name, configs=[entry])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = await self.service.incremental_alter_configs(request)
        return answer.responses[0].error_code

    def get(self, name: str = "g") -> str | None:
        """What this node's image says."""
        return self.publisher.image.config(32, name).get("x")

    async def client(self) -> ClientConnection:
        """A connection to the controller listener; close it."""
        return await connect(RealNetwork(), "127.0.0.1", self.port, client_id="test", timeout_s=5)


class Quorum:
    """Voters 1 to `count` of a static quorum, and observers from 101 on."""

    def __init__(self, root: Path, count: int = 3, **raft: Any) -> None:
        self.root = root
        self.raft = raft
        self.ports = free_ports(count)
        self.voters = VoterSet(
            Voter(ReplicaKey(number), {LISTENER: ("127.0.0.1", port)})
            for number, port in enumerate(self.ports, start=1)
        )
        self.replicas = {
            number: Replica(root, ReplicaKey(number, UUID(int=number)), port, self.voters, **raft)
            for number, port in enumerate(self.ports, start=1)
        }

    async def __aenter__(self) -> Quorum:
        for replica in self.replicas.values():
            await replica.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for replica in self.replicas.values():
            if replica.running:
                await replica.stop()

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

        return await until(found)

    async def converged(self, value: str, name: str = "g") -> None:
        """Return when all running replicas have published `value`."""
        await until(lambda: all(replica.get(name) == value for replica in self.running))


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
        """Start a controller that is no voter yet; `directory` is that of its disk."""
        key = ReplicaKey(number, UUID(int=number if directory is None else directory))
        return await self._replica(key, port or free_ports(1)[0], **options).start()


async def until(condition: Callable[[], Any], timeout_s: float = 20) -> Any:
    """Wait for a condition and return what it gave."""
    async with asyncio.timeout(timeout_s):
        while not (found := condition()):  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
        return found
