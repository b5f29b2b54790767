"""Builds the replicas of a broker: the logs, their replication, and the session with the controller.

Some parts depend on each other: `DirectoryAssignments` reports moves of replicas, and reads their directories. Such a
part gets a function that returns the other one, and is called only after all are built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.topic_names import INTERNAL_TOPICS
from odradek.controller.config import ControllerConfig
from odradek.log.compaction.cleaner import Cleaner
from odradek.log.compaction.config import CleanerConfig
from odradek.log.config import LogConfig
from odradek.log.manager import LogManager
from odradek.protocol.messages.alter_partition_request import AlterPartitionRequest
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from odradek.replica.config import ReplicaConfig
from odradek.replica.manager import ReplicaCallbacks, ReplicaManager
from odradek.replica.selector import selector_named
from odradek.server.background.scrubbing import Scrubbing
from odradek.server.lifecycle.broker_lifecycle import BrokerLifecycle, BrokerLifecycleConfig, cordon
from odradek.server.lifecycle.directory_assignments import DirectoryAssignments
from odradek.server.network.descriptors import Descriptors
from odradek.server.parts.ports import Ports
from odradek.server.parts.quorum import QuorumParts
from odradek.server.parts.security import SecurityParts
from odradek.server.replication import Replication
from odradek.server.startup.format import Storage
from odradek.settings.broker import BrokerSettings

if TYPE_CHECKING:
    from odradek.replica.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaParts:
    """The logs of a broker, the partitions over them, and its session with the controller."""

    log_manager: LogManager
    cleaner: Cleaner
    replicas: ReplicaManager
    lifecycle: BrokerLifecycle
    replication: Replication
    directory_assignments: DirectoryAssignments
    scrubbing: Scrubbing


def build_replicas(
    settings: BrokerSettings,
    ports: Ports,
    storage: Storage,
    quorum: QuorumParts,
    security: SecurityParts,
    *,
    on_failed: Callable[[BaseException], None],
    on_storage_failed: Callable[[Path], None],
    on_log_placed: Callable[[str, int], None],
) -> ReplicaParts:
    """
    Args:
        on_failed: called when the cluster refuses this broker permanently.
        on_storage_failed: called once for each directory that failed.
        on_log_placed: called for each partition for whose log there was no space at first.
    """

    def report_move(partition: Partition, log_dir: Path, confirmed: Callable[[], None]) -> None:
        directory_id = log_manager.dirs[log_dir].directory_id
        directory_assignments.assign_and_notify(partition.topic_id, partition.partition_id, directory_id, confirmed)

    log_manager = _build_logs(settings, ports, storage)
    replica_config = settings.build(ReplicaConfig)
    replicas = ReplicaManager(
        settings.node_id,
        log_manager,
        fetch_max_bytes=replica_config.fetch_max_bytes,
        selector=selector_named(replica_config.selector_class),
        on_storage_failed=on_storage_failed,
        monotonic_ms=ports.clock.monotonic_ms,
        callbacks=ReplicaCallbacks(
            log_created_later=lambda *key: directory_assignments.compare(*key),
            log_placed=on_log_placed,
            report_move=report_move,
            move_ended=lambda partition: directory_assignments.move_ended(partition.topic_id, partition.partition_id),
        ),
        session_ms=settings.build(ControllerConfig).broker_session_timeout_ms,
        coordinators_topics=INTERNAL_TOPICS,
    )
    lifecycle = BrokerLifecycle(
        settings.build(BrokerLifecycleConfig),
        quorum.gateway,
        broker_id=settings.node_id,
        metadata_offset=lambda: quorum.publisher.image.offset,
        directories=lambda: log_manager.directories,
        on_failed=on_failed,
        on_answered=replicas.isolation.answered,
    )
    log_manager.space.subscribe(lifecycle.heartbeat_now)

    def broker_epoch() -> int:
        return lifecycle.broker_epoch

    directory_assignments = DirectoryAssignments(
        quorum.gateway, settings.node_id, broker_epoch, replicas.directory_of, replicas.is_online
    )
    return ReplicaParts(
        log_manager=log_manager,
        cleaner=Cleaner(ports.disk, ports.clock, log_manager, settings.build(CleanerConfig)),
        replicas=replicas,
        lifecycle=lifecycle,
        replication=_build_replication(settings, ports, quorum, replicas, log_manager, broker_epoch, security),
        directory_assignments=directory_assignments,
        scrubbing=Scrubbing(settings, ports.clock, ports.disk, log_manager, replicas),
    )


def _build_logs(settings: BrokerSettings, ports: Ports, storage: Storage) -> LogManager:
    log_dirs = [Path(name) for name in settings.log_dirs] if "broker" in settings.roles else []
    open_files = Descriptors(ports.machine.descriptors).open_files
    manager = LogManager(ports.disk, ports.clock, log_dirs, settings.build(LogConfig), ports.random, open_files)
    for directory in manager.directories:
        directory.directory_id = storage.directory_ids[directory.path]
    cordon(manager.directories, settings.build(BrokerLifecycleConfig))
    return manager


def _build_replication(
    settings: BrokerSettings,
    ports: Ports,
    quorum: QuorumParts,
    replicas: ReplicaManager,
    log_manager: LogManager,
    broker_epoch: Callable[[], int],
    security: SecurityParts,
) -> Replication:
    async def alter_partition(request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await quorum.gateway.request(request, AlterPartitionResponse)

    return Replication(
        settings,
        ports.clock,
        ports.network,
        replicas,
        log_manager,
        quorum.publisher,
        broker_epoch=broker_epoch,
        send_alter_partition=alter_partition,
        suspected_brokers=quorum.suspected_brokers,
        security=security.between_brokers,
    )
