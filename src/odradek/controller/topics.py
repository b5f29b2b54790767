"""CreateTopics, CreatePartitions and DeleteTopics.

Each topic of a request succeeds or fails on its own; all records of a request are in one batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import METADATA_TOPIC
from odradek.common.turns import Turns
from odradek.controller.bounds import check_size
from odradek.controller.config import ControllerConfig
from odradek.controller.configs import Configs
from odradek.controller.mirrors import end_of_mirror, first_leader_epoch
from odradek.controller.placement import UsableBroker, place_replicas
from odradek.controller.state import ControllerState, TopicEntry, collision_key
from odradek.controller.topic_names import check_topic_name
from odradek.metadata.model import UNASSIGNED_DIRECTORY, ZERO_UUID, PartitionImage, ResourceType, partition_record
from odradek.protocol.messages import create_partitions_request, create_topics_request
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult
from odradek.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.statemachine.machine import Result, Steps

if TYPE_CHECKING:
    from random import Random

# Kafka's limit on the partitions that one request may create (KIP-599 discusses why a request must be bounded).
MAX_PARTITIONS_PER_REQUEST = 10_000
# How many topics and settings of new topics are handled, and records of one topic's new partitions are made, in one
# step: some 20 to 75 us each.
TOPICS_PER_STEP = 250
PARTITION_RECORDS_PER_STEP = 500
# Reserved ids: the zero id, and the metadata topic's.
RESERVED_TOPIC_IDS = (ZERO_UUID, UUID(int=1))

Replicas = tuple[int, ...]
ResponseT = TypeVar("ResponseT")


class Charge(Protocol):
    """Counts the partitions that a request creates or deletes (KIP-599)."""

    def __call__(self, partition_count: int) -> None:
        """Count those of one topic, after all other checks.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED, the client's quota is exceeded.
        """
        ...

    def undo(self) -> None:
        """Take back all that was counted; idempotent."""
        ...


class _Free:
    def __call__(self, partition_count: int) -> None:
        pass

    def undo(self) -> None:
        pass


# The charge without a quota.
free: Charge = _Free()


def charged(steps: Steps[Any, ResponseT], charge: Charge) -> Steps[Any, ResponseT]:
    """Decide a request that `charge` counts; only an attempt with a result stays counted.

    The runtime decides a request again if the log has changed meanwhile: nothing of the earlier attempt is done.
    """
    charge.undo()
    try:
        return (yield from steps)
    except BaseException:  # also the end of an attempt between two steps
        charge.undo()
        raise


class Topics:
    """Operations on topics."""

    def __init__(self, state: ControllerState, configs: Configs, config: ControllerConfig, random: Random) -> None:
        self._state = state
        self._configs = configs
        self.config = config
        self._random = random

    def create(
        self, request: create_topics_request.CreateTopicsRequest, charge: Charge = free
    ) -> Steps[Any, CreateTopicsResponse]:
        """Create topics.

        Raises:
            ApiError: POLICY_VIOLATION, more topics than the limit of partitions, or more settings than `check_size`
                allows.
        """
        if len(request.topics) > MAX_PARTITIONS_PER_REQUEST:
            raise _too_many()
        check_size(request)
        turns = Turns(TOPICS_PER_STEP)
        times = Counter(topic.name for topic in request.topics)
        records: list[Any] = []
        partitions_left = MAX_PARTITIONS_PER_REQUEST
        new_keys: dict[str, str] = {}
        answers: list[CreatableTopicResult] = []
        asked = {topic.name: topic for topic in request.topics}
        for topic in asked.values():
            if turns.fill(1 + len(topic.configs)):
                yield
            try:
                if times[topic.name] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                self._check_new_name(topic.name, new_keys)
                created, answer = yield from self._create_one(topic, partitions_left)
                charge(answer.num_partitions)
            except ApiError as error:
                answers.append(_refused(topic.name, error))
                continue
            new_keys[collision_key(topic.name)] = topic.name
            partitions_left -= answer.num_partitions
            records.extend(created)
            if request.validate_only:
                answer.topic_id = ZERO_UUID
            answers.append(answer)
        return Result([] if request.validate_only else records, CreateTopicsResponse(topics=answers))

    def _check_new_name(self, name: str, new_keys: dict[str, str]) -> None:
        if name == METADATA_TOPIC:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        check_topic_name(name)
        if name in self._state.topic_ids:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        key = collision_key(name)
        clashing = self._state.collisions.get(key, ()) or ((new_keys[key],) if key in new_keys else ())
        if clashing:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {clashing[0]}"
            )

    def _create_one(
        self, topic: create_topics_request.CreatableTopic, partitions_left: int
    ) -> Generator[None, None, tuple[list[Any], CreatableTopicResult]]:
        settings = self._configs.topic_settings([(entry.name, entry.value) for entry in topic.configs], topic.name)
        if topic.assignments:
            assignments = self._manual(topic, partitions_left)
        else:
            assignments = yield from self._automatic(topic, partitions_left)
        topic_id = self._new_topic_id()
        records: list[Any] = [TopicRecord(name=topic.name, topic_id=topic_id)]
        for key, value in settings.items():
            records.append(
                ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=key, value=value)
            )
        leader_epoch = first_leader_epoch(self._state, topic.name)
        records += yield from self._partition_records(topic_id, 0, assignments, leader_epoch)
        answer = CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(assignments),
            replication_factor=len(assignments[0]),
            configs=self._configs.described_topic(settings),
        )
        return records, answer

    def _automatic(
        self, topic: create_topics_request.CreatableTopic, partitions_left: int
    ) -> Generator[None, None, list[Replicas]]:
        count, factor = topic.num_partitions, topic.replication_factor
        if count != -1 and count <= 0:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        if factor != -1 and factor <= 0:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor was set to an invalid non-positive value."
            )
        count = self.config.num_partitions if count == -1 else count
        factor = self.config.default_replication_factor if factor == -1 else factor
        _check_count(count, partitions_left)
        return (yield from place_replicas(self._usable_brokers(), count, factor, self._random))

    def _manual(self, topic: create_topics_request.CreatableTopic, partitions_left: int) -> list[Replicas]:
        if topic.replication_factor != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            )
        if topic.num_partitions != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        _check_count(len(topic.assignments), partitions_left)
        by_number: dict[int, Replicas] = {}
        factor: int | None = None
        for assignment in topic.assignments:
            if assignment.partition_index in by_number:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {assignment.partition_index}",
                )
            replicas = tuple(assignment.broker_ids)
            self._check_manual(assignment.partition_index, replicas, factor)
            factor = len(replicas)
            by_number[assignment.partition_index] = replicas
        if set(by_number) != set(range(len(by_number))):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "partitions should be a consecutive 0-based integer sequence",
            )
        return [by_number[number] for number in range(len(by_number))]

    def _check_manual(self, partition_id: int, replicas: Replicas, factor: int | None) -> None:
        if not replicas:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."
            )
        if len(set(replicas)) < len(replicas):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes a broker more than once: {list(replicas)}.",
            )
        for broker_id in replicas:
            if broker_id not in self._state.brokers:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment includes broker {broker_id}, but no such broker is registered.",
                )
            if self._state.brokers[broker_id].cordoned:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment includes broker {broker_id}, whose log directories are all "
                    "cordoned.",
                )
        if factor is not None and len(replicas) != factor:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
                f"not consistent with previous partitions, which have {factor} replica(s).",
            )
        if not any(self._state.brokers[broker_id].active for broker_id in replicas):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "All brokers specified in the manual partition assignment for "
                f"partition {partition_id} are fenced or in controlled shutdown.",
            )

    def _usable_brokers(self) -> list[UsableBroker]:
        # A broker that drains, or is full while others are not, is the last choice too, and never the first replica.
        brokers = [broker for broker in self._state.brokers.values() if not broker.cordoned]
        spared = self._is_excluded
        if all(spared(broker.broker_id) for broker in brokers if broker.active):
            spared = self._state.draining
        return [
            UsableBroker(broker.broker_id, broker.rack, not broker.active or spared(broker.broker_id), host=broker.host)
            for broker in brokers
        ]

    def _is_excluded(self, broker_id: int) -> bool:
        return self._state.draining(broker_id) or self._state.is_full(broker_id)

    def _new_topic_id(self) -> UUID:
        while True:
            # A random (version 4) id, from the given generator.
            topic_id = UUID(int=self._random.getrandbits(128), version=4)
            # In its text form a first "-" (top six bits 62) would look like an option to command-line parsers.
            if topic_id.int >> 122 != 62 and topic_id not in RESERVED_TOPIC_IDS and topic_id not in self._state.topics:
                return topic_id

    def _partition_records(
        self, topic_id: UUID, first_id: int, assignments: Sequence[Replicas], leader_epoch: int
    ) -> Generator[None, None, list[Any]]:
        turns, records = Turns(PARTITION_RECORDS_PER_STEP), []
        for partition_id, replicas in enumerate(assignments, first_id):
            if turns.fill():
                yield
            records.append(self._partition_record(topic_id, partition_id, replicas, leader_epoch))
        return records

    def _partition_record(self, topic_id: UUID, partition_id: int, replicas: Replicas, leader_epoch: int) -> Any:
        isr = tuple(broker_id for broker_id in replicas if self._state.brokers[broker_id].active)
        directories = []
        for broker_id in replicas:
            online = self._state.brokers[broker_id].directories
            directories.append(online[0] if len(online) == 1 else UNASSIGNED_DIRECTORY)
        partition = PartitionImage(
            replicas=replicas,
            isr=isr or replicas[:1],
            leader=next((each for each in isr if not self._is_excluded(each)), isr[0] if isr else -1),
            leader_epoch=leader_epoch,
            partition_epoch=0,
            directories=tuple(directories),
        )
        return partition_record(topic_id, partition_id, partition, self._state.metadata_version)

    def add_partitions(
        self, request: create_partitions_request.CreatePartitionsRequest, charge: Charge = free
    ) -> Steps[Any, CreatePartitionsResponse]:
        """CreatePartitions: give topics more partitions.

        Raises:
            ApiError: POLICY_VIOLATION, as `check_size`.
        """
        check_size(request)
        turns = Turns(TOPICS_PER_STEP)
        times = Counter(topic.name for topic in request.topics)
        records: list[Any] = []
        results = []
        partitions_left = MAX_PARTITIONS_PER_REQUEST
        for name, topic in {topic.name: topic for topic in request.topics}.items():
            if turns.fill():
                yield
            result = CreatePartitionsTopicResult(name=name, error_message=None)
            try:
                if times[name] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                added = yield from self._create_partitions_of(topic, partitions_left)
                charge(len(added))
                records.extend(added)
                partitions_left -= len(added)
            except ApiError as error:
                result.error_code, result.error_message = error.code, error.message
            results.append(result)
        return Result([] if request.validate_only else records, CreatePartitionsResponse(results=results))

    def _create_partitions_of(
        self, topic: create_partitions_request.CreatePartitionsTopic, partitions_left: int
    ) -> Generator[None, None, list[Any]]:
        topic_id = self._state.topic_ids.get(topic.name)
        if topic_id is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic.name}' does not exist.")
        entry = self._state.topics[topic_id]
        if topic.count == entry.partition_count:
            raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {entry.partition_count} partition(s).")
        if topic.count < entry.partition_count:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {entry.partition_count} partition(s); "
                f"{topic.count} would not be an increase.",
            )
        added = topic.count - entry.partition_count
        _check_count(added, partitions_left)
        factor = len(self._state.partitions[(topic_id, 0)].replicas)
        if topic.assignments is not None:
            assignments = self._manual_growth(topic.assignments, added, entry, factor)
        else:
            assignments = yield from place_replicas(self._usable_brokers(), added, factor, self._random)
        leader_epoch = first_leader_epoch(self._state, topic.name)
        return (yield from self._partition_records(topic_id, entry.partition_count, assignments, leader_epoch))

    def _manual_growth(
        self,
        given: Sequence[create_partitions_request.CreatePartitionsAssignment],
        added: int,
        entry: TopicEntry,
        factor: int,
    ) -> list[Replicas]:
        if len(given) != added:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(given)} assignment(s) "
                "were specified.",
            )
        assignments = [tuple(assignment.broker_ids) for assignment in given]
        for place, replicas in enumerate(assignments):
            self._check_manual(entry.partition_count + place, replicas, factor)
        return assignments

    def delete(self, request: DeleteTopicsRequest, charge: Charge = free) -> Steps[Any, DeleteTopicsResponse]:
        """Delete topics by name or by id.

        Raises:
            ApiError: TOPIC_DELETION_DISABLED where the cluster is configured so; POLICY_VIOLATION, as `check_size`.
        """
        check_size(request)
        turns = Turns(TOPICS_PER_STEP)
        if not self.config.delete_topic_enable:
            raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        responses: list[DeletableTopicResult] = []
        found = yield from self._found(request, responses, turns)
        records: list[Any] = []
        times_found = Counter(topic_id for _, topic_id in found)
        for response, topic_id in found:
            if turns.fill():
                yield
            try:
                if times_found[topic_id] > 1:
                    raise _named_twice()
                charge(self._state.topics[topic_id].partition_count)
            except ApiError as error:
                response.error_code, response.error_message = error.code, error.message
            else:
                records.append(RemoveTopicRecord(topic_id=topic_id))
                records += end_of_mirror(self._state, self._state.topics[topic_id].name)
        return Result(records, DeleteTopicsResponse(responses=responses))

    def _found(
        self, request: DeleteTopicsRequest, responses: list[DeletableTopicResult], turns: Turns
    ) -> Generator[None, None, list[tuple[DeletableTopicResult, UUID]]]:
        """The topics that are deleted, each with its result; `responses` gets the results of all that are named."""
        requested: list[tuple[str | None, UUID]] = [(name, ZERO_UUID) for name in request.topic_names]
        requested.extend((topic.name, topic.topic_id) for topic in request.topics)
        found: list[tuple[DeletableTopicResult, UUID]] = []
        for (name, topic_id), times in Counter(requested).items():
            if turns.fill():
                yield
            response = DeletableTopicResult(name=name, topic_id=topic_id)
            responses.append(response)
            try:
                if times > 1:
                    raise _named_twice()
                entry = self._find(name, topic_id)
            except ApiError as error:
                response.error_code, response.error_message = error.code, error.message
            else:
                response.name, response.topic_id = entry.name, entry.topic_id
                found.append((response, entry.topic_id))
        return found

    def _find(self, name: str | None, topic_id: UUID) -> TopicEntry:
        if name is not None and topic_id != ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if name is None and topic_id == ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if name is not None:
            found_id = self._state.topic_ids.get(name)
            if found_id is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
            return self._state.topics[found_id]
        entry = self._state.topics.get(topic_id)
        if entry is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        return replace(entry)


def _check_count(count: int, partitions_left: int) -> None:
    if count > partitions_left:
        raise _too_many()


def _too_many() -> ApiError:
    return ApiError(
        ErrorCode.POLICY_VIOLATION,
        f"Excessively large number of partitions per request: at most {MAX_PARTITIONS_PER_REQUEST} are allowed.",
    )


def _named_twice() -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, "The topic is named twice in one request.")


def _refused(name: str, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message, configs=None)
