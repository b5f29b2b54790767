"""The parts of the cluster's metadata as immutable values, and their creation and change by records.

The controller's machine and every broker's image use the same values and functions, so that a record has one meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from odradek.metadata.features import LevelRange
from odradek.protocol.extras import broker_host_fields, read_broker_host
from odradek.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from odradek.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from odradek.protocol.messages.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)

NO_LEADER = -1
NO_LEADER_CHANGE = -2
ZERO_UUID = UUID(int=0)
# Directory ids with a meaning of their own (KIP-858).
UNASSIGNED_DIRECTORY = UUID(int=0)
LOST_DIRECTORY = UUID(int=1)
MIGRATING_DIRECTORY = UUID(int=2)


class ResourceType(IntEnum):
    """Kinds of resources that carry configuration; ConfigResource.Type."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


ConfigResource = tuple[int, str]


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition's replicas and leadership.

    Attributes:
        replicas: broker ids in order of preference; the first is the preferred leader.
        isr: in-sync replicas.
        leader: broker id, NO_LEADER while offline.
        leader_epoch: grows with every change of leader.
        partition_epoch: grows with every change of anything.
        elr: eligible leader replicas (KIP-966); last_known_elr: those of the last leader when all is lost.
        directories: log directory id per replica, in the order of `replicas`; empty where not assigned.
        leader_recovery_state: 1 after an unclean election, until the leader says that it has recovered (KIP-704).
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    directories: tuple[UUID, ...] = ()
    leader_recovery_state: int = 0

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, broker_id: int) -> UUID:
        """The directory that holds this broker's replica, or UNASSIGNED_DIRECTORY."""
        if broker_id in self.replicas and self.directories:
            return self.directories[self.replicas.index(broker_id)]
        return UNASSIGNED_DIRECTORY


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions by number, 0 to n-1."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionImage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a listener; security_protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registration of a broker.

    Attributes:
        broker_epoch: the offset of its registration record; a later start of the broker has a larger one.
        fenced: unknown to clients, leads nothing.
        directories: ids of its log directories that are online; cordoned ones take no new replicas (KIP-1066).
        host: the machine that it runs on, a failure domain below the rack; None if unknown.
    """

    broker_id: int
    broker_epoch: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...] = ()
    features: Mapping[str, LevelRange] = field(default_factory=lambda: MappingProxyType({}))
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directories: tuple[UUID, ...] = ()
    cordoned_directories: tuple[UUID, ...] = ()
    host: str | None = None

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """The endpoint of a listener by its name, exactly as registered."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener_name), None)

    def has_online(self, directory: UUID) -> bool:
        """Whether a replica in this directory is there: one of ours, or an unknown one (KIP-858)."""
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY) or not self.directories:
            return directory != LOST_DIRECTORY
        return directory in self.directories

    @property
    def cordoned(self) -> bool:
        """Whether none of its directories takes new replicas (KIP-1066)."""
        return bool(self.directories) and set(self.directories) <= set(self.cordoned_directories)

    @property
    def active(self) -> bool:
        """Whether it may lead and be in sync: neither fenced nor about to stop (KIP-841)."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """One registration of a controller (KIP-919)."""

    controller_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...] = ()
    features: Mapping[str, LevelRange] = field(default_factory=lambda: MappingProxyType({}))
    zk_migration_ready: bool = False


@dataclass(frozen=True, slots=True)
class Acl:
    """One access control entry; the numbers are Kafka's."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


def acl_of(record: Any) -> Acl:
    """The ACL of an AccessControlEntryRecord, or of another value with its fields."""
    return Acl(
        resource_type=record.resource_type,
        resource_name=record.resource_name,
        pattern_type=record.pattern_type,
        principal=record.principal,
        host=record.host,
        operation=record.operation,
        permission_type=record.permission_type,
    )


def acl_record(acl_id: UUID, acl: Acl) -> AccessControlEntryRecord:
    """The record that creates an ACL."""
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The stored credential of a user (RFC 5802)."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token without its secret, which follows from the cluster's master key. Times are wall-clock ms."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int


# A quota's entity: (type, name) pairs, sorted; a name of None is the default of its type.
QuotaEntity = tuple[tuple[str, str | None], ...]


def quota_entity(pairs: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """The one order of an entity's parts, so that it can be a key."""
    return tuple(sorted(pairs, key=lambda pair: (pair[0], pair[1] or "")))


def partition_of(record: PartitionRecord) -> PartitionImage:
    """The partition that a PartitionRecord creates or replaces."""
    partition = PartitionImage(
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
        directories=tuple(record.directories),
        leader_recovery_state=record.leader_recovery_state,
    )
    check_partition(partition)
    return partition


def check_partition(partition: PartitionImage) -> None:
    """Check the invariants of a partition, both when the controller writes it and when nodes read it."""
    replicas, isr, leader = partition.replicas, partition.isr, partition.leader
    assert leader == NO_LEADER or leader in isr, f"leader {leader} is not in its in-sync set: {partition}"
    assert all(each in replicas for each in isr), f"an in-sync broker has no replica: {partition}"
    assert not partition.elr or all(each not in isr for each in partition.elr), f"in sync and eligible: {partition}"
    assert not partition.directories or len(partition.directories) == len(replicas), f"directories: {partition}"


def check_change(before: PartitionImage, after: PartitionImage) -> None:
    """Epochs count changes: by them brokers, and leaders of before, are distinguished from those of today."""
    assert after.partition_epoch == before.partition_epoch + 1, f"partition epoch: {before} -> {after}"
    assert 0 <= after.leader_epoch - before.leader_epoch <= 1, f"leader epoch: {before} -> {after}"
    same_leader = after.leader == before.leader
    assert same_leader or after.leader_epoch > before.leader_epoch, f"two leaders in an epoch: {before} -> {after}"


def check_broker(before: BrokerImage | None, after: BrokerImage) -> None:
    """A later registration has a larger epoch; the same process that registers again keeps its own."""
    if before is not None:
        is_same = after.incarnation_id == before.incarnation_id
        assert after.broker_epoch > before.broker_epoch or (is_same and after.broker_epoch == before.broker_epoch), (
            f"broker epoch: {before} -> {after}"
        )


def partition_record(
    topic_id: UUID, partition_id: int, partition: PartitionImage, metadata_version: int
) -> PartitionRecord:
    """The record that recreates a partition, without fields that this metadata.version does not have."""
    directories = partition.directories or (UNASSIGNED_DIRECTORY,) * len(partition.replicas)
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(directories) if metadata_version >= 17 else [],
        eligible_leader_replicas=list(partition.elr) if metadata_version >= 23 and partition.elr else None,
        last_known_elr=list(partition.last_known_elr) if metadata_version >= 23 and partition.last_known_elr else None,
    )


def changed_partition(partition: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """The partition after a PartitionChangeRecord. Null and -2 (leader) mean "unchanged"."""
    leader, leader_epoch = partition.leader, partition.leader_epoch
    if record.leader != NO_LEADER_CHANGE:
        leader, leader_epoch = record.leader, leader_epoch + 1
    replicas = partition.replicas if record.replicas is None else tuple(record.replicas)
    if record.directories:
        directories = tuple(record.directories)
    elif replicas == partition.replicas:
        directories = partition.directories
    else:
        directories = tuple(partition.directory(replica) for replica in replicas)
    recovery = record.leader_recovery_state
    changed = PartitionImage(
        replicas=replicas,
        isr=partition.isr if record.isr is None else tuple(record.isr),
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
        removing_replicas=_given(record.removing_replicas, partition.removing_replicas),
        adding_replicas=_given(record.adding_replicas, partition.adding_replicas),
        elr=_given(record.eligible_leader_replicas, partition.elr),
        last_known_elr=_given(record.last_known_elr, partition.last_known_elr),
        directories=directories,
        leader_recovery_state=partition.leader_recovery_state if recovery == -1 else recovery,
    )
    check_partition(changed)
    return changed


def _given(new: Sequence[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def broker_of(record: RegisterBrokerRecord) -> BrokerImage:
    """The registration of a RegisterBrokerRecord."""
    return BrokerImage(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
        features=MappingProxyType(
            {f.name: LevelRange(f.min_supported_version, f.max_supported_version) for f in record.features}
        ),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        directories=tuple(record.log_dirs),
        cordoned_directories=tuple(record.cordoned_log_dirs or ()),
        host=read_broker_host(record),
    )


def broker_record(broker: BrokerImage, metadata_version: int) -> RegisterBrokerRecord:
    """The record that recreates a registration."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=[
            BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
            for name, levels in sorted(broker.features.items())
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories) if metadata_version >= 17 else [],
        cordoned_log_dirs=list(broker.cordoned_directories)
        if metadata_version >= 30 and broker.cordoned_directories
        else None,
        unknown_tagged_fields=broker_host_fields(broker.host),
    )


def changed_broker(broker: BrokerImage, record: BrokerRegistrationChangeRecord) -> BrokerImage:
    """The registration after a BrokerRegistrationChangeRecord: fenced is 1 to fence, -1 to unfence, 0 for no change."""
    cordoned = record.cordoned_log_dirs
    return replace(
        broker,
        fenced={1: True, -1: False}.get(record.fenced, broker.fenced),
        in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown == 1,
        directories=tuple(record.log_dirs) or broker.directories,
        cordoned_directories=broker.cordoned_directories if cordoned is None else tuple(cordoned),
    )


def controller_of(record: RegisterControllerRecord) -> ControllerImage:
    """The registration of a RegisterControllerRecord."""
    return ControllerImage(
        controller_id=record.controller_id,
        incarnation_id=record.incarnation_id,
        endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
        features=MappingProxyType(
            {f.name: LevelRange(f.min_supported_version, f.max_supported_version) for f in record.features}
        ),
        zk_migration_ready=record.zk_migration_ready,
    )


def controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    """The record that recreates a controller's registration."""
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in controller.endpoints
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
            for name, levels in sorted(controller.features.items())
        ],
    )
