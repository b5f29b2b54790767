"""Partition reassignment and leader election (KIP-455, KIP-460).

Functions over a `Cluster`; requests are retried while the controller is being elected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek.client.cluster import BrokerGoneError, Cluster, check
from odradek.client.connection import RequestTimeoutError, UnreachableError
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import TopicPartition
from odradek.common.turns import in_slices
from odradek.protocol.messages import alter_partition_reassignments_request as alter_request
from odradek.protocol.messages import elect_leaders_request as elect_request
from odradek.protocol.messages import list_partition_reassignments_request as list_request
from odradek.protocol.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from odradek.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.protocol.messages.describe_log_dirs_response import DescribeLogDirsResponse
from odradek.protocol.messages.elect_leaders_response import ElectLeadersResponse
from odradek.protocol.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse

PREFERRED, UNCLEAN = 0, 1
# The partitions of one request: a controller decides at most 10,000 (QuorumController.MAX_RECORDS_PER_USER_OP).
PARTITIONS_PER_REQUEST = 10_000
# The errors of a request to a broker that is not running.
GONE = (BrokerGoneError, UnreachableError, RequestTimeoutError)


@dataclass(frozen=True, slots=True)
class Move:
    """An ongoing reassignment: all replicas, and those that are added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def _by_topic(keys: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(keys):
        topics.setdefault(topic, []).append(number)
    return topics


def _refusal(code: int, what: str, message: str | None) -> ApiError | None:
    try:
        check(code, what, message)
    except ApiError as error:
        return error
    return None


async def move_replicas(
    cluster: Cluster, wanted: Mapping[TopicPartition, Sequence[int] | None], *, keep_factor: bool = False
) -> dict[TopicPartition, ApiError | None]:
    """Begin reassignments, or cancel those whose replicas are None; returns the error of each partition, or None.

    Many partitions are divided over requests. If one after the first fails as a whole, its error is the result of each
    of its partitions. If it had no response, that is REQUEST_TIMED_OUT or NETWORK_EXCEPTION, and they may move
    nevertheless.

    Args:
        keep_factor: refuse changes of the replication factor, which older clusters do not support (KIP-860).
    Raises:
        ApiError: the whole first request was refused.
        UnreachableError, RequestTimeoutError: the first request had no response.
    """
    return await _in_requests(
        list(wanted), lambda some: _move_some(cluster, {each: wanted[each] for each in some}, keep_factor)
    )


async def _in_requests(
    keys: Sequence[TopicPartition],
    send: Callable[[Sequence[TopicPartition]], Awaitable[dict[TopicPartition, ApiError | None]]],
) -> dict[TopicPartition, ApiError | None]:
    """The results of one request for each slice of partitions; raises the error of the first request only."""
    first, *others = in_slices(keys, PARTITIONS_PER_REQUEST)
    results = await send(first)
    for some in others:
        try:
            results |= await send(some)
        # Not raised: the caller would lose the results of the requests before, and take their moves for not begun.
        except ApiError as error:
            results |= dict.fromkeys(some, error)
        except RequestTimeoutError as error:
            results |= dict.fromkeys(some, ApiError(ErrorCode.REQUEST_TIMED_OUT, str(error)))
        except UnreachableError as error:
            results |= dict.fromkeys(some, ApiError(ErrorCode.NETWORK_EXCEPTION, str(error)))
    return results


async def _move_some(
    cluster: Cluster, wanted: Mapping[TopicPartition, Sequence[int] | None], keep_factor: bool
) -> dict[TopicPartition, ApiError | None]:
    request = alter_request.AlterPartitionReassignmentsRequest(
        timeout_ms=cluster.timeout_ms,
        allow_replication_factor_change=not keep_factor,
        topics=[
            alter_request.ReassignableTopic(
                name=topic,
                partitions=[
                    alter_request.ReassignablePartition(partition_index=number, replicas=_listed(wanted[topic, number]))
                    for number in numbers
                ],
            )
            for topic, numbers in _by_topic(wanted).items()
        ],
    )

    async def attempt() -> AlterPartitionReassignmentsResponse:
        answer = await cluster.request(request, AlterPartitionReassignmentsResponse)
        check(answer.error_code, "reassignment", answer.error_message)
        return answer

    response = await cluster.retried(attempt)
    return {
        (topic.name, result.partition_index): _refusal(
            result.error_code, f"{topic.name}-{result.partition_index}", result.error_message
        )
        for topic in response.responses
        for result in topic.partitions
    }


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


async def ongoing_reassignments(
    cluster: Cluster, asked: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, Move]:
    """The ongoing reassignments of these partitions, or (None) of all. Raises ApiError."""
    request = list_request.ListPartitionReassignmentsRequest(timeout_ms=cluster.timeout_ms)
    if asked is not None:
        request.topics = [
            list_request.ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in _by_topic(asked).items()
        ]

    async def attempt() -> ListPartitionReassignmentsResponse:
        answer = await cluster.request(request, ListPartitionReassignmentsResponse)
        check(answer.error_code, "reassignments", answer.error_message)
        return answer

    response = await cluster.retried(attempt)
    return {
        (topic.name, move.partition_index): Move(
            tuple(move.replicas), tuple(move.adding_replicas), tuple(move.removing_replicas)
        )
        for topic in response.topics
        for move in topic.partitions
    }


async def elect_leaders(
    cluster: Cluster, kind: int, asked: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, ApiError | None]:
    """Elect preferred leaders, or any live replica, for these partitions or (None) all.

    For all partitions, the result has only changes.

    Many named partitions are divided over requests; one after the first that fails as a whole has results as those of
    `move_replicas`.

    Raises:
        ApiError: the whole first request was refused.
        UnreachableError, RequestTimeoutError: the first request had no response.
    """
    if asked is None:
        return await _elect_some(cluster, kind, None)
    return await _in_requests(list(asked), lambda some: _elect_some(cluster, kind, some))


async def _elect_some(
    cluster: Cluster, kind: int, asked: Collection[TopicPartition] | None
) -> dict[TopicPartition, ApiError | None]:
    request = elect_request.ElectLeadersRequest(election_type=kind, timeout_ms=cluster.timeout_ms)
    request.topic_partitions = None
    if asked is not None:
        request.topic_partitions = [
            elect_request.TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(asked).items()
        ]

    async def attempt() -> ElectLeadersResponse:
        answer = await cluster.request(request, ElectLeadersResponse)
        check(answer.error_code, "election")
        return answer

    response = await cluster.retried(attempt)
    return {
        (topic.topic, result.partition_id): _refusal(
            result.error_code, f"{topic.topic}-{result.partition_id}", result.error_message
        )
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


def is_needless(error: ApiError) -> bool:
    """Whether an election was refused because the partition already has the right leader."""
    return error.code is ErrorCode.ELECTION_NOT_NEEDED


async def replica_sizes(
    cluster: Cluster, brokers: Iterable[int], asked: Collection[TopicPartition] | None = None
) -> dict[tuple[TopicPartition, int], int]:
    """The bytes of each replica by partition and broker; offline brokers and directories have no entries.

    Raises:
        ApiError: a directory cannot be described.
    """
    request = DescribeLogDirsRequest(topics=None)
    if asked is not None:
        request.topics = [
            DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in _by_topic(asked).items()
        ]
    sizes: dict[tuple[TopicPartition, int], int] = {}
    for broker in brokers:
        try:
            response = await cluster.request(request, DescribeLogDirsResponse, node_id=broker)
        except GONE:
            continue
        for directory in response.results:
            if directory.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                continue
            check(directory.error_code, directory.log_dir)
            for topic in directory.topics:
                for partition in topic.partitions:
                    if not partition.is_future_key:
                        sizes[(topic.name, partition.partition_index), broker] = partition.partition_size
    return sizes
