"""Builds the coordinators of groups and of transactions, which live in a broker's partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from odradek.common.numbers import INT32_MAX
from odradek.coordinator.batches import RecordCodec
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.records import GROUP_RECORDS, OFFSETS_TOPIC
from odradek.coordinator.group.service import GroupCoordinator
from odradek.coordinator.log import PartitionMachineLog
from odradek.coordinator.transaction.records import TRANSACTION_RECORDS
from odradek.log.producer_state import ProducerState
from odradek.server.auto_topic_creation import AutoCreateConfig, TopicCreator
from odradek.server.parts.ports import Ports
from odradek.server.parts.quorum import QuorumParts
from odradek.server.parts.replicas import ReplicaParts
from odradek.server.parts.security import SecurityParts
from odradek.server.transactions.service import Transactions
from odradek.settings.broker import BrokerSettings

RecordT = TypeVar("RecordT")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorParts:
    """The coordinators, and the creator of their topics."""

    topic_creator: TopicCreator
    groups: GroupCoordinator
    transactions: Transactions


def build_coordinators(
    settings: BrokerSettings,
    ports: Ports,
    quorum: QuorumParts,
    data: ReplicaParts,
    security: SecurityParts,
    *,
    image_is_current: Callable[[], bool],
) -> CoordinatorParts:
    """`image_is_current` returns whether the image is no older than this broker's registration."""
    replicas, publisher = data.replicas, quorum.publisher

    def make_log(codec: RecordCodec[RecordT], partition_id: int, leader_epoch: int) -> PartitionMachineLog[RecordT]:
        partition = replicas.find(codec.topic, partition_id, publisher.image)
        return PartitionMachineLog(
            partition,
            leader_epoch,
            ports.clock,
            codec,
            max_batch_bytes=partition.log.config.max_message_bytes,
            on_storage_error=replicas.storage_failed,
        )

    def producers_of(partition_id: int) -> ProducerState | None:
        partition = replicas.partition(OFFSETS_TOPIC, partition_id)
        return None if partition is None else partition.log.producers

    def max_record_bytes(partition_id: int) -> int:
        partition = replicas.partition(OFFSETS_TOPIC, partition_id)
        return INT32_MAX if partition is None else partition.log.config.max_message_bytes

    topic_creator = TopicCreator(settings.build(AutoCreateConfig), quorum.gateway, publisher)
    groups = GroupCoordinator(
        settings.build(GroupConfig),
        node_id=settings.node_id,
        clock=ports.clock,
        random=ports.random,
        make_log=lambda partition_id, epoch: make_log(GROUP_RECORDS, partition_id, epoch),
        image=lambda: publisher.image,
        create_topic=topic_creator.create_with,
        run_blocking=ports.disk.run_blocking,
        consumer_config=settings.build(ConsumerGroupConfig),
        producers_of=producers_of,
        max_record_bytes=max_record_bytes,
    )
    transactions = Transactions(
        settings,
        clock=ports.clock,
        network=ports.network,
        image=lambda: publisher.image,
        image_is_current=image_is_current,
        broker_epoch=lambda: data.lifecycle.broker_epoch,
        replicas=replicas,
        groups=groups,
        controller=quorum.gateway,
        make_log=lambda number, epoch: make_log(TRANSACTION_RECORDS, number, epoch),
        create_topic=topic_creator.create_with,
        run_blocking=ports.disk.run_blocking,
        security=security.between_brokers,
    )
    return CoordinatorParts(topic_creator=topic_creator, groups=groups, transactions=transactions)
