"""Leaders and in-sync sets: changes after a broker is fenced, unfenced or loses a disk, and reports of leaders.

AlterPartition (KIP-497, 841, 903). Elections on request are in `leaders.py`, reassignments in
`reassignments.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.controller.config import ControllerConfig
from odradek.controller.election import RECOVERED, RECOVERING, Election, ElectionRules, Target, change_partition
from odradek.controller.state import ControllerState, PartitionKey, TopicEntry
from odradek.metadata.model import NO_LEADER, UNASSIGNED_DIRECTORY, PartitionImage, changed_partition
from odradek.protocol.messages import alter_partition_request as alter_request
from odradek.protocol.messages import alter_partition_response as alter_response
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.statemachine.machine import Result


class Partitions:
    """Operations on partitions' leadership."""

    def __init__(self, state: ControllerState, config: ControllerConfig) -> None:
        self._state = state
        self.config = config

    def min_isr(self, topic_name: str) -> int:
        """The effective min.insync.replicas of a topic."""
        text = self._state.topic_config(topic_name, "min.insync.replicas")
        return int(text) if text else self.config.min_insync_replicas

    def unclean_allowed(self, topic_name: str) -> bool:
        """Whether unclean elections are enabled for this topic."""
        text = self._state.topic_config(topic_name, "unclean.leader.election.enable")
        return text.lower() == "true" if text else self.config.unclean_leader_election_enable

    def rules(
        self,
        topic_name: str,
        partition: PartitionImage,
        *,
        remove_from_isr: int = -1,
        with_: int = -1,
        moved: Mapping[int, UUID] = MappingProxyType({}),
    ) -> ElectionRules:
        """The election rules of one partition, with one broker treated as fenced or as unfenced already.

        Args:
            moved: directories of replicas that the same operation changes.
        """
        brokers = self._state.brokers

        def acceptable(broker_id: int) -> bool:
            broker = brokers.get(broker_id)
            if broker is None or broker_id == remove_from_isr:
                return False
            serves = broker.active or (broker_id == with_ and not broker.in_controlled_shutdown)
            return serves and broker.has_online(moved.get(broker_id, partition.directory(broker_id)))

        def full(broker_id: int) -> bool:
            return self._state.is_full(broker_id, moved.get(broker_id, partition.directory(broker_id)))

        return ElectionRules(
            acceptable,
            self.min_isr(topic_name),
            self._state.elr_enabled,
            self._state.metadata_version,
            draining=lambda broker_id: self._state.draining(broker_id) or full(broker_id),
            directory=self.default_directory,
        )

    def default_directory(self, broker_id: int) -> UUID:
        """The directory of a broker with only one, for a new replica; else UNASSIGNED_DIRECTORY: the broker chooses."""
        broker = self._state.brokers.get(broker_id)
        return broker.directories[0] if broker is not None and len(broker.directories) == 1 else UNASSIGNED_DIRECTORY

    def handle_broker_fenced(self, broker_id: int, *, unclean_shutdown: bool = False) -> list[PartitionChangeRecord]:
        """The records that remove a broker from every in-sync set and leadership.

        Args:
            unclean_shutdown: it may have lost records that were not flushed, so it is not eligible either (KIP-966).
        """
        touched = [
            (key, topic, partition)
            for key, topic, partition in self.all_partitions()
            if broker_id in partition.isr
            or broker_id == partition.leader
            or (unclean_shutdown and broker_id in partition.elr)
        ]
        return self._without(broker_id, touched, (broker_id,) if unclean_shutdown else ())

    def handle_directories_lost(
        self, broker_id: int, lost: Collection[UUID], *, skip: Collection[PartitionKey] = ()
    ) -> list[PartitionChangeRecord]:
        """The records that remove a broker from the partitions in its offline directories (KIP-858).

        Args:
            skip: partitions that the same operation has changed already.
        """
        touched = [
            (key, topic, partition)
            for key, topic, partition in self.all_partitions()
            if key not in skip
            and (broker_id in partition.isr or broker_id == partition.leader)
            and partition.directory(broker_id) in lost
        ]
        return self._without(broker_id, touched)

    def handle_directories_full(self, broker_id: int) -> list[PartitionChangeRecord]:
        """The records that remove a broker with a full disk from partitions with another in-sync replica to lead.

        Neither the broker's own appends nor those that wait for it can finish before there is space.
        """
        touched = [
            (key, topic, partition)
            for key, topic, partition in self.all_partitions()
            if broker_id in partition.isr
            and self._state.is_full(broker_id, partition.directory(broker_id))
            and self._others_can_write(broker_id, topic, partition)
        ]
        return self._without(broker_id, touched)

    def _others_can_write(self, broker_id: int, topic: TopicEntry, partition: PartitionImage) -> bool:
        acceptable = self.rules(topic.name, partition, remove_from_isr=broker_id).acceptable
        return any(
            acceptable(other) and not self._state.is_full(other, partition.directory(other)) for other in partition.isr
        )

    def remove_from_isr(
        self,
        broker_id: int,
        key: PartitionKey,
        partition: PartitionImage,
        *,
        unclean_shutdown: Collection[int] = (),
        directories: dict[int, UUID] | None = None,
    ) -> PartitionChangeRecord | None:
        """The record that removes a broker from one partition's in-sync set and leadership."""
        topic = self._state.topics[key[0]]
        return change_partition(
            *key,
            partition,
            self.rules(topic.name, partition, remove_from_isr=broker_id),
            election=self.online(topic.name),
            target=Target(
                isr=[replica for replica in partition.isr if replica != broker_id],
                unclean_shutdown=unclean_shutdown,
                directories=directories or {},
            ),
        )

    def _without(
        self,
        broker_id: int,
        touched: Collection[tuple[PartitionKey, TopicEntry, PartitionImage]],
        unclean_shutdown: Collection[int] = (),
    ) -> list[PartitionChangeRecord]:
        changes = (
            self.remove_from_isr(broker_id, key, partition, unclean_shutdown=unclean_shutdown)
            for key, _, partition in touched
        )
        return [record for record in changes if record is not None]

    def handle_broker_unfenced(self, broker_id: int) -> list[PartitionChangeRecord]:
        """The records that elect a broker in the partitions without a leader that it can lead."""
        return self._elect_missing(broker_id)

    def elect_offline_partitions(self) -> Result[Any, None]:
        """Elect leaders for partitions without one, after a change such as unclean.leader.election.enable."""
        return Result(self._elect_missing(), None, atomic=False)

    def _elect_missing(self, arriving: int | None = None) -> list[PartitionChangeRecord]:
        records = []
        for key, topic, partition in self.all_partitions():
            if partition.leader != NO_LEADER or (arriving is not None and arriving not in partition.replicas):
                continue
            rules = self.rules(topic.name, partition, with_=-1 if arriving is None else arriving)
            record = change_partition(*key, partition, rules, election=self.online(topic.name))
            if record is not None:
                records.append(record)
        return records

    def leads_any(self, broker_id: int) -> bool:
        """Whether a broker leads any partition."""
        return any(partition.leader == broker_id for partition in self._state.partitions.values())

    def online(self, topic_name: str) -> Election:
        """The kind of election that happens without a request in a topic."""
        return Election.UNCLEAN if self.unclean_allowed(topic_name) else Election.ONLINE

    def all_partitions(self) -> Iterator[tuple[PartitionKey, TopicEntry, PartitionImage]]:
        """Every partition with its topic."""
        for key, partition in self._state.partitions.items():
            yield key, self._state.topics[key[0]], partition

    def alter_partition(
        self, request: alter_request.AlterPartitionRequest
    ) -> Result[Any, alter_response.AlterPartitionResponse]:
        """Handle a leader's new in-sync sets. Each partition succeeds or fails on its own.

        Raises:
            ApiError: STALE_BROKER_EPOCH: the broker has registered again.
        """
        broker = self._state.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {request.broker_id} is not of epoch {request.broker_epoch}"
            )
        records: list[PartitionChangeRecord] = []
        topics = []
        seen: set[PartitionKey] = set()
        for asked in request.topics:
            answers = []
            for data in asked.partitions:
                key = (asked.topic_id, data.partition_index)
                try:
                    if key in seen:
                        raise ApiError(ErrorCode.INVALID_REQUEST, "a partition is named twice")
                    seen.add(key)
                    answer = self._alter_one(request.broker_id, asked.topic_id, data, records)
                except ApiError as error:
                    answer = alter_response.PartitionData(partition_index=data.partition_index, error_code=error.code)
                answers.append(answer)
            topics.append(alter_response.TopicData(topic_id=asked.topic_id, partitions=answers))
        return Result(records, alter_response.AlterPartitionResponse(topics=topics))

    def _alter_one(
        self,
        broker_id: int,
        topic_id: UUID,
        data: alter_request.PartitionData,
        records: list[PartitionChangeRecord],
    ) -> alter_response.PartitionData:
        topic = self._state.topics.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic with id {topic_id}")
        partition = self._state.partitions.get((topic_id, data.partition_index))
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{data.partition_index} does not exist")
        # The request of version 2 has no broker epochs.
        new_isr = [(state.broker_id, state.broker_epoch) for state in data.new_isr_with_epochs] or [
            (replica, -1) for replica in data.new_isr
        ]
        self._check_alter(broker_id, partition, data, [replica for replica, _ in new_isr])
        self._check_eligible(new_isr, partition)
        record = change_partition(
            topic_id,
            data.partition_index,
            partition,
            self.rules(topic.name, partition),
            election=self.online(topic.name),
            target=Target(isr=[replica for replica, _ in new_isr], recovery_state=data.leader_recovery_state),
        )
        if record is not None:
            records.append(record)
            partition = changed_partition(partition, record)
            if partition.leader != broker_id:
                # Its report completed a reassignment that removes it: the metadata has the new leader by now.
                raise ApiError(ErrorCode.NEW_LEADER_ELECTED, f"broker {partition.leader} leads from here on")
        return alter_response.PartitionData(
            partition_index=data.partition_index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            leader_recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )

    def _check_alter(
        self, broker_id: int, partition: PartitionImage, data: alter_request.PartitionData, isr: Collection[int]
    ) -> None:
        if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
            # The leader's epochs are newer than this controller's: another controller is active.
            raise ApiError(ErrorCode.NOT_CONTROLLER, "the leader's epochs are newer than the controller's")
        if data.leader_epoch < partition.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {partition.leader_epoch} by now")
        if broker_id != partition.leader:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {broker_id} does not lead this partition")
        if data.partition_epoch < partition.partition_epoch:
            raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"partition epoch is {partition.partition_epoch} by now")
        if not isr or len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
            raise ApiError(ErrorCode.INVALID_REQUEST, "the in-sync set must be some of the replicas, each once")
        if partition.leader not in isr:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the leader must be in its own in-sync set")
        if data.leader_recovery_state not in (RECOVERED, RECOVERING):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"no leader recovery state {data.leader_recovery_state}")
        if data.leader_recovery_state == RECOVERING and len(isr) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a leader that recovers has no other in-sync replica")
        if partition.leader_recovery_state == RECOVERED and data.leader_recovery_state == RECOVERING:
            raise ApiError(ErrorCode.INVALID_REQUEST, "only an unclean election begins a recovery")

    def _check_eligible(self, new_isr: Collection[tuple[int, int]], partition: PartitionImage) -> None:
        for broker_id, broker_epoch in new_isr:
            broker = self._state.brokers.get(broker_id)
            if broker is None or not broker.active:
                raise ApiError(
                    ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id} is fenced, stopping or not registered"
                )
            if broker_epoch not in (-1, broker.broker_epoch):
                raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id} has started again since")
            joins = broker_id not in partition.isr
            if joins and not broker.has_online(partition.directory(broker_id)):
                # Its last fetches were before the directory failed: in the set, it could neither lead nor follow.
                raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id} has lost the directory of this")
            if joins and self._state.is_full(broker_id, partition.directory(broker_id)):
                raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id} has no space for this partition")
