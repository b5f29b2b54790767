"""Elections on request, and the return of leadership to preferred leaders.

ElectLeaders (KIP-460); `auto.leader.rebalance.enable`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns
from odradek.controller.bounds import ENTRIES_PER_STEP, check_count, check_size
from odradek.controller.election import Election, change_partition
from odradek.controller.partitions import Partitions
from odradek.controller.state import ControllerState
from odradek.metadata.model import NO_LEADER
from odradek.protocol.messages import elect_leaders_response as elect_response
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.statemachine.machine import Result, Steps

# Kafka's limit: one round moves no more leaders than clients can follow at once.
MAX_MOVES_PER_ROUND = 1000


class Leaders:
    """Operations that elect leaders."""

    def __init__(self, state: ControllerState, partitions: Partitions) -> None:
        self._state = state
        self._partitions = partitions

    def balance(self) -> Result[Any, bool]:
        """Move leadership back to preferred leaders that are in sync; returns whether more remain."""
        records: list[PartitionChangeRecord] = []
        for key, topic, partition in self._partitions.all_partitions():
            if partition.leader == partition.preferred_leader:
                continue
            rules = self._partitions.rules(topic.name, partition)
            record = change_partition(*key, partition, rules, election=Election.PREFERRED)
            if record is not None and record.leader == partition.preferred_leader:
                if len(records) == MAX_MOVES_PER_ROUND:
                    return Result(records, True, atomic=False)
                records.append(record)
        return Result(records, False, atomic=False)

    def move_leaders_off_draining(self) -> Result[Any, None]:
        """Move leaders off brokers that drain, if another in-sync replica can lead."""
        records: list[PartitionChangeRecord] = []
        for key, topic, partition in self._partitions.all_partitions():
            if partition.leader == NO_LEADER or not self._state.draining(partition.leader):
                continue
            record = change_partition(*key, partition, self._partitions.rules(topic.name, partition))
            if record is not None:
                records.append(record)
        return Result(records, None, atomic=False)

    def elect_leaders(self, request: ElectLeadersRequest) -> Steps[Any, elect_response.ElectLeadersResponse]:
        """Elect preferred leaders, or any live ones (unclean).

        Null partitions mean all; then only changes are returned.

        Raises:
            ApiError: INVALID_REQUEST for an unknown election type; POLICY_VIOLATION, as `check_size`, or more
                leaders would change than that allows.
        """
        check_size(request)
        turns = Turns(ENTRIES_PER_STEP)
        kinds = {0: Election.PREFERRED, 1: Election.UNCLEAN}
        if request.election_type not in kinds:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"no election type {request.election_type}")
        election = kinds[request.election_type]
        if request.topic_partitions is None:
            partition_ids_by_topic = yield from self._electable(election)
        else:
            partition_ids_by_topic = {}
            for topic_partitions in request.topic_partitions:
                partition_ids_by_topic.setdefault(topic_partitions.topic, []).extend(topic_partitions.partitions)
        records: list[PartitionChangeRecord] = []
        results = []
        for topic_name, partition_ids in partition_ids_by_topic.items():
            answers = []
            for partition_id in dict.fromkeys(partition_ids):
                if turns.fill():
                    yield
                answer = elect_response.PartitionResult(partition_id=partition_id, error_message=None)
                try:
                    record = self._elect_one(topic_name, partition_id, election)
                except ApiError as error:
                    answer.error_code, answer.error_message = error.code, error.message
                else:
                    records.append(record)
                    check_count(len(records))
                answers.append(answer)
            results.append(elect_response.ReplicaElectionResult(topic=topic_name, partition_result=answers))
        return Result(records, elect_response.ElectLeadersResponse(replica_election_results=results), atomic=False)

    def _electable(self, election: Election) -> Generator[None, None, dict[str, list[int]]]:
        """The partitions of all topics that may need this election."""
        found: dict[str, list[int]] = {}
        turns = Turns(PARTITIONS_PER_TURN)
        for key, topic, partition in self._partitions.all_partitions():
            if turns.fill():
                yield
            at_rest = partition.leader in (partition.preferred_leader, NO_LEADER)
            if partition.leader == NO_LEADER or (election is Election.PREFERRED and not at_rest):
                found.setdefault(topic.name, []).append(key[1])
        return found

    def _elect_one(self, topic_name: str, partition_id: int, election: Election) -> PartitionChangeRecord:
        topic_id = self._state.topic_ids.get(topic_name)
        partition = None if topic_id is None else self._state.partitions.get((topic_id, partition_id))
        if topic_id is None or partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_name}-{partition_id} does not exist")
        if election is Election.PREFERRED and partition.leader == partition.preferred_leader:
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "the preferred leader leads")
        if election is Election.UNCLEAN and partition.has_leader:
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "a leader is there")
        rules = self._partitions.rules(topic_name, partition)
        record = change_partition(topic_id, partition_id, partition, rules, election=election)
        if election is Election.PREFERRED and (record is None or record.leader != partition.preferred_leader):
            raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "the preferred leader is not fit to lead")
        if record is None:
            raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is fit to lead")
        return record
