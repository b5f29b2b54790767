"""One node: builds every part of a broker, a controller, or both, starts them in order, and stops them in reverse.

Order of the start, each step needing the one before: storage is checked and locked; the listeners are bound; the
metadata log is opened, and the quorum's nodes are answered. A controller is then up. A broker registers, and when it
has seen its registration, its logs are loaded under the topics' settings; partitions and coordinators follow the
metadata; and when the cluster counts it in, clients are served. `process.run` builds the real clock, disk, network and
randomness; a simulation passes its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast
from uuid import UUID

from odradek.client.controller_channel import ControllerChannel
from odradek.common.errors import StorageError
from odradek.common.log_lines import get_logger
from odradek.common.metrics import Metrics
from odradek.common.numbers import INT32_MAX
from odradek.common.ports import NO_LIMITS, Clock, Disk, Listener, MachineLimits, Network
from odradek.controller.config import ControllerConfig
from odradek.controller.service import ControllerService
from odradek.coordinator.batches import RecordCodec
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.records import GROUP_RECORDS, OFFSETS_TOPIC
from odradek.coordinator.group.service import GroupCoordinator
from odradek.coordinator.log import PartitionMachineLog
from odradek.coordinator.transaction.records import TRANSACTION_RECORDS
from odradek.log.compaction.cleaner import Cleaner
from odradek.log.compaction.config import CleanerConfig
from odradek.log.config import LogConfig
from odradek.log.loading import RecoveryConfig
from odradek.log.manager import LogManager
from odradek.log.producer_state import ProducerState
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.features import supported_features
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import ResourceType
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from odradek.protocol.messages.broker_registration_request import BrokerRegistrationRequest
from odradek.raft.config import RaftConfig
from odradek.raft.driver import RaftDriver
from odradek.raft.metadata_log import DIRECTORY as METADATA_LOG
from odradek.raft.peers import QuorumPeers
from odradek.raft.snapshot import read_bootstrap
from odradek.raft.voters import ReplicaKey
from odradek.replica.config import ReplicaConfig
from odradek.replica.manager import ReplicaManager
from odradek.replica.selector import selector_named
from odradek.server.auto_topic_creation import AutoCreateConfig, TopicCreator
from odradek.server.background.cleaning import CleaningJobs
from odradek.server.background.maintenance import Maintenance, MaintenanceConfig
from odradek.server.background.scrubbing import Scrubbing
from odradek.server.context import BrokerServices
from odradek.server.controller_gateway import ChannelConfig, ControllerGateway
from odradek.server.fetch_session_cache import FetchSessionCache, FetchSessionConfig
from odradek.server.handlers import HANDLERS
from odradek.server.handlers.describe_configs import dynamic_layers
from odradek.server.handlers.shared import INTERNAL_TOPICS
from odradek.server.lifecycle.broker_lifecycle import BrokerLifecycle, BrokerLifecycleConfig, cordon
from odradek.server.lifecycle.controlled_shutdown import ControlledShutdown
from odradek.server.lifecycle.controller_registration import ControllerRegistration, controller_registration_request
from odradek.server.lifecycle.directory_assignments import DirectoryAssignments
from odradek.server.lifecycle.drain import asked_to_stop
from odradek.server.lifecycle.liveness import BrokerLiveness
from odradek.server.lifecycle.registration_request import broker_registration_request
from odradek.server.lifecycle.suspected_brokers import SuspectedBrokers
from odradek.server.network.connection import Connection
from odradek.server.network.dispatch import make_dispatcher, make_routes
from odradek.server.network.listeners import ConnectionConfig, bind, check_served, listener_specs
from odradek.server.prometheus import MetricsConnection, node_families
from odradek.server.replication import Replication
from odradek.server.startup.format import Storage, check_storage, format_missing, random_id
from odradek.server.startup.honoured_settings import CONFIG_CLASSES
from odradek.server.startup.ignored_settings import IgnoredSettings
from odradek.server.startup.log_loading import close_logs, load_logs
from odradek.server.startup.quorum_settings import controller_endpoints, quorum_bootstrap, quorum_voters
from odradek.server.transactions.service import Transactions
from odradek.settings.broker import METRICS_LISTENER, BrokerSettings
from odradek.settings.listeners import WILDCARDS
from odradek.settings.resources import SettingRules, option_docs, with_dynamic

RecordT = TypeVar("RecordT")
_log = get_logger("server.broker")


class Broker:
    """One node of a cluster. `start` once, then `stop`; `failure` ends when the node cannot go on."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock,
        disk: Disk,
        network: Network,
        random: Random,
        hostname: str = "localhost",
        machine: MachineLimits = NO_LIMITS,
    ) -> None:
        """
        Args:
            hostname: what other nodes get for a listener that is bound to all interfaces.
        Raises:
            ConfigError: roles or listeners that this release cannot serve.
        """
        self.settings = settings
        self._clock = clock
        self._disk = disk
        self._network = network
        self._random = random
        self._hostname = hostname
        self._machine = machine
        self._listeners: list[Listener] = []
        self._unlock_metadata: Callable[[], None] = lambda: None
        self._started: list[str] = []
        # Set where a drain asks this node to stop; its runner watches this, as it watches signals.
        self.stop_requested = asyncio.Event()
        self.failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.specs = listener_specs(settings)
        check_served(self.specs)

    # -- starting -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything; when it returns, clients are served.

        Raises:
            ConfigError: the directories are not this node's, or not formatted.
            StorageError: a log directory is in use or cannot be read.
            OSError: an address cannot be bound.
        """
        try:
            await self._start()
        except GeneratorExit:
            raise  # the caller is gone, and nothing can be awaited any more
        except BaseException:
            await self.stop(clean=False)
            raise

    async def _start(self) -> None:
        settings = self.settings
        storage = check_storage(self._disk, settings)
        if storage.missing:
            storage = format_missing(self._disk, settings, storage, random=self._random)
        self._build_quorum(storage)
        self._build_replicas(storage)
        self._build_services(storage)
        self._build_lifecycle()
        self._started.append("storage")
        self._lock_storage()
        await self._listen()
        await self.raft.start()
        self._started.append("raft")
        self.dispatcher.start_serving("controller")
        self.publisher.subscribe(self._on_metadata)
        self.publisher.subscribe(self.suspected_brokers.on_metadata)
        self.publisher.subscribe(self.controlled_shutdown.on_metadata)
        if self.controller is not None:
            self.publisher.subscribe(self.controller_registration.on_metadata)
        if "broker" in settings.roles:
            await self._join(storage)
        self.maintenance.start()
        self.cleaning.start()
        self.scrubbing.start()
        self._started.append("maintenance")
        self.dispatcher.start_serving("broker")

    async def _join(self, storage: Storage) -> None:
        """Become a broker of the cluster. Nothing is decided about logs before we have seen our own registration: what
        was known here of topics may be as old as the last stop."""
        self.log_manager.read_clean_epochs()
        await self._unless_failed(self.lifecycle.register(self._registration(storage), self.publisher))
        await self._load_logs()
        self.publisher.subscribe(self.replicas.on_metadata)
        self.publisher.subscribe(self.directory_assignments.on_metadata)
        self.publisher.subscribe(self.lifecycle.on_metadata)
        self.publisher.subscribe(self.coordinator.on_metadata)
        self.publisher.subscribe(self.transactions.coordinator.on_metadata)
        self.publisher.subscribe(IgnoredSettings(self.settings.node_id).on_metadata)
        self._remove_strays()
        self._started.append("logs")
        self.services.producer_ids.broker_epoch = self.lifecycle.broker_epoch
        self.replication.start()
        self.directory_assignments.start()
        await self._unless_failed(self.lifecycle.join(self.publisher))

    def _build_quorum(self, storage: Storage) -> None:
        """The metadata log, who reads it, and the controller that writes it."""
        settings, clock, disk = self.settings, self._clock, self._disk
        metadata_dir = Path(settings.metadata_log_dir)
        self.rules = SettingRules(settings, option_docs(CONFIG_CLASSES))
        self.publisher = MetadataPublisher(storage.cluster_id)
        self.suspected_brokers = SuspectedBrokers(clock)
        self.controller: ControllerService | None = None
        if "controller" in settings.roles:
            self.controller = ControllerService(
                clock,
                self._random,
                settings.build(ControllerConfig),
                self.rules,
                cluster_id=storage.cluster_id,
                bootstrap=read_bootstrap(disk, metadata_dir),
                on_active=lambda: self.liveness.on_controller_active() if self.liveness is not None else None,
                on_failed=self._failed,
            )
        voters = quorum_voters(settings)
        endpoints = controller_endpoints(self.specs.values(), voters.get(settings.node_id), self._hostname)
        self.raft = RaftDriver(
            disk,
            clock,
            self._random,
            metadata_dir / METADATA_LOG,
            me=ReplicaKey(settings.node_id, storage.directory_ids.get(metadata_dir, UUID(int=0))),
            voters=voters,
            cluster_id=storage.cluster_id,
            config=settings.build(RaftConfig),
            publisher=self.publisher,
            peers=QuorumPeers(self._network, settings.node_id),
            bootstrap=quorum_bootstrap(settings),
            listener_name=settings.first_controller_listener,
            endpoints=endpoints,
            on_elected=self.controller.elected if self.controller is not None else lambda leader_epoch: None,
            on_resigned=self.controller.resigned if self.controller is not None else lambda: None,
            on_leader_change=lambda _: self.gateway.leader_changed(),
            on_failed=self._failed,
        )
        self.liveness: BrokerLiveness | None = None
        if self.controller is not None:
            self.controller.attach(self.raft)
            self.liveness = BrokerLiveness(self._network, self.controller, self.publisher, settings.node_id)
        self.gateway = self._build_gateway()
        self.controller_registration = ControllerRegistration(
            self.gateway,
            controller_registration_request(
                settings.node_id, random_id(self._random), self.specs.values(), endpoints, supported_features()
            ),
        )

    def _build_gateway(self) -> ControllerGateway:
        """The way to the active controller: what clients asked has a connection of its own, as in Kafka, so that a
        heartbeat does not wait behind the creation of many topics."""
        config = self.settings.build(ChannelConfig)

        def channel(name: str) -> ControllerChannel:
            return ControllerChannel(
                self._network,
                self.raft.leader,
                client_id=f"{name}-{self.settings.node_id}",
                connect_timeout_ms=config.connect_timeout_ms,
                request_timeout_ms=config.answer_timeout_ms,
            )

        return ControllerGateway(
            self.controller, channel("broker"), channel("forwarding"), self._clock, lambda: self.raft.leads
        )

    def _build_replicas(self, storage: Storage) -> None:
        """The logs, the partitions over them, and the coordinators that live in partitions."""
        settings, clock = self.settings, self._clock
        log_dirs = [Path(name) for name in settings.log_dirs] if "broker" in settings.roles else []
        self.log_manager = LogManager(self._disk, clock, log_dirs, settings.build(LogConfig), self._random)
        self.cleaner = Cleaner(self._disk, clock, self.log_manager, settings.build(CleanerConfig))
        for directory in self.log_manager.directories:
            directory.directory_id = storage.directory_ids[directory.path]
        cordon(self.log_manager.directories, settings.build(BrokerLifecycleConfig))
        replica_config = settings.build(ReplicaConfig)
        self.replicas = ReplicaManager(
            settings.node_id,
            self.log_manager,
            fetch_max_bytes=replica_config.fetch_max_bytes,
            selector=selector_named(replica_config.selector_class),
            on_storage_failed=self._storage_failed,
            monotonic_ms=clock.monotonic_ms,
        )
        self.scrubbing = Scrubbing(settings, clock, self._disk, self.log_manager, self.replicas)
        self.topic_creator = TopicCreator(settings.build(AutoCreateConfig), self.gateway, self.publisher)
        self.coordinator = GroupCoordinator(
            settings.build(GroupConfig),
            node_id=settings.node_id,
            clock=clock,
            random=self._random,
            make_log=lambda partition_id, epoch: self._coordinator_log(GROUP_RECORDS, partition_id, epoch),
            image=lambda: self.publisher.image,
            create_topic=self.topic_creator.create_with,
            off_loop=self._disk.off_loop,
            consumer_config=settings.build(ConsumerGroupConfig),
            producers_of=self._offset_producers,
            max_record_bytes=self._max_offset_record_bytes,
        )
        self.transactions = Transactions(
            settings,
            clock=clock,
            network=self._network,
            image=lambda: self.publisher.image,
            image_is_current=lambda: "logs" in self._started,
            replicas=self.replicas,
            groups=self.coordinator,
            controller=self.gateway,
            make_log=lambda number, epoch: self._coordinator_log(TRANSACTION_RECORDS, number, epoch),
            create_topic=self.topic_creator.create_with,
            off_loop=self._disk.off_loop,
        )

    def _offset_producers(self, partition_id: int) -> ProducerState | None:
        partition = self.replicas.partition(OFFSETS_TOPIC, partition_id)
        return None if partition is None else partition.log.producers

    def _max_offset_record_bytes(self, partition_id: int) -> int:
        partition = self.replicas.partition(OFFSETS_TOPIC, partition_id)
        return INT32_MAX if partition is None else partition.log.config.max_message_bytes

    def _build_services(self, storage: Storage) -> None:
        """What connections and handlers share."""
        settings, clock = self.settings, self._clock
        connection_config = settings.build(ConnectionConfig)
        routes = {scope: make_routes(HANDLERS, scope) for scope in ("broker", "controller")}
        self.services = BrokerServices(
            node_id=settings.node_id,
            cluster_id=storage.cluster_id,
            settings=settings,
            setting_rules=self.rules,
            clock=clock,
            metrics=Metrics(),
            publisher=self.publisher,
            log_manager=self.log_manager,
            cleaner=self.cleaner,
            scrub_counts=self.scrubbing.counts,
            replicas=self.replicas,
            fetch_sessions=FetchSessionCache(settings.build(FetchSessionConfig), self._random, clock.monotonic_ms),
            producer_ids=self.transactions.producer_ids,
            controller=self.gateway,
            quorum=self.raft,
            coordinator=self.coordinator,
            transactions=self.transactions.coordinator,
            verifier=self.transactions.verifier,
            markers=self.transactions.markers,
            liveness=self.liveness,
            suspected_brokers=self.suspected_brokers,
            topic_creator=self.topic_creator,
            routes=routes,
        )
        self.dispatcher = make_dispatcher(self.services, connection_config, routes, self._machine)
        self.log_manager.files.capacity = self.dispatcher.connections.descriptors.open_files

    def _build_lifecycle(self) -> None:
        """The session with the controller, replication, and the jobs around it all."""
        settings, clock = self.settings, self._clock
        self.lifecycle = BrokerLifecycle(
            settings.build(BrokerLifecycleConfig),
            self.gateway,
            broker_id=settings.node_id,
            metadata_offset=lambda: self.publisher.image.offset,
            directories=lambda: self.log_manager.directories,
            on_failed=self._failed,
            on_answered=self.replicas.isolation.answered,
        )
        self.replicas.isolation.exempt = INTERNAL_TOPICS
        self.replicas.isolation.session_ms = settings.build(ControllerConfig).broker_session_timeout_ms
        self.log_manager.space.on_change = self.lifecycle.beat_soon
        self.controlled_shutdown = ControlledShutdown(
            self.dispatcher, settings.node_id, lambda: self.lifecycle.broker_epoch
        )
        self.replication = Replication(
            settings,
            clock,
            self._network,
            self.replicas,
            self.log_manager,
            self.publisher,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            send_alter_partition=lambda request: self.gateway.ask(request, AlterPartitionResponse),
            suspected_brokers=self.suspected_brokers,
        )
        self.directory_assignments = DirectoryAssignments(
            self.gateway, settings.node_id, lambda: self.lifecycle.broker_epoch, self.replicas.directory_of
        )
        self.replicas.made_later = self.directory_assignments.look_at
        self.replicas.placed_again = self._log_placed
        moves = self.replicas.moves
        moves.tell_controller = lambda partition, log_dir, confirmed: self.directory_assignments.promise(
            partition.topic_id, partition.partition_id, self.log_manager.dirs[log_dir].directory_id, confirmed
        )
        moves.settled = lambda partition: self.directory_assignments.settle(partition.topic_id, partition.partition_id)
        self.maintenance = Maintenance(
            settings.build(MaintenanceConfig), clock, self._disk, self.log_manager, self.replicas, self.dispatcher
        )
        self.cleaning = CleaningJobs(self.cleaner, self.replicas.storage_failed)

    def _lock_storage(self) -> None:
        self.log_manager.lock_dirs()
        metadata_dir = Path(self.settings.metadata_log_dir)
        if metadata_dir not in self.log_manager.dirs:
            try:
                self._unlock_metadata = self._disk.lock(metadata_dir / ".lock")
            except BlockingIOError:
                raise StorageError(metadata_dir, "another process uses this metadata directory") from None

    async def _load_logs(self) -> None:
        image = self.publisher.image
        manager = self.log_manager
        # The base settings may have been changed at run time; logs are loaded under what counts now.
        manager.base_config = self._current_settings(image).build(LogConfig)

        def assigned(topic: str, number: int) -> UUID | None:
            partition = image.partition(topic, number)
            return None if partition is None else partition.directory(self.settings.node_id)

        await load_logs(self._disk, manager, self.settings.build(RecoveryConfig), image.topic_config, assigned)

    def _remove_strays(self) -> None:
        """What lies here of deleted topics and of partitions that others hold since this broker was away.

        No move without a report.
        """
        image = self.publisher.image
        for key, topic_id in list(self.log_manager.topic_ids.items()):
            if self.replicas.partition(*key) is not None:
                continue
            topic = image.topics_by_id.get(topic_id) if topic_id is not None else None
            if topic_id is None or (topic is not None and key[1] not in topic.partitions):
                _log.warning(
                    "a log that belongs to no partition of this broker is left alone", log=f"{key[0]}-{key[1]}"
                )
                continue
            if topic is not None and self.settings.node_id in topic.partitions[key[1]].replicas:
                continue  # its directory is offline
            what = "deleted topic" if topic is None else "partition that lies elsewhere"
            _log.info(f"log of a {what} removed", log=f"{key[0]}-{key[1]}", topic_id=topic_id)
            self.log_manager.delete(key)

    async def _listen(self) -> None:
        for spec in self.specs.values():
            make, backlog = partial(Connection, self.dispatcher, spec), self.dispatcher.config.backlog
            name = f"listeners: {spec.name}"
            listener = await bind(self._network, make, name, spec.host, spec.port, backlog=backlog)
            self._listeners.append(listener)
            spec.port = listener.port
        address = self.settings.metrics_address
        if address is not None:
            metrics, below = self.services.metrics, self.dispatcher.connections.descriptors.clients_below
            metrics.sources.append(lambda: node_families(self.dispatcher))
            listener = await bind(self._network, lambda: MetricsConnection(metrics, below), METRICS_LISTENER, *address)
            self._listeners.append(listener)
            _log.info("metrics are served", address=f"{address[0]}:{listener.port}")

    def _registration(self, storage: Storage) -> BrokerRegistrationRequest:
        return broker_registration_request(
            self.settings.node_id,
            storage.cluster_id,
            random_id(self._random),
            specs=self.specs.values(),
            hostname=self._hostname,
            features=supported_features(),
            rack=cast("str | None", self.settings["broker.rack"]),
            log_dirs=[each.directory_id for each in self.log_manager.directories if not each.offline],
            previous_broker_epoch=self.log_manager.previous_broker_epoch,
        )

    # -- while it runs ------------------------------------------------------------------------------------------

    def bootstrap_address(self) -> str:
        """Where a client on this machine begins: `host:port` of the first listener for clients."""
        for spec in self.specs.values():
            if spec.scope == "broker":
                host, port = spec.advertised or (spec.host, spec.port)
                host = "127.0.0.1" if host in WILDCARDS else host
                return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return ""

    def _log_placed(self, topic: str, partition_id: int) -> None:
        for host in (self.coordinator, self.transactions.coordinator):
            host.log_placed(topic, partition_id)

    def _coordinator_log(
        self, codec: RecordCodec[RecordT], partition_id: int, leader_epoch: int
    ) -> PartitionMachineLog[RecordT]:
        partition = self.replicas.find(codec.topic, partition_id, self.publisher.image)
        return PartitionMachineLog(
            partition,
            leader_epoch,
            self._clock,
            codec,
            max_batch_bytes=partition.log.config.max_message_bytes,
            on_storage_error=self.replicas.storage_failed,
        )

    def _current_settings(self, image: MetadataImage) -> BrokerSettings:
        return with_dynamic(self.settings, dynamic_layers(image, self.settings.node_id))

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Go by changed settings of this broker or of all brokers."""
        own = {(int(ResourceType.BROKER), ""), (int(ResourceType.BROKER), str(self.settings.node_id))}
        if own.isdisjoint((int(kind), name) for kind, name in delta.changed_configs):
            return
        current = self._current_settings(image)
        self.services.settings = current
        self.replicas.base_config_changed(current.build(LogConfig), image)
        if self.controller is not None:
            self.controller.update_config(current.build(ControllerConfig))
        self.dispatcher.change_limits(current.build(ConnectionConfig))
        cordon(self.log_manager.directories, current.build(BrokerLifecycleConfig))
        self.lifecycle.beat_soon()
        if asked_to_stop(image, self.settings.node_id, self.lifecycle.broker_epoch):
            self.stop_requested.set()
        self.maintenance.change_config(current.build(MaintenanceConfig))
        self.replication.change_settings(current)
        self.cleaner.config = current.build(CleanerConfig)
        self.transactions.change_settings(current)
        self.coordinator.consumer_config = current.build(ConsumerGroupConfig)

    def _storage_failed(self, log_dir: Path) -> None:
        self.lifecycle.beat_soon()
        holds_metadata = log_dir == Path(self.settings.metadata_log_dir)
        if holds_metadata or not self.log_manager.online_dirs():
            what = "the directory of the metadata log" if holds_metadata else "the last log directory"
            self._failed(StorageError(log_dir, f"{what} failed: {self.log_manager.dirs[log_dir].error}"))

    def _failed(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_result(error)

    async def _unless_failed(self, step: Coroutine[Any, Any, None]) -> None:
        """Take a step of the start that a failed node would never end."""
        task = asyncio.get_running_loop().create_task(step)
        waits: set[asyncio.Future[Any]] = {task, self.failure}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise self.failure.result()
        await task

    # -- stopping -----------------------------------------------------------------------------------------------

    async def stop(self, *, clean: bool = True) -> None:
        """Stop in reverse order; with `clean`, everything is durable and marked so, and the cluster knows.

        Raises:
            StorageError: a directory could not be closed in good order; everything else was.
        """
        started, self._started = self._started, []
        if clean and "maintenance" in started:
            await self.lifecycle.leave()
        self._close_listeners()
        if not started:
            return
        self.controlled_shutdown.disconnect_clients()
        # Early, while the other voters can still be notified over the connections that there are.
        steps: list[Callable[[], Awaitable[None]]] = [self.raft.resign] if "raft" in started else []
        steps += [self.lifecycle.stop, self.replication.stop]
        if "maintenance" in started:
            steps += [self.scrubbing.stop, self.cleaning.stop, self.maintenance.stop]
        steps.append(self.dispatcher.close)
        if "logs" in started:
            steps.append(self.directory_assignments.stop)
            steps += [self.transactions.close, self.coordinator.close, self.replicas.close, self.topic_creator.close]
        steps += [self.controller_registration.stop, self.gateway.close]
        if self.liveness is not None:
            steps.append(self.liveness.stop)
        if self.controller is not None:
            steps.append(self.controller.stop)
        if "raft" in started:
            steps.append(self.raft.stop)
        steps.append(self._close_logs if clean and "logs" in started else self._unlock_logs)
        failure: StorageError | None = None
        for step in steps:
            try:
                await step()
            except (StorageError, OSError) as error:
                # One disk that fails must not keep the logs on the others from being closed in good order.
                _log.error("a step of the stop failed", step=step.__name__, error=error)
                failure = error if isinstance(error, StorageError) else failure
        self._unlock_metadata()
        if failure is not None:
            raise failure

    async def _close_logs(self) -> None:
        await close_logs(self._disk, self.log_manager, broker_epoch=self.lifecycle.broker_epoch)

    async def _unlock_logs(self) -> None:
        self.log_manager.unlock()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
