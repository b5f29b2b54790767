"""The controller's state: the content of the metadata log, in collections that can be reverted.

`replay` is the only mutator; it shares `metadata/replay.py` with the brokers' image. The other modules of this package
(topics, partitions, brokers, configs, features) read this state and return records; they do not change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.metadata.features import DEFAULT_METADATA_VERSION, ELR_VERSION, METADATA_VERSION
from odradek.metadata.model import (
    UNASSIGNED_DIRECTORY,
    Acl,
    BrokerImage,
    ConfigResource,
    ControllerImage,
    PartitionImage,
    ResourceType,
    acl_of,
    changed_partition,
    check_change,
    partition_of,
)
from odradek.metadata.publisher import TransactionBuffer
from odradek.metadata.replay import MetadataReplayer, SharedTable
from odradek.settings.broker import DRAIN_KEY
from odradek.statemachine.timeline import Timeline, TimelineDict, TimelineValue

if TYPE_CHECKING:
    from odradek.protocol.messages.access_control_entry_record import AccessControlEntryRecord
    from odradek.protocol.messages.clear_elr_record import ClearElrRecord
    from odradek.protocol.messages.client_quota_record import ClientQuotaRecord
    from odradek.protocol.messages.delegation_token_record import DelegationTokenRecord
    from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
    from odradek.protocol.messages.partition_record import PartitionRecord
    from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord
    from odradek.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
    from odradek.protocol.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
    from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
    from odradek.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
    from odradek.protocol.messages.topic_record import TopicRecord
    from odradek.protocol.messages.user_scram_credential_record import UserScramCredentialRecord


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic's name and its number of partitions, numbered from 0."""

    name: str
    topic_id: UUID
    partition_count: int = 0


PartitionKey = tuple[UUID, int]


class ControllerState(MetadataReplayer):
    """The controller's collections, by kind."""

    def __init__(self, timeline: Timeline) -> None:
        self.features: TimelineDict[str, int] = TimelineDict(timeline)
        self.brokers: TimelineDict[int, BrokerImage] = TimelineDict(timeline)
        self.controllers: TimelineDict[int, ControllerImage] = TimelineDict(timeline)
        self.topics: TimelineDict[UUID, TopicEntry] = TimelineDict(timeline)
        self.topic_ids: TimelineDict[str, UUID] = TimelineDict(timeline)
        # Names that metrics cannot tell apart ("a.b" and "a_b") share one key: the name with "." as "_".
        self.collisions: TimelineDict[str, tuple[str, ...]] = TimelineDict(timeline)
        self.partitions: TimelineDict[PartitionKey, PartitionImage] = TimelineDict(timeline)
        self.configs: TimelineDict[ConfigResource, Mapping[str, str]] = TimelineDict(timeline)
        # Records of quotas, ACLs, SCRAM and tokens: key of the record -> the record.
        self.others: TimelineDict[tuple[Any, ...], Any] = TimelineDict(timeline)
        self.acl_ids: TimelineDict[Acl, UUID] = TimelineDict(timeline)
        self.next_producer_id: TimelineValue[int] = TimelineValue(timeline, 0)
        self.record_count: TimelineValue[int] = TimelineValue(timeline, 0)
        # The full log directories that each broker reports with its heartbeats; not part of the log.
        self.full_directories: dict[int, frozenset[UUID]] = {}
        # The settings of all brokers together, and those of mirrors among them by topic: see `mirrors`.
        self.mirror_settings: tuple[Mapping[str, str], dict[str, dict[str, str]]] = ({}, {})
        self._transaction = TransactionBuffer()
        self._shared: dict[SharedTable, dict[Any, Any]] = {
            "brokers": self.brokers,
            "controllers": self.controllers,
            "configs": self.configs,
            "features": self.features,
        }

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION, DEFAULT_METADATA_VERSION)

    @property
    def elr_enabled(self) -> bool:
        """Whether eligible leader replicas are tracked (KIP-966)."""
        return self.features.get(ELR_VERSION, 0) > 0

    @property
    def transaction_open(self) -> bool:
        """Whether the log ends inside an unfinished metadata transaction."""
        return self._transaction.open

    def draining(self, broker_id: int) -> bool:
        """Whether a broker is being drained."""
        return DRAIN_KEY in self.configs.get((int(ResourceType.BROKER), str(broker_id)), {})

    def is_full(self, broker_id: int, directory: UUID = UNASSIGNED_DIRECTORY) -> bool:
        """Whether a broker has no space in a directory; for an unknown directory, in any."""
        full = self.full_directories.get(broker_id)
        if not full:
            return False
        broker = self.brokers.get(broker_id)
        return directory in full or broker is None or full.issuperset(broker.directories)

    def topic_partitions(self, topic: TopicEntry) -> Iterator[tuple[int, PartitionImage]]:
        """A topic's partitions by number."""
        for partition_id in range(topic.partition_count):
            yield partition_id, self.partitions[(topic.topic_id, partition_id)]

    def topic_config(self, topic_name: str, key: str) -> str | None:
        """A topic's dynamic setting: its own override, or the cluster's dynamic default; None if neither is set."""
        for resource in ((int(ResourceType.TOPIC), topic_name), (int(ResourceType.BROKER), "")):
            value = self.configs.get(resource, {}).get(key)
            if value is not None:
                return value
        return None

    def replay(self, record: Any, offset: int) -> None:
        """Apply one record.

        Raises:
            ValueError, KeyError: it contradicts the state: no controller wrote this log.
        """
        self.record_count.value += 1
        for _, counted in self._transaction.add(offset, record):
            self.apply_record(counted)

    def _changed(self, table: SharedTable, key: Any) -> dict[Any, Any]:
        return self._shared[table]

    def _topic(self, record: TopicRecord) -> None:
        assert record.topic_id not in self.topics, f"the id of {record.name} is that of another topic"
        assert record.name not in self.topic_ids, f"there are two topics of the name {record.name}"
        self.topics[record.topic_id] = TopicEntry(record.name, record.topic_id)
        self.topic_ids[record.name] = record.topic_id
        key = collision_key(record.name)
        self.collisions[key] = (*self.collisions.get(key, ()), record.name)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self.topics.pop(record.topic_id)
        self.topic_ids.pop(topic.name, None)
        key = collision_key(topic.name)
        names = tuple(name for name in self.collisions.get(key, ()) if name != topic.name)
        if names:
            self.collisions[key] = names
        else:
            self.collisions.pop(key, ())
        for partition_id in range(topic.partition_count):
            del self.partitions[(topic.topic_id, partition_id)]
        self.configs.pop((int(ResourceType.TOPIC), topic.name), {})

    def _partition(self, record: PartitionRecord) -> None:
        topic = self.topics[record.topic_id]
        key = (record.topic_id, record.partition_id)
        if key not in self.partitions:
            assert record.partition_id == topic.partition_count, "partitions are numbered without gaps"
            self.topics[record.topic_id] = replace(topic, partition_count=topic.partition_count + 1)
        self.partitions[key] = partition_of(record)

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        key = (record.topic_id, record.partition_id)
        before = self.partitions[key]
        after = changed_partition(before, record)
        check_change(before, after)
        self.partitions[key] = after

    def _clear_elr(self, record: ClearElrRecord) -> None:
        only = self.topic_ids.get(record.topic_name) if record.topic_name else None
        for key, partition in list(self.partitions.items()):
            wanted = not record.topic_name or key[0] == only
            if wanted and (partition.elr or partition.last_known_elr):
                self.partitions[key] = replace(partition, elr=(), last_known_elr=())

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        assert record.next_producer_id >= self.next_producer_id.value, "a producer id is given out once"
        self.next_producer_id.value = record.next_producer_id

    def _put(self, record: Any) -> None:
        self.others[other_key(record)] = record

    def _drop(self, record: Any) -> None:
        self.others.pop(other_key(record), None)

    def _scram(self, record: UserScramCredentialRecord) -> None:
        self._put(record)

    def _remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        self._drop(record)

    def _token(self, record: DelegationTokenRecord) -> None:
        self._put(record)

    def _remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        self._drop(record)

    def _acl(self, record: AccessControlEntryRecord) -> None:
        self._put(record)
        self.acl_ids[acl_of(record)] = record.id

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        kept = self.others.pop(other_key(record), None)
        if kept is not None:
            self.acl_ids.pop(acl_of(kept), None)

    def _quota(self, record: ClientQuotaRecord) -> None:
        if record.remove:
            self._drop(record)
        else:
            self._put(record)


def collision_key(topic_name: str) -> str:
    """Topics whose names give the same key cannot be distinguished in metric names."""
    return topic_name.replace(".", "_")


def other_key(record: Any) -> tuple[Any, ...]:
    """The key of a record in `ControllerState.others`."""
    kind = type(record).__name__
    if kind == "ClientQuotaRecord":
        entity = sorted((part.entity_type, part.entity_name or "", part.entity_name is None) for part in record.entity)
        return ("quota", tuple(entity), record.key)
    if kind.endswith("AccessControlEntryRecord"):
        return ("acl", record.id)
    if kind.endswith("UserScramCredentialRecord"):
        return ("scram", record.name, record.mechanism)
    return ("token", record.token_id)
