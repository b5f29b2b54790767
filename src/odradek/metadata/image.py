"""The cluster as of one offset of the metadata log: immutable, shared by everything on the broker that reads it.

A `delta` creates an image from the previous one, and both share all unchanged parts. A reference to an image is a
consistent view, at no cost. `records()` writes an image as the records of a snapshot, which
replayed into an empty image give the same image again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from uuid import UUID

from odradek.metadata.features import DEFAULT_METADATA_VERSION, METADATA_VERSION
from odradek.metadata.model import (
    Acl,
    BrokerImage,
    ConfigResource,
    ControllerImage,
    DelegationToken,
    PartitionImage,
    QuotaEntity,
    ResourceType,
    ScramCredential,
    TopicImage,
    acl_record,
    broker_record,
    controller_record,
    partition_record,
)
from odradek.protocol.messages.client_quota_record import ClientQuotaRecord, EntityData
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.delegation_token_record import DelegationTokenRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.messages.user_scram_credential_record import UserScramCredentialRecord

# One for all, as it cannot be written to.
_EMPTY: Mapping[Any, Any] = MappingProxyType({})


def _empty() -> Mapping[Any, Any]:
    return _EMPTY


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The metadata of the cluster as of `offset`.

    Attributes:
        offset: inclusive: the last record contained; -1 for the empty image.
        leader_epoch: the quorum's epoch of that record.
        cluster_id, controller_id: not from records: the id of the cluster and the quorum's leader (-1 if unknown), so
            that a Metadata response needs only the image.
        configs: by (ResourceType, name); the default of all brokers is (BROKER, "").
        next_producer_id: the first id of the next block; -1 before the first block.
    """

    offset: int = -1
    leader_epoch: int = 0
    cluster_id: str = ""
    controller_id: int = -1
    features: Mapping[str, int] = field(default_factory=_empty)
    topics_by_name: Mapping[str, TopicImage] = field(default_factory=_empty)
    topics_by_id: Mapping[UUID, TopicImage] = field(default_factory=_empty)
    brokers: Mapping[int, BrokerImage] = field(default_factory=_empty)
    controllers: Mapping[int, ControllerImage] = field(default_factory=_empty)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=_empty, repr=False)
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=_empty)
    acls: Mapping[UUID, Acl] = field(default_factory=_empty)
    scram: Mapping[tuple[str, int], ScramCredential] = field(default_factory=_empty)
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=_empty)
    next_producer_id: int = -1

    @property
    def metadata_version(self) -> int:
        """The finalized level of metadata.version; the default if none is recorded."""
        return self.features.get(METADATA_VERSION, DEFAULT_METADATA_VERSION)

    def topic(self, name: str) -> TopicImage | None:
        """A topic by its name."""
        return self.topics_by_name.get(name)

    def partition(self, name: str, partition_id: int) -> PartitionImage | None:
        """A partition by its topic's name and its number."""
        topic = self.topics_by_name.get(name)
        return None if topic is None else topic.partitions.get(partition_id)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The settings of one resource, without defaults and inheritance."""
        return self.configs.get((resource_type, name), _EMPTY)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The overrides of one topic."""
        return self.config(ResourceType.TOPIC, name)

    def records(self) -> Iterator[Any]:
        """This image as records, metadata.version first, so that a reader knows how to read the rest."""
        level = self.metadata_version
        for name, feature_level in sorted(self.features.items(), key=lambda item: (item[0] != METADATA_VERSION, item)):
            yield FeatureLevelRecord(name=name, feature_level=feature_level)
        for _, broker in sorted(self.brokers.items()):
            yield broker_record(broker, level)
        for _, controller in sorted(self.controllers.items()):
            yield controller_record(controller)
        for topic in self.topics_by_id.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for partition_id, partition in sorted(topic.partitions.items()):
                yield partition_record(topic.topic_id, partition_id, partition, level)
        for (resource_type, resource_name), settings in sorted(self.configs.items()):
            for name, value in settings.items():
                yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
        yield from self._quota_records()
        if self.next_producer_id >= 0:
            yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id)
        yield from self._security_records()

    def _quota_records(self) -> Iterator[Any]:
        for entity, quotas in self.client_quotas.items():
            for key, value in quotas.items():
                parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
                yield ClientQuotaRecord(entity=parts, key=key, value=value, remove=False)

    def _security_records(self) -> Iterator[Any]:
        for acl_id, acl in self.acls.items():
            yield acl_record(acl_id, acl)
        for (user, mechanism), credential in sorted(self.scram.items(), key=lambda item: item[0]):
            yield UserScramCredentialRecord(
                name=user,
                mechanism=mechanism,
                salt=credential.salt,
                stored_key=credential.stored_key,
                server_key=credential.server_key,
                iterations=credential.iterations,
            )
        for token in self.delegation_tokens.values():
            yield DelegationTokenRecord(
                owner=token.owner,
                requester=token.requester,
                renewers=list(token.renewers),
                issue_timestamp=token.issue_timestamp_ms,
                max_timestamp=token.max_timestamp_ms,
                expiration_timestamp=token.expiration_timestamp_ms,
                token_id=token.token_id,
            )
