"""Administration of transactions; finding and ending hanging ones (KIP-664).

Functions over a `Cluster`. A transaction hangs in a partition if its coordinator does not know it: it never ends there,
and readers of committed records wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.client.cluster import Cluster, check, partitions_of
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import TopicPartition
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_producers_response import DescribeProducersResponse, ProducerState
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse

# No timeout: an external coordinator ends the transaction (KIP-939).
NO_TIMEOUT_MS = 2**31 - 1

TRANSACTION_KEY_TYPE: Final = 1
NO_START: Final = -1
NO_LEADER: Final = -1
# The states in which a transaction has not ended.
UNFINISHED: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id and its coordinator."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A producer with an open transaction in a partition; times are wall-clock ms."""

    topic: str
    partition_id: int
    producer: ProducerState

    @property
    def start_offset(self) -> int:
        return self.producer.current_txn_start_offset


async def list_transactions(
    cluster: Cluster,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> list[ListedTransaction]:
    """The transactional ids of all brokers, by name; `pattern` must match the whole id, in RE2 syntax.

    Raises:
        ApiError: INVALID_REGULAR_EXPRESSION, and other errors of brokers.
    """
    await cluster.metadata([])

    async def send(node_id: int) -> list[ListedTransaction]:
        async def attempt() -> list[ListedTransaction]:
            request = ListTransactionsRequest(
                state_filters=list(states),
                producer_id_filters=list(producer_ids),
                duration_filter=duration_ms,
                transactional_id_pattern=pattern,
            )
            response = await cluster.request(request, ListTransactionsResponse, node_id=node_id)
            check(response.error_code, f"transactions of broker {node_id}")
            if response.unknown_state_filters:
                unknown = ", ".join(response.unknown_state_filters)
                raise ApiError(ErrorCode.INVALID_REQUEST, f"no such state: {unknown}")
            return [
                ListedTransaction(each.transactional_id, node_id, each.producer_id, each.transaction_state)
                for each in response.transaction_states
            ]

        return await cluster.retried(attempt)

    answers = await asyncio.gather(*(send(node_id) for node_id in sorted(cluster.brokers)))
    return sorted((each for listed in answers for each in listed), key=lambda each: each.transactional_id)


async def describe_transaction(cluster: Cluster, transactional_id: str) -> tuple[int, TransactionState]:
    """The (coordinator, state) of a transactional id.

    Raises:
        ApiError: TRANSACTIONAL_ID_NOT_FOUND, and other errors of the coordinator.
    """

    async def attempt() -> tuple[int, TransactionState]:
        asked = FindCoordinatorRequest(key_type=TRANSACTION_KEY_TYPE, coordinator_keys=[transactional_id])
        found = (await cluster.request(asked, FindCoordinatorResponse)).coordinators[0]
        check(found.error_code, f"coordinator of {transactional_id}", found.error_message)
        cluster.brokers.setdefault(found.node_id, (found.host, found.port))
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        response = await cluster.request(request, DescribeTransactionsResponse, node_id=found.node_id)
        (state,) = response.transaction_states
        check(state.error_code, f"transactional id {transactional_id}")
        return found.node_id, state

    return await cluster.retried(attempt)


async def terminate(cluster: Cluster, transactional_id: str) -> None:
    """Fence the producer of a transactional id, and abort its open transaction; returns when the abort is complete.

    Raises:
        ApiError: TRANSACTIONAL_ID_NOT_FOUND, and other errors of the coordinator.
    """
    coordinator, known = await describe_transaction(cluster, transactional_id)
    # Without two-phase commit a producer needs a timeout; the next producer sets its own.
    timeout_ms = known.transaction_timeout_ms if known.transaction_timeout_ms < NO_TIMEOUT_MS else 1
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

    async def attempt() -> None:
        response = await cluster.request(request, InitProducerIdResponse, node_id=coordinator)
        check(response.error_code, f"transactional id {transactional_id}")

    await cluster.retried(attempt)


async def open_transactions(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, without_leader: list[TopicPartition] | None = None
) -> list[OpenTransaction]:
    """The open transactions with records in these partitions.

    Args:
        without_leader: gets the partitions that could not be described because they have no leader.
    Raises:
        ApiError: LEADER_NOT_AVAILABLE for such a partition if there is no `without_leader`; errors of brokers.
    """
    by_leader = await _by_leader(cluster, list(partitions))
    leaderless = by_leader.pop(NO_LEADER, [])
    if without_leader is not None:
        without_leader += leaderless
    elif leaderless:
        topic, number = leaderless[0]
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{number} has no leader")
    found: list[OpenTransaction] = []
    for leader, keys in sorted(by_leader.items()):
        found += await _open_transactions_at(cluster, leader, keys)
    return found


async def _by_leader(cluster: Cluster, wanted: Sequence[TopicPartition]) -> dict[int, list[TopicPartition]]:
    """The partitions by leader. Raises ApiError for a partition that does not exist."""
    topics = [await cluster.topic(name) for name in dict.fromkeys(topic for topic, _ in wanted)]
    present = partitions_of(topics)
    by_leader: dict[int, list[TopicPartition]] = {}
    for key in wanted:
        if key not in present:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {key[0]}-{key[1]}")
        by_leader.setdefault(present[key].leader_id, []).append(key)
    return by_leader


async def _open_transactions_at(cluster: Cluster, leader: int, keys: Iterable[TopicPartition]) -> list[OpenTransaction]:
    topics: dict[str, TopicRequest] = {}
    for topic, number in keys:
        topics.setdefault(topic, TopicRequest(name=topic)).partition_indexes.append(number)
    request = DescribeProducersRequest(topics=list(topics.values()))
    response = await cluster.request(request, DescribeProducersResponse, node_id=leader)
    found: list[OpenTransaction] = []
    for answer in response.topics:
        for part in answer.partitions:
            check(part.error_code, f"{answer.name}-{part.partition_index}", part.error_message)
            found += [
                OpenTransaction(answer.name, part.partition_index, each)
                for each in part.active_producers
                if each.current_txn_start_offset != NO_START
            ]
    return found


async def find_hanging(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    *,
    now_ms: int,
    max_timeout_ms: int,
    without_leader: list[TopicPartition] | None = None,
) -> list[OpenTransaction]:
    """The transactions that are older than the maximum timeout, and that no coordinator knows.

    Args:
        max_timeout_ms: the brokers' transaction.max.timeout.ms: the coordinator may still end a younger transaction.
        without_leader: gets the partitions that were skipped because they have no leader.
    Raises:
        ApiError.
    """
    old = [
        each
        for each in await open_transactions(
            cluster, partitions, without_leader=[] if without_leader is None else without_leader
        )
        if now_ms - each.producer.last_timestamp > max_timeout_ms
    ]
    if not old:
        return []
    producer_ids = sorted({each.producer.producer_id for each in old})
    id_of = {
        each.producer_id: each.transactional_id for each in await list_transactions(cluster, producer_ids=producer_ids)
    }
    hanging = []
    for each in old:
        transactional_id = id_of.get(each.producer.producer_id)
        if transactional_id is None or not await _is_known(cluster, transactional_id, each):
            hanging.append(each)
    return hanging


async def owner_of(cluster: Cluster, candidate: OpenTransaction) -> str | None:
    """The transactional id whose coordinator has this transaction open and will end it; None if there is none.

    Raises:
        ApiError.
    """
    for each in await list_transactions(cluster, producer_ids=[candidate.producer.producer_id]):
        if await _is_known(cluster, each.transactional_id, candidate):
            return each.transactional_id
    return None


async def _is_known(cluster: Cluster, transactional_id: str, candidate: OpenTransaction) -> bool:
    """Whether the coordinator has this transaction open in this partition."""
    try:
        _, state = await describe_transaction(cluster, transactional_id)
    except ApiError as error:
        if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return False
        raise
    included = {(topic.topic, number) for topic in state.topics for number in topic.partitions}
    return state.transaction_state in UNFINISHED and (candidate.topic, candidate.partition_id) in included


async def abort_in_partition(cluster: Cluster, found: OpenTransaction) -> None:
    """Abort a transaction in one partition, by a marker of its own epoch. Raises ApiError."""
    producer = found.producer
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=found.topic, partition_indexes=[found.partition_id])],
        coordinator_epoch=max(0, producer.coordinator_epoch),
    )
    leader = next(
        each.leader_id
        for each in (await cluster.topic(found.topic)).partitions
        if each.partition_index == found.partition_id
    )
    response = await cluster.request(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, node_id=leader)
    answer = response.markers[0].topics[0].partitions[0]
    check(answer.error_code, f"{found.topic}-{found.partition_id}")
