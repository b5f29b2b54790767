"""One node: starts every part of a broker, a controller, or both, in order, and stops them in reverse.

Order of the start, each step needing the one before: storage is checked and locked; the listeners are bound; the
metadata log is opened, and the quorum's nodes are answered. A controller is then up. A broker registers, and when it
has seen its registration, its logs are loaded under the topics' settings; partitions and coordinators follow the
metadata; and when the cluster counts it in, clients are served. The parts are built in `server.parts`. `process.run`
builds the real clock, disk, network and randomness; a simulation passes its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, cast
from uuid import UUID

from odradek.common.errors import StorageError
from odradek.common.log_lines import get_logger
from odradek.common.ports import (
    NO_LIMITS,
    Clock,
    Disk,
    Listener,
    MachineLimits,
    Network,
    ProtocolFactory,
    Timer,
    no_timer,
)
from odradek.controller.config import ControllerConfig
from odradek.controller.service import ControllerService
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.lag import lag_families
from odradek.coordinator.group.service import GroupCoordinator
from odradek.link.measures import link_families
from odradek.log.compaction.cleaner import Cleaner
from odradek.log.compaction.config import CleanerConfig
from odradek.log.config import LogConfig
from odradek.log.loading import RecoveryConfig
from odradek.log.manager import LogManager
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.features import supported_features
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import ResourceType
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.broker_registration_request import BrokerRegistrationRequest
from odradek.raft.driver import RaftDriver
from odradek.replica.manager import ReplicaManager
from odradek.server.background.certificates import certificate_families
from odradek.server.background.maintenance import MaintenanceConfig
from odradek.server.cluster_metrics import ClusterCounts, UncleanElections, cluster_families, remove_deleted_topics
from odradek.server.context import BrokerServices
from odradek.server.controller_gateway import ControllerGateway
from odradek.server.health import Health
from odradek.server.kafka_names.names import OWN, KafkaNames, MetricNamesConfig, shown_families
from odradek.server.lifecycle.broker_lifecycle import BrokerLifecycle, BrokerLifecycleConfig, cordon
from odradek.server.lifecycle.drain import drain_includes_stop
from odradek.server.lifecycle.registration_request import broker_registration_request, registered_listeners
from odradek.server.metrics_page import MetricsPage
from odradek.server.network.connection import Connection
from odradek.server.network.connection_quotas import limits_of_listeners
from odradek.server.network.dispatch import Dispatcher
from odradek.server.network.http_pages import HttpConnection, Pages
from odradek.server.network.listener_manager import ListenerManager
from odradek.server.network.listeners import ConnectionConfig, ListenerSpec, bind, listener_specs
from odradek.server.network.login_metrics import login_families
from odradek.server.network.quota_metrics import quota_families
from odradek.server.network.tls_acceptor import TlsAcceptor
from odradek.server.parts.coordinators import CoordinatorParts, build_coordinators
from odradek.server.parts.front_end import FrontEnd, build_front_end
from odradek.server.parts.jobs import Jobs, build_jobs
from odradek.server.parts.ports import Fetch, Ports, no_fetch
from odradek.server.parts.quorum import QuorumParts, build_quorum
from odradek.server.parts.replicas import ReplicaParts, build_replicas
from odradek.server.parts.security import build_security
from odradek.server.prometheus import node_families
from odradek.server.startup.format import Storage, check_storage, format_missing, random_id
from odradek.server.startup.ignored_settings import IgnoredSettings
from odradek.server.startup.log_loading import close_logs, load_logs
from odradek.server.transactions.service import Transactions
from odradek.settings.broker import METRICS_LISTENER, BrokerSettings
from odradek.settings.listener_changes import changes_listeners
from odradek.settings.listeners import WILDCARDS

_log = get_logger("server.broker")


class Broker:
    """One node of a cluster. `start` once, then `stop`; `failure` is done after a fatal error, which stops the node."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock,
        disk: Disk,
        network: Network,
        random: Random,
        hostname: str = "localhost",
        machine_id: str | None = None,
        machine: MachineLimits = NO_LIMITS,
        fetch: Fetch = no_fetch,
        timer: Timer = no_timer,
        cpu_timer: Timer = no_timer,
    ) -> None:
        """
        Args:
            hostname: the advertised host of listeners that are bound to all interfaces.
            machine_id: the id of the machine, if `broker.host` is not set.
        Raises:
            ConfigError: roles or listeners that this release cannot serve.
        """
        self.settings = settings
        self._ports = Ports(
            clock=clock,
            disk=disk,
            network=network,
            random=random,
            hostname=hostname,
            machine_id=machine_id,
            machine=machine,
            fetch=fetch,
            timer=timer,
            cpu_timer=cpu_timer,
        )
        self._metrics_listener: Listener | None = None
        self._metrics_page: MetricsPage | None = None
        self._unlock_metadata: Callable[[], None] = lambda: None
        self._started: list[str] = []
        # Set if a drain includes the stop of this node; its runner waits for this and for signals.
        self.stop_requested = asyncio.Event()
        self.failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._security = build_security(settings, listener_specs(settings), self._ports, lambda: self.publisher.image)
        self.listeners = ListenerManager(
            settings,
            network,
            self._protocol_of,
            backlog=lambda: self.dispatcher.config.backlog,
            on_removed=self._listener_removed,
            on_changed=self._listeners_changed,
        )
        # The parts, which `start` builds once it has seen the storage.
        self._quorum: QuorumParts
        self._data: ReplicaParts
        self._coordinators: CoordinatorParts
        self._front_end: FrontEnd
        self._jobs: Jobs
        # The parts that callers of this class use.
        self.publisher: MetadataPublisher
        self.raft: RaftDriver
        self.controller: ControllerService | None
        self.gateway: ControllerGateway
        self.log_manager: LogManager
        self.cleaner: Cleaner
        self.replicas: ReplicaManager
        self.lifecycle: BrokerLifecycle
        self.coordinator: GroupCoordinator
        self.transactions: Transactions
        self.services: BrokerServices
        self.dispatcher: Dispatcher

    @property
    def specs(self) -> Mapping[str, ListenerSpec]:
        """The bound listeners by name."""
        return self.listeners.specs

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
        storage = check_storage(self._ports.disk, settings)
        if storage.missing:
            storage = format_missing(self._ports.disk, settings, storage, random=self._ports.random)
        self._build(storage)
        self._started.append("storage")
        if self._security.authorizer is not None:
            # The first subscriber: a response to a change of permissions is sent once the change is in force.
            self.publisher.subscribe(self._security.authorizer.on_metadata)
        self._lock_storage()
        await self._listen()
        self._jobs.token_keys.start()
        await self.raft.start()
        self._started.append("raft")
        self.dispatcher.start_serving("controller")
        self.publisher.subscribe(self._open_by_permissions)
        self.publisher.subscribe(self._on_metadata)
        self.publisher.subscribe(self.dispatcher.on_metadata)
        self.publisher.subscribe(self._quorum.suspected_brokers.on_metadata)
        self.publisher.subscribe(self._front_end.controlled_shutdown.on_metadata)
        if self.controller is not None:
            self.publisher.subscribe(self._quorum.controller_registration.on_metadata)
        if "broker" in settings.roles:
            await self._join(storage)
        self._jobs.start()
        self._started.append("maintenance")
        if self._jobs.token_keys.are_awaited:
            await self._unless_failed(self._jobs.token_keys.tried())
        self.dispatcher.start_serving("broker")

    async def _join(self, storage: Storage) -> None:
        """Join the cluster. No log is changed before this broker has applied its own registration: its metadata may be
        as old as the last stop."""
        self.log_manager.read_clean_epochs()
        await self._unless_failed(self.lifecycle.register(self._registration(storage), self.publisher))
        await self._load_logs()
        self.publisher.subscribe(self.replicas.on_metadata)
        self.publisher.subscribe(partial(remove_deleted_topics, self.services.metrics))
        self.publisher.subscribe(self._data.directory_assignments.on_metadata)
        self.publisher.subscribe(self.lifecycle.on_metadata)
        self.publisher.subscribe(self._jobs.links.on_metadata)
        self.publisher.subscribe(self.coordinator.on_metadata)
        self.publisher.subscribe(self.transactions.coordinator.on_metadata)
        ignored = IgnoredSettings(self.settings.node_id, lambda: self.services.settings.known_listeners)
        self.publisher.subscribe(ignored.on_metadata)
        self._remove_strays()
        self._started.append("logs")
        self._data.replication.start()
        self._data.directory_assignments.start()
        await self._unless_failed(self.lifecycle.join(self.publisher))

    def _build(self, storage: Storage) -> None:
        """Build every part; each of these needs the ones before."""
        settings, ports = self.settings, self._ports
        self._quorum = quorum = build_quorum(
            settings, ports, storage, self.specs, self._security, on_failed=self._failed
        )
        self._data = data = build_replicas(
            settings,
            ports,
            storage,
            quorum,
            self._security,
            on_failed=self._failed,
            on_storage_failed=self._storage_failed,
            on_log_placed=self._log_placed,
        )
        self._coordinators = coordinators = build_coordinators(
            settings, ports, quorum, data, self._security, image_is_current=lambda: "logs" in self._started
        )
        self._front_end = front_end = build_front_end(
            settings, ports, storage.cluster_id, quorum, data, coordinators, self._security, self._check_changes
        )
        self._jobs = build_jobs(
            settings, ports, data, coordinators, quorum.gateway, front_end.dispatcher, self._security
        )
        self.publisher, self.raft, self.gateway = quorum.publisher, quorum.raft, quorum.gateway
        self.controller = quorum.controller
        self.log_manager, self.cleaner = data.log_manager, data.cleaner
        self.replicas, self.lifecycle = data.replicas, data.lifecycle
        self.coordinator, self.transactions = coordinators.groups, coordinators.transactions
        self.services, self.dispatcher = front_end.services, front_end.dispatcher
        self.services.link_measures = self._jobs.links.measures

    def _lock_storage(self) -> None:
        self.log_manager.lock_dirs()
        metadata_dir = Path(self.settings.metadata_log_dir)
        if metadata_dir not in self.log_manager.dirs:
            try:
                self._unlock_metadata = self._ports.disk.lock(metadata_dir / ".lock")
            except BlockingIOError:
                raise StorageError(metadata_dir, "another process uses this metadata directory") from None

    async def _load_logs(self) -> None:
        image = self.publisher.image
        manager = self.log_manager
        # Dynamic settings may override those of the file; logs are loaded with the present ones.
        current = self._current_settings(image)
        manager.base_config = current.build(LogConfig)

        def assigned(topic: str, number: int) -> UUID | None:
            partition = image.partition(topic, number)
            return None if partition is None else partition.directory(self.settings.node_id)

        await load_logs(self._ports.disk, manager, current.build(RecoveryConfig), image.topic_config, assigned)

    def _remove_strays(self) -> None:
        """Remove the logs of deleted topics, and of partitions that were reassigned while this broker was offline.

        Each removal is logged.
        """
        image = self.publisher.image
        for key, topic_id in list(self.log_manager.topic_ids.items()):
            if self.replicas.partition(*key) is not None:
                continue
            topic = image.topics_by_id.get(topic_id) if topic_id is not None else None
            if topic_id is None or (topic is not None and key[1] not in topic.partitions):
                _log.warning("a log that belongs to no partition of this broker is ignored", log=f"{key[0]}-{key[1]}")
                continue
            if topic is not None and self.settings.node_id in topic.partitions[key[1]].replicas:
                continue  # its directory is offline
            what = "deleted topic" if topic is None else "partition that lies elsewhere"
            _log.info(f"log of a {what} removed", log=f"{key[0]}-{key[1]}", topic_id=topic_id)
            self.log_manager.delete(key)

    def _protocol_of(self, spec: ListenerSpec) -> ProtocolFactory:
        """The protocol factory of a listener. Raises ConfigError: its security settings are invalid."""
        tls = self._security.secure(spec, self.services.settings)
        if tls is None:
            return partial(Connection, self.dispatcher, spec)
        return partial(TlsAcceptor, self.dispatcher, spec, tls, partial(Connection, self.dispatcher, spec, tls))

    async def _listen(self) -> None:
        await self.listeners.start()
        address = self.settings.metrics_address
        if address is not None:
            metrics, below = self.services.metrics, self.dispatcher.connections.descriptors.clients_below
            counts, unclean = ClusterCounts(), UncleanElections()
            self.publisher.subscribe(unclean.on_metadata)
            metrics.add(
                lambda: node_families(self.dispatcher),
                lambda: cluster_families(self.services, counts, unclean),
                lambda: self.services.telemetry.families(self._ports.clock.monotonic_ms()),
                lambda: login_families(self.specs.values()),
                lambda: quota_families(self.dispatcher.quotas, self.gateway.mutations.ledger),
                lambda: certificate_families(self._security.contexts()),
                lambda: self._jobs.loop_watch.families(),
                lambda: lag_families(self._jobs.group_lag.lags, self._ports.clock.now_ms()),
                lambda: link_families(self._jobs.links.measures(), self._ports.clock.now_ms()),
            )
            names = self.settings.build(MetricNamesConfig).names
            kafka = KafkaNames(self.services, lambda: self._jobs.group_lag.lags)
            self._metrics_page = MetricsPage(partial(shown_families, names, metrics, kafka), processes=names != OWN)
            pages: Pages = {b"/metrics": self._metrics_page.page, **self._health().pages()}
            listener = await bind(self._ports.network, lambda: HttpConnection(pages, below), METRICS_LISTENER, *address)
            self._metrics_listener = listener
            _log.info("metrics are served", address=f"{address[0]}:{listener.port}")

    def _health(self) -> Health:
        return Health(
            self.settings.node_id,
            self.settings.roles,
            image=lambda: self.publisher.image,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            metadata_lag=lambda: self.raft.metadata_lag,
            serves=lambda: self.dispatcher.serves("broker"),
            failure=lambda: self.failure.result() if self.failure.done() else None,
        )

    def _registration(self, storage: Storage) -> BrokerRegistrationRequest:
        return broker_registration_request(
            self.settings.node_id,
            storage.cluster_id,
            random_id(self._ports.random),
            listeners=registered_listeners(self.specs.values(), self._ports.hostname),
            features=supported_features(),
            rack=cast("str | None", self.settings["broker.rack"]),
            host=self.settings.build(BrokerLifecycleConfig).host or self._ports.machine_id,
            log_dirs=[each.directory_id for each in self.log_manager.directories if not each.offline],
            previous_broker_epoch=self.log_manager.previous_broker_epoch,
        )

    # -- while it runs ------------------------------------------------------------------------------------------

    def bootstrap_address(self) -> str:
        """The bootstrap address of a client on this machine: `host:port` of the first listener for clients."""
        spec = self.bootstrap_listener()
        if spec is None:
            return ""
        host, port = spec.advertised or (spec.host, spec.port)
        host = "127.0.0.1" if host in WILDCARDS else host
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def bootstrap_listener(self) -> ListenerSpec | None:
        """The first listener for clients; None if this node is a controller alone."""
        return next((spec for spec in self.specs.values() if spec.scope == "broker"), None)

    def _log_placed(self, topic: str, partition_id: int) -> None:
        for host in (self.coordinator, self.transactions.coordinator):
            host.log_placed(topic, partition_id)

    def _current_settings(self, image: MetadataImage) -> BrokerSettings:
        return self._security.dynamic.current(image)

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Go by changed settings of this broker or of all brokers."""
        own = {(int(ResourceType.BROKER), ""), (int(ResourceType.BROKER), str(self.settings.node_id))}
        if own.isdisjoint((int(kind), name) for kind, name in delta.changed_configs):
            return
        current = self.listeners.change(self._current_settings(image))
        self.services.settings = current
        self.replicas.base_config_changed(current.build(LogConfig), image)
        if self.controller is not None:
            self.controller.update_config(current.build(ControllerConfig))
        self._security.change_settings(current)
        self._jobs.token_keys.follow(self._security.logins.token_checks())
        self.dispatcher.change_limits(current.build(ConnectionConfig), limits_of_listeners(current))
        cordon(self.log_manager.directories, current.build(BrokerLifecycleConfig))
        self.lifecycle.heartbeat_now()
        if drain_includes_stop(image, self.settings.node_id, self.lifecycle.broker_epoch):
            self.stop_requested.set()
        self._jobs.maintenance.change_config(current.build(MaintenanceConfig))
        self._data.replication.change_settings(current)
        self.cleaner.config = current.build(CleanerConfig)
        self.transactions.change_settings(current)
        self.coordinator.consumer_config = current.build(ConsumerGroupConfig)

    async def _check_changes(self, image: MetadataImage, changed: Mapping[str, str | None]) -> None:
        """Check changes of this node's settings that the controller cannot. Raises ConfigError."""
        settings = self._security.dynamic.after(image, changed)
        if changes_listeners(changed):
            await self.listeners.check(settings, changed)
        self._security.check(settings)

    def _listener_removed(self, spec: ListenerSpec) -> None:
        if all(each.name != spec.name for each in self.services.settings.listeners):
            self._security.discard(spec)
        self.dispatcher.disconnect_listener(spec)

    def _listeners_changed(self) -> None:
        self.lifecycle.change_listeners(registered_listeners(self.specs.values(), self._ports.hostname))
        self._jobs.token_keys.follow(self._security.logins.token_checks())
        if "maintenance" in self._started:
            self._jobs.certificates.start()

    def _open_by_permissions(self, _: MetadataDelta, __: MetadataImage) -> None:
        """Open the listeners that are not in `early.start.listeners`, once the authorizer has the first metadata."""
        if "permissions" not in self.dispatcher.open_scopes:
            self.dispatcher.start_serving("permissions")

    def _storage_failed(self, log_dir: Path) -> None:
        self.lifecycle.heartbeat_now()
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
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self.failure.result()
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # -- stopping -----------------------------------------------------------------------------------------------

    async def stop(self, *, clean: bool = True) -> None:
        """Stop in reverse order; with `clean`, everything is durable and marked so, and the cluster knows.

        Raises:
            StorageError: a directory could not be closed in good order; everything else was.
        """
        started, self._started = self._started, []
        if clean and "maintenance" in started:
            await self.lifecycle.shut_down()
        await self.listeners.stop()
        self._close_listeners()
        if not started:
            return
        self._front_end.controlled_shutdown.disconnect_clients()
        failure: StorageError | None = None
        for step in self._steps_of_stop(started, clean=clean):
            try:
                await step()
            except (StorageError, OSError) as error:
                # One disk that fails must not keep the logs on the others from being closed in good order.
                _log.error("a step of the shutdown failed", step=step.__name__, error=error)
                failure = error if isinstance(error, StorageError) else failure
        self._unlock_metadata()
        if failure is not None:
            raise failure

    def _steps_of_stop(self, started: list[str], *, clean: bool) -> list[Callable[[], Awaitable[None]]]:
        """The steps that stop the started parts, in order."""
        quorum, data, jobs = self._quorum, self._data, self._jobs
        # Early, while the other voters can still be notified over the connections that there are.
        steps: list[Callable[[], Awaitable[None]]] = [self.raft.resign] if "raft" in started else []
        steps += [self.lifecycle.stop, data.replication.stop, jobs.token_keys.stop, jobs.links.stop]
        if "maintenance" in started:
            steps += [
                jobs.loop_watch.stop,
                jobs.group_lag.stop,
                jobs.certificates.stop,
                jobs.scrubbing.stop,
                jobs.cleaning.stop,
                jobs.maintenance.stop,
            ]
        if self._metrics_page is not None:
            steps.append(self._metrics_page.stop)
        steps.append(self.dispatcher.close)
        if "logs" in started:
            steps.append(data.directory_assignments.stop)
            steps += [self.transactions.close, self.coordinator.close, self.replicas.close]
            steps.append(self._coordinators.topic_creator.close)
        steps += [quorum.controller_registration.stop, self.gateway.close]
        if quorum.liveness is not None:
            steps.append(quorum.liveness.stop)
        if self.controller is not None:
            steps.append(self.controller.stop)
        if "raft" in started:
            steps.append(self.raft.stop)
        steps.append(self._close_logs if clean and "logs" in started else self._unlock_logs)
        return steps

    async def _close_logs(self) -> None:
        await close_logs(self._ports.disk, self.log_manager, broker_epoch=self.lifecycle.broker_epoch)

    async def _unlock_logs(self) -> None:
        self.log_manager.unlock()

    def _close_listeners(self) -> None:
        self.listeners.close()
        if self._metrics_listener is not None:
            self._metrics_listener.close()
