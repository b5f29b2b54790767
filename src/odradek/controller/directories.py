"""The log directory of each replica, as brokers report it: AssignReplicasToDirs (KIP-858)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.controller.brokers import Brokers
from odradek.controller.election import Target, change_partition
from odradek.controller.partitions import Partitions
from odradek.controller.state import ControllerState, PartitionKey
from odradek.metadata.features import DIRECTORY_ASSIGNMENT
from odradek.metadata.model import BrokerImage
from odradek.protocol.messages import assign_replicas_to_dirs_response as response_messages
from odradek.protocol.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.statemachine.machine import Result


class Directories:
    """Operations on the directories of replicas."""

    def __init__(self, state: ControllerState, brokers: Brokers, partitions: Partitions) -> None:
        self._state = state
        self._brokers = brokers
        self._partitions = partitions

    def assign(
        self, request: AssignReplicasToDirsRequest
    ) -> Result[Any, response_messages.AssignReplicasToDirsResponse]:
        """Store the directories of a broker's replicas. Each partition succeeds or fails on its own.

        Raises:
            ApiError: UNSUPPORTED_VERSION below metadata.version 3.7-IV2, STALE_BROKER_EPOCH.
        """
        if self._state.metadata_version < DIRECTORY_ASSIGNMENT:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "directories are not assigned in this metadata.version")
        broker = self._brokers.check_epoch(request.broker_id, request.broker_epoch)
        records: list[PartitionChangeRecord] = []
        seen: set[PartitionKey] = set()
        answers = []
        for directory in request.directories:
            topics = []
            for topic in directory.topics:
                results = []
                for asked in topic.partitions:
                    key = (topic.topic_id, asked.partition_index)
                    answer = response_messages.PartitionData(partition_index=asked.partition_index)
                    try:
                        if key in seen:
                            raise ApiError(ErrorCode.INVALID_REQUEST, "a partition is named twice")
                        seen.add(key)
                        record = self._assign_one(broker, directory.id, key)
                        records.extend([record] if record is not None else [])
                    except ApiError as error:
                        answer.error_code = error.code
                    results.append(answer)
                topics.append(response_messages.TopicData(topic_id=topic.topic_id, partitions=results))
            answers.append(response_messages.DirectoryData(id=directory.id, topics=topics))
        return Result(records, response_messages.AssignReplicasToDirsResponse(directories=answers), atomic=False)

    def _assign_one(self, broker: BrokerImage, directory: UUID, key: PartitionKey) -> PartitionChangeRecord | None:
        topic = self._state.topics.get(key[0])
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic with id {key[0]}")
        partition = self._state.partitions.get(key)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{key[1]} does not exist")
        if broker.broker_id not in partition.replicas:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker.broker_id} has no replica of this")
        where = {broker.broker_id: directory}
        if not broker.has_online(directory):
            return self._partitions.remove_from_isr(broker.broker_id, key, partition, directories=where)
        # With a known online directory the replica may be fit to lead; a replica in an offline directory is lost.
        is_new = not broker.has_online(partition.directory(broker.broker_id))
        others = tuple(replica for replica in partition.isr if replica != broker.broker_id)
        lost = (broker.broker_id,) if is_new and (others or self._state.elr_enabled) else ()
        return change_partition(
            *key,
            partition,
            self._partitions.rules(topic.name, partition, moved=where),
            election=self._partitions.online(topic.name),
            target=Target(isr=others if lost else None, unclean_shutdown=lost, directories=where),
        )
