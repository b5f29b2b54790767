"""Leaders and in-sync sets: what follows when a broker comes, goes or reports, and elections that are asked for.

AlterPartition (KIP-497, 841, 903), ElectLeaders (KIP-460).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.controller.config import ControllerConfig
from odradek.controller.election import RECOVERED, RECOVERING, Election, ElectionRules, change_partition
from odradek.controller.state import ControllerState, PartitionKey, TopicEntry
from odradek.metadata.model import NO_LEADER, PartitionImage, changed_partition
from odradek.protocol.messages import alter_partition_request as alter_request
from odradek.protocol.messages import alter_partition_response as alter_response
from odradek.protocol.messages import elect_leaders_response as elect_response
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.statemachine.machine import Result


class Partitions:
    """Operations on partitions' leadership."""

    def __init__(self, state: ControllerState, config: ControllerConfig) -> None:
        self._state = state
        self.config = config

    def min_isr(self, topic_name: str, replica_count: int) -> int:
        """The effective min.insync.replicas: never more than there are replicas."""
        text = self._state.topic_config(topic_name, "min.insync.replicas")
        return min(int(text) if text else self.config.min_insync_replicas, replica_count)

    def unclean_allowed(self, topic_name: str) -> bool:
        """Whether this topic accepts a leader that may lack records."""
        text = self._state.topic_config(topic_name, "unclean.leader.election.enable")
        return text.lower() == "true" if text else self.config.unclean_leader_election_enable

    def rules(self, topic_name: str, replica_count: int, *, without: int = -1, with_: int = -1) -> ElectionRules:
        """The rules of one partition, with one broker counted as gone or as there already."""
        brokers = self._state.brokers

        def acceptable(broker_id: int) -> bool:
            if broker_id == without:
                return False
            broker = brokers.get(broker_id)
            return broker_id == with_ or (broker is not None and broker.active)

        return ElectionRules(
            acceptable,
            self.min_isr(topic_name, replica_count),
            self._state.elr_enabled,
            self._state.metadata_version,
        )

    def broker_leaves(self, broker_id: int, *, unclean_shutdown: bool = False) -> list[PartitionChangeRecord]:
        """Records that take a broker out of every in-sync set and leadership.

        Args:
            unclean_shutdown: it may have lost what it had not flushed, so it is not eligible either (KIP-966).
        """
        records = []
        for key, topic, partition in self._all():
            inside = broker_id in partition.isr or broker_id == partition.leader
            if not inside and not (unclean_shutdown and broker_id in partition.elr):
                continue
            record = change_partition(
                *key,
                partition,
                self.rules(topic.name, len(partition.replicas), without=broker_id),
                election=self._online(topic.name),
                target_isr=[replica for replica in partition.isr if replica != broker_id],
                unclean_shutdown=(broker_id,) if unclean_shutdown else (),
            )
            if record is not None:
                records.append(record)
        return records

    def broker_arrives(self, broker_id: int) -> list[PartitionChangeRecord]:
        """Records that let a broker lead the partitions without a leader that it can lead."""
        records = []
        for key, topic, partition in self._all():
            if partition.leader != NO_LEADER or broker_id not in partition.replicas:
                continue
            rules = self.rules(topic.name, len(partition.replicas), with_=broker_id)
            record = change_partition(*key, partition, rules, election=self._online(topic.name))
            if record is not None:
                records.append(record)
        return records

    def leads_any(self, broker_id: int) -> bool:
        """Whether a broker leads any partition."""
        return any(partition.leader == broker_id for partition in self._state.partitions.values())

    def _online(self, topic_name: str) -> Election:
        return Election.UNCLEAN if self.unclean_allowed(topic_name) else Election.ONLINE

    def _all(self) -> Iterator[tuple[PartitionKey, TopicEntry, PartitionImage]]:
        for key, partition in self._state.partitions.items():
            yield key, self._state.topics[key[0]], partition

    def alter_partition(self, request: alter_request.AlterPartitionRequest) -> Result[Any, Any]:
        """A leader reports its new in-sync set. Each partition succeeds or fails on its own.

        Raises:
            ApiError: STALE_BROKER_EPOCH: the broker has registered again since.
        """
        broker = self._state.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {request.broker_id} is not of epoch {request.broker_epoch}"
            )
        records: list[PartitionChangeRecord] = []
        topics = []
        for asked in request.topics:
            answers = []
            for data in asked.partitions:
                try:
                    answer = self._alter_one(request.broker_id, asked.topic_id, data, records)
                except ApiError as error:
                    answer = alter_response.PartitionData(partition_index=data.partition_index, error_code=error.code)
                answers.append(answer)
            topics.append(alter_response.TopicData(topic_id=asked.topic_id, partitions=answers))
        return Result(records, alter_response.AlterPartitionResponse(topics=topics))

    def _alter_one(
        self, broker_id: int, topic_id: Any, data: Any, records: list[PartitionChangeRecord]
    ) -> alter_response.PartitionData:
        topic = self._state.topics.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic with id {topic_id}")
        partition = self._state.partitions.get((topic_id, data.partition_index))
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{data.partition_index} does not exist")
        # A leader that speaks for nobody in particular: the v2 request has no broker epochs.
        wanted = [(state.broker_id, state.broker_epoch) for state in data.new_isr_with_epochs] or [
            (replica, -1) for replica in data.new_isr
        ]
        self._check_alter(broker_id, partition, data, [replica for replica, _ in wanted])
        self._check_eligible(wanted)
        record = change_partition(
            topic_id,
            data.partition_index,
            partition,
            self.rules(topic.name, len(partition.replicas)),
            election=self._online(topic.name),
            target_isr=[replica for replica, _ in wanted],
            target_recovery_state=data.leader_recovery_state,
        )
        if record is not None:
            records.append(record)
            partition = changed_partition(partition, record)
        return alter_response.PartitionData(
            partition_index=data.partition_index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            leader_recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )

    def _check_alter(self, broker_id: int, partition: PartitionImage, data: Any, isr: Collection[int]) -> None:
        if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
            # The leader knows more than this controller: another one is active.
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
            raise ApiError(ErrorCode.INVALID_REQUEST, "a leader that recovers is in sync with nobody else")
        if partition.leader_recovery_state == RECOVERED and data.leader_recovery_state == RECOVERING:
            raise ApiError(ErrorCode.INVALID_REQUEST, "only an unclean election begins a recovery")

    def _check_eligible(self, wanted: Collection[tuple[int, int]]) -> None:
        for broker_id, broker_epoch in wanted:
            broker = self._state.brokers.get(broker_id)
            if broker is None or not broker.active:
                raise ApiError(
                    ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id} is fenced, stopping or not registered"
                )
            if broker_epoch not in (-1, broker.broker_epoch):
                raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id} has started again since")

    def elect_leaders(self, request: ElectLeadersRequest) -> Result[Any, elect_response.ElectLeadersResponse]:
        """Elect preferred leaders, or any that live (unclean). Null partitions mean all, where only changes are told.

        Raises:
            ApiError: INVALID_REQUEST for an unknown election type.
        """
        kinds = {0: Election.PREFERRED, 1: Election.UNCLEAN}
        if request.election_type not in kinds:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"no election type {request.election_type}")
        election = kinds[request.election_type]
        asked: dict[str, list[int]] = {}
        if request.topic_partitions is None:
            for key, topic, partition in self._all():
                at_rest = partition.leader in (partition.preferred_leader, NO_LEADER)
                if partition.leader == NO_LEADER or (election is Election.PREFERRED and not at_rest):
                    asked.setdefault(topic.name, []).append(key[1])
        else:
            for topic_partitions in request.topic_partitions:
                asked.setdefault(topic_partitions.topic, []).extend(topic_partitions.partitions)
        records: list[PartitionChangeRecord] = []
        results = []
        for topic_name, partition_ids in asked.items():
            answers = []
            for partition_id in partition_ids:
                answer = elect_response.PartitionResult(partition_id=partition_id, error_message=None)
                try:
                    records.append(self._elect_one(topic_name, partition_id, election))
                except ApiError as error:
                    answer.error_code, answer.error_message = error.code, error.message
                answers.append(answer)
            results.append(elect_response.ReplicaElectionResult(topic=topic_name, partition_result=answers))
        return Result(records, elect_response.ElectLeadersResponse(replica_election_results=results), atomic=False)

    def _elect_one(self, topic_name: str, partition_id: int, election: Election) -> PartitionChangeRecord:
        topic_id = self._state.topic_ids.get(topic_name)
        partition = None if topic_id is None else self._state.partitions.get((topic_id, partition_id))
        if topic_id is None or partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_name}-{partition_id} does not exist")
        if election is Election.PREFERRED and partition.leader == partition.preferred_leader:
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "the preferred leader leads")
        if election is Election.UNCLEAN and partition.has_leader:
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "a leader is there")
        rules = self.rules(topic_name, len(partition.replicas))
        record = change_partition(topic_id, partition_id, partition, rules, election=election)
        if election is Election.PREFERRED and (record is None or record.leader != partition.preferred_leader):
            raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "the preferred leader is not fit to lead")
        if record is None:
            raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is fit to lead")
        return record
