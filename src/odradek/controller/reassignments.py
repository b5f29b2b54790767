"""Reassignment of replicas: AlterPartitionReassignments and ListPartitionReassignments (KIP-455).

During a reassignment a partition has the replicas of both sides, the target's first; the added ones must join the
in-sync set before the removed ones leave, in one change (`election._complete_reassignment`). This module copies no
data: the new replicas fetch it as followers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import Turns
from odradek.controller.bounds import ENTRIES_PER_STEP, check_size
from odradek.controller.election import Target, change_partition
from odradek.controller.mirrors import mirror_settings
from odradek.controller.partitions import Partitions
from odradek.controller.state import ControllerState, PartitionKey, TopicEntry
from odradek.metadata.model import PartitionImage
from odradek.protocol.messages import alter_partition_reassignments_response as alter_response
from odradek.protocol.messages import list_partition_reassignments_response as list_response
from odradek.protocol.messages.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from odradek.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.settings.links import was_failed_back
from odradek.statemachine.machine import Result, Steps


class Reassignments:
    """Operations that reassign replicas."""

    def __init__(self, state: ControllerState, partitions: Partitions) -> None:
        self._state = state
        self._partitions = partitions

    def alter(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Steps[Any, alter_response.AlterPartitionReassignmentsResponse]:
        """Start, change or, if replicas are null, cancel reassignments. Each partition succeeds or fails on its own.

        Raises:
            ApiError: POLICY_VIOLATION, as `check_size`.
        """
        check_size(request)
        turns = Turns(ENTRIES_PER_STEP)
        records: list[PartitionChangeRecord] = []
        responses = []
        seen: set[tuple[str, int]] = set()
        for topic in request.topics:
            results = []
            for asked in topic.partitions:
                if turns.fill():
                    yield
                result = alter_response.ReassignablePartitionResponse(
                    partition_index=asked.partition_index, error_message=None
                )
                try:
                    if (topic.name, asked.partition_index) in seen:
                        raise ApiError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
                    seen.add((topic.name, asked.partition_index))
                    record = self._alter_one(
                        topic.name, asked.partition_index, asked.replicas, request.allow_replication_factor_change
                    )
                    records.extend([record] if record is not None else [])
                except ApiError as error:
                    result.error_code, result.error_message = error.code, error.message
                results.append(result)
            responses.append(alter_response.ReassignableTopicResponse(name=topic.name, partitions=results))
        answer = alter_response.AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None,
            responses=responses,
        )
        return Result(records, answer, atomic=False)

    def _alter_one(
        self, topic_name: str, partition_id: int, target_replicas: Sequence[int] | None, other_factor: bool
    ) -> PartitionChangeRecord | None:
        topic_id = self._state.topic_ids.get(topic_name)
        if topic_id is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic_name}.")
        key = (topic_id, partition_id)
        partition = self._state.partitions.get(key)
        if partition is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic_name}:{partition_id}."
            )
        topic = self._state.topics[topic_id]
        if target_replicas is None:
            return self._cancel(key, topic, partition)
        self._check(target_replicas, partition, other_factor)
        self._check_not_away(topic_name, target_replicas, partition)
        return self._begin(key, topic, partition, tuple(target_replicas))

    def _check_not_away(self, topic: str, target_replicas: Sequence[int], partition: PartitionImage) -> None:
        """Refuse a fenced broker: it may still have the log from before a failback, which must not be continued."""
        if not was_failed_back(mirror_settings(self._state, topic), topic):
            return
        for broker_id in target_replicas:
            if broker_id not in partition.replicas and self._state.brokers[broker_id].fenced:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment includes broker {broker_id}, which is fenced and may have what "
                    f"was cut from '{topic}' in its failback.",
                )

    def _check(self, target_replicas: Sequence[int], partition: PartitionImage, other_factor: bool) -> None:
        if not target_replicas:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."
            )
        if len(set(target_replicas)) < len(target_replicas):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes a broker more than once: {list(target_replicas)}.",
            )
        for broker_id in target_replicas:
            broker = self._state.brokers.get(broker_id)
            if broker is None:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment includes broker {broker_id}, but no such broker is registered.",
                )
            if broker.cordoned and broker_id not in partition.replicas:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment includes broker {broker_id}, whose log directories are all "
                    "cordoned.",
                )
        factor = len(_target_replicas(partition))
        if len(target_replicas) != factor and not other_factor:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {factor} to {len(target_replicas)}",
            )

    def _begin(
        self, key: PartitionKey, topic: TopicEntry, partition: PartitionImage, target_replicas: tuple[int, ...]
    ) -> PartitionChangeRecord | None:
        # A new replica of an earlier reassignment that is no longer wanted is removed at once, unless it could lead.
        trusted = {*partition.isr, *partition.elr, partition.leader}
        forgotten = {
            replica
            for replica in partition.adding_replicas
            if replica not in target_replicas and replica not in trusted and replica not in partition.last_known_elr
        }
        present = [replica for replica in partition.replicas if replica not in forgotten]
        settled = [replica for replica in present if replica not in partition.adding_replicas]
        removing = [replica for replica in present if replica not in target_replicas]
        adding = [replica for replica in target_replicas if replica not in settled]
        return change_partition(
            *key,
            partition,
            self._partitions.rules(topic.name, partition),
            election=self._partitions.online(topic.name),
            target=Target(replicas=(*target_replicas, *removing), adding=adding, removing=removing),
        )

    def _cancel(self, key: PartitionKey, topic: TopicEntry, partition: PartitionImage) -> PartitionChangeRecord | None:
        if not partition.reassigning:
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        replicas = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
        isr = [replica for replica in partition.isr if replica in replicas]
        # The replicas that have all acknowledged records, or may be closest to it.
        trusted = partition.isr or partition.elr or partition.last_known_elr
        unclean = bool(trusted) and not set(trusted) & set(replicas)
        if not replicas or (unclean and not self._partitions.unclean_allowed(topic.name)):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}-{key[1]} because it would require an unclean "
                "leader election.",
            )
        return change_partition(
            *key,
            partition,
            self._partitions.rules(topic.name, partition),
            election=self._partitions.online(topic.name),
            target=Target(isr=isr, replicas=replicas, adding=(), removing=()),
        )

    def list_moves(
        self, request: ListPartitionReassignmentsRequest
    ) -> Result[Any, list_response.ListPartitionReassignmentsResponse]:
        """The reassignments of the requested partitions or, if none are named, of all. Unknown ones are omitted."""
        found: dict[str, list[list_response.OngoingPartitionReassignment]] = {}
        if request.topics is None:
            for key, topic, partition in self._partitions.all_partitions():
                if partition.reassigning:
                    found.setdefault(topic.name, []).append(_ongoing(key[1], partition))
        for asked in request.topics or ():
            topic_id = self._state.topic_ids.get(asked.name)
            if topic_id is None:
                continue
            for number in dict.fromkeys(asked.partition_indexes):
                present = self._state.partitions.get((topic_id, number))
                if present is not None and present.reassigning:
                    found.setdefault(asked.name, []).append(_ongoing(number, present))
        topics = [list_response.OngoingTopicReassignment(name=name, partitions=moves) for name, moves in found.items()]
        return Result([], list_response.ListPartitionReassignmentsResponse(error_message=None, topics=topics))


def _target_replicas(partition: PartitionImage) -> list[int]:
    """The replicas of a partition after its reassignment, or else before it."""
    if partition.reassigning:
        return [replica for replica in partition.replicas if replica not in partition.removing_replicas]
    return list(partition.replicas)


def _ongoing(number: int, partition: PartitionImage) -> list_response.OngoingPartitionReassignment:
    return list_response.OngoingPartitionReassignment(
        partition_index=number,
        replicas=[*partition.replicas],
        adding_replicas=[*partition.adding_replicas],
        removing_replicas=[*partition.removing_replicas],
    )
