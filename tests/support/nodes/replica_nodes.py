"""Brokers without a quorum, in one process, over real sockets and disks: each has its logs, partitions, fetchers and
the handlers of clients; the controller is the real machine, whose records reach every broker at once.

They are for tests of replication that control one side: a broker is stopped and started in its directory, and requests
to the controller can be delayed, refused or lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import cast
from uuid import UUID

from odradek.client.connection import Connection as ClientConnection
from odradek.client.connection import connect
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.metrics import Metrics
from odradek.common.ports import Listener
from odradek.common.real_io import RealClock, RealDisk, RealNetwork
from odradek.log.append_info import AppendInfo
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.metadata.model import PartitionImage
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.alter_partition_request import AlterPartitionRequest
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from odradek.protocol.messages.broker_registration_request import Listener as Endpoint
from odradek.replica.config import ReplicaConfig
from odradek.replica.manager import ReplicaManager
from odradek.replica.partition import Partition
from odradek.replica.selector import selector_named
from odradek.server.fetch_session_cache import FetchSessionCache, FetchSessionConfig
from odradek.server.handlers import HANDLERS
from odradek.server.lifecycle.suspected_brokers import SuspectedBrokers
from odradek.server.network.connection import Connection
from odradek.server.network.dispatch import Dispatcher, make_routes
from odradek.server.network.listeners import ConnectionConfig, Connections, ListenerSpec
from odradek.server.replication import Replication
from odradek.server.startup.honoured_settings import honoured_settings
from odradek.settings.broker import BrokerSettings, resolve
from odradek.settings.config_providers import Sources
from odradek.settings.node import zero_config
from odradek.statemachine.machine import Result
from tests.support.models.batches import batch, header_of
from tests.support.models.controller_harness import CLUSTER, Harness
from tests.support.nodes.services import services_with
from tests.support.waiting import PATIENCE_S, some_turns

TOPIC = "t"


class ReplicaNode:
    """One broker, whose files stay when it is stopped."""

    def __init__(self, cluster: ReplicaCluster, node_id: int, directory: Path, **settings: str) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.directory = directory
        self.running = False
        given = {"node.id": str(node_id), "log.dirs": str(directory), "replica.fetch.wait.max.ms": "100", **settings}
        self.settings: BrokerSettings = resolve(
            zero_config(given), Sources({}, lambda path: ""), honoured=honoured_settings()
        )
        self.failed: list[Path] = []

    async def start(self, before_fetching: Callable[[ReplicaNode], None] = lambda node: None) -> None:
        """Load the logs of the directory, listen, register, and follow the metadata."""
        self.clock, self.disk, self.network = RealClock(), RealDisk(workers=1), RealNetwork()
        self.logs = LogManager(self.disk, self.clock, [self.directory], LogConfig(), Random(self.node_id))
        self.logs.lock_dirs()
        self.logs.load()
        self.replicas = ReplicaManager(
            self.node_id,
            self.logs,
            fetch_max_bytes=2**20,
            on_storage_failed=self.failed.append,
            monotonic_ms=self.clock.monotonic_ms,
            selector=selector_named(self.settings.build(ReplicaConfig).selector_class),
        )
        self.publisher = MetadataPublisher(CLUSTER)
        self.publisher.subscribe(self.replicas.on_metadata)
        self.replication = Replication(
            self.settings,
            self.clock,
            self.network,
            self.replicas,
            self.logs,
            self.publisher,
            suspected_brokers=SuspectedBrokers(self.clock),
            broker_epoch=lambda: self.broker_epoch,
            send_alter_partition=lambda request: self.cluster.alter_partition(self, request),
        )
        await self._listen()
        self.running = True
        self.broker_epoch = self.cluster.register(self)
        self.cluster.publish()
        before_fetching(self)
        self.replication.start()

    async def _listen(self) -> None:
        routes = {"broker": make_routes(HANDLERS, "broker")}
        # The services of a node that Fetch, Produce and ListOffsets use; the rest of it is not needed here.
        self.services = services_with(
            node_id=self.node_id,
            cluster_id=CLUSTER,
            settings=self.settings,
            clock=self.clock,
            metrics=Metrics(),
            publisher=self.publisher,
            log_manager=self.logs,
            replicas=self.replicas,
            fetch_sessions=FetchSessionCache(FetchSessionConfig(), Random(self.node_id), self.clock.monotonic_ms),
            routes=routes,
        )
        config = ConnectionConfig()
        self.dispatcher = Dispatcher(self.services, config, Connections(config), routes)
        self.dispatcher.start_serving("broker")
        spec = ListenerSpec("PLAINTEXT", "127.0.0.1", 0)
        self.listener: Listener = await self.network.listen(lambda: Connection(self.dispatcher, spec), spec.host, 0)
        self.port = self.listener.port

    async def stop(self) -> None:
        """Stop as a killed process does: nothing is flushed, no peer is notified."""
        if not self.running:
            return
        self.running = False
        self.listener.close()
        await self.replication.stop()
        await self.dispatcher.close()
        await self.replicas.close()
        self.logs.unlock()
        self.disk.close()
        await some_turns()

    def partition(self, partition_id: int = 0) -> Partition:
        found = self.replicas.partition(TOPIC, partition_id)
        assert found is not None
        return found

    def log(self, partition_id: int = 0) -> Log:
        return self.partition(partition_id).log

    def append(self, *values: bytes, partition_id: int = 0, acks: int = 1) -> AppendInfo:
        """Append values to this leader, as a producer would."""
        data = bytearray(batch(*values))
        return self.partition(partition_id).append_as_leader(
            [data], [header_of(bytes(data))], required_acks=acks, now_ms=self.clock.now_ms()
        )

    def file_bytes(self, partition_id: int = 0) -> bytes:
        """The log, all segments in a row."""
        directory = self.directory / f"{TOPIC}-{partition_id}"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    async def client(self) -> ClientConnection:
        """A connection of a client, which the test closes."""
        return await connect(RealNetwork(), "127.0.0.1", self.port, client_id="test", timeout_s=PATIENCE_S)


class ReplicaCluster:
    """Some brokers and their controller."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.harness = Harness()
        self.nodes: dict[int, ReplicaNode] = {}
        self.asked: list[AlterPartitionRequest] = []
        self.refuse_with: ErrorCode | None = None
        self.answers: asyncio.Event = asyncio.Event()
        self.answers.set()
        # The next answer is lost, and those after it are held back until `answers` is set again.
        self.lose_answers = False

    async def add(self, *node_ids: int, **settings: str) -> None:
        """Start new brokers; settings by their dotted names."""
        for node_id in node_ids:
            node = self.nodes[node_id] = ReplicaNode(self, node_id, self._directory / f"node-{node_id}", **settings)
            await node.start()

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.stop()

    def register(self, node: ReplicaNode) -> int:
        """Register a broker, as one that had stopped in good order, and unfence it; returns its epoch."""
        incarnation = len(self.harness.log)
        endpoint = Endpoint(name="PLAINTEXT", host="127.0.0.1", port=node.port)
        known = self.harness.state.brokers.get(node.node_id)
        self.harness.register(
            node.node_id,
            incarnation,
            listeners=[endpoint],
            rack=cast("str | None", node.settings["broker.rack"]),
            previous_broker_epoch=-1 if known is None else known.broker_epoch,
        )
        self.harness.beat(node.node_id)
        return int(self.harness.state.brokers[node.node_id].broker_epoch)

    def publish(self, *node_ids: int) -> None:
        """Bring brokers (all that run, where none is named) up to what the controller has decided."""
        for node in self.nodes.values():
            if node.running and (not node_ids or node.node_id in node_ids):
                known = node.publisher.image.offset + 1
                news = list(enumerate(self.harness.log))[known:]
                node.publisher.committed(news, 1)

    def create(self, *assignments: list[int], **configs: str) -> None:
        """Make the topic, one partition for each list of replicas."""
        self.harness.topic(TOPIC, *assignments)
        self.publish()

    def fence(self, node_id: int) -> None:
        """The controller counts a broker out: others lead, and it is in no in-sync set."""
        self.harness.do(Result(self.harness.machine.brokers.fence(self.harness.state.brokers[node_id]), None))

    def image(self, partition_id: int = 0) -> PartitionImage:
        return self.harness.partition(TOPIC, partition_id)

    @property
    def topic_id(self) -> UUID:
        return cast(UUID, self.harness.state.topic_ids[TOPIC])

    async def alter_partition(self, node: ReplicaNode, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Let the controller handle a leader's AlterPartition; refuse it or lose the response, as the test wants."""
        self.asked.append(request)
        await self.answers.wait()
        if self.refuse_with is not None:
            raise ApiError(self.refuse_with, "as the test wants it")
        response = self.harness.do(self.harness.machine.partitions.alter_partition(request))
        if self.lose_answers:
            self.lose_answers = False
            self.answers.clear()
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the answer was lost")
        self.publish()
        return cast(AlterPartitionResponse, response)
