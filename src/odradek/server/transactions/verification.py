"""Partition leaders verify with the transaction coordinator that a partition is in a producer's transaction (KIP-890).

A delayed Produce or TxnOffsetCommit must not reopen a transaction that has ended: nothing would end it, and it would
block readers forever. So the first batch of a transaction in a partition is appended only after the coordinator has
confirmed that the transaction is open and includes the partition. For newer clients this request also adds the
partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.topic_names import TopicPartition
from odradek.coordinator.transaction.machine import BUMPS_EPOCH, Request
from odradek.coordinator.transaction.service import TransactionCoordinator
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.server.network.peers import BrokerPeers
from odradek.settings.options import config, option

Codes = dict[TopicPartition, ErrorCode]

# Errors that are retried while the client waits: the coordinator moves, or still ends the previous transaction.
RETRIABLE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@config
class VerificationConfig:
    """Whether and how patiently transactions are verified."""

    enable: bool = option(
        "transaction.partition.verification.enable",
        default=True,
        doc="Whether partitions verify transactions of clients before KIP-890; those of newer clients always are.",
    )
    backoff_ms: int = option(
        "add.partitions.to.txn.retry.backoff.ms",
        default=20,
        unit="ms",
        doc="Pause between retries of AddPartitionsToTxn while the previous transaction is completing.",
    )
    backoff_max_ms: int = option(
        "add.partitions.to.txn.retry.backoff.max.ms",
        default=100,
        unit="ms",
        doc="How long the leader retries AddPartitionsToTxn before the client gets a retriable error.",
    )


class TransactionVerifier:
    """Asks the coordinator of a transactional id, here or on another broker."""

    def __init__(
        self,
        config: VerificationConfig,
        coordinator: TransactionCoordinator,
        peers: BrokerPeers,
        *,
        node_id: int,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self.config = config
        self.failed_count = 0
        self.verification_count = 0
        self.verification_ms = 0
        self._coordinator = coordinator
        self._peers = peers
        self._node_id = node_id
        self._monotonic_ms = monotonic_ms

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Codes:
        """Verify that the partitions are in the transaction; returns NONE or an error code for each.

        Args:
            add: add the partitions to the transaction, and begin it if none is open.
        Returns:
            Codes among them: TRANSACTION_ABORTABLE (not part of it), INVALID_PRODUCER_EPOCH (fenced),
            INVALID_PRODUCER_ID_MAPPING, and those of RETRIABLE.
        """
        began_ms = self._monotonic_ms()
        codes = await self._verify_with_retries(
            transactional_id, producer_id, producer_epoch, partitions, began_ms + self.config.backoff_max_ms, add=add
        )
        self.verification_count += 1
        self.verification_ms += self._monotonic_ms() - began_ms
        self.failed_count += any(codes.values())
        return codes

    async def _verify_with_retries(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        deadline_ms: int,
        *,
        add: bool,
    ) -> Codes:
        while True:
            codes = await self._verify_once(transactional_id, producer_id, producer_epoch, partitions, add=add)
            # An older client's commit was answered before its markers were written, so this soon passes.
            busy = add and any(code is ErrorCode.CONCURRENT_TRANSACTIONS for code in codes.values())
            if not busy or self._monotonic_ms() + self.config.backoff_ms > deadline_ms:
                return codes
            await asyncio.sleep(self.config.backoff_ms / 1000)

    async def _verify_once(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition], *, add: bool
    ) -> Codes:
        leader = self._coordinator.leader_of(transactional_id)
        if leader < 0:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if leader == self._node_id:
            request = Request(transactional_id, producer_id, epoch, BUMPS_EPOCH)
            codes = await add_or_verify(self._coordinator, request, partitions, verify_only=not add)
        else:
            message = _message(transactional_id, producer_id, epoch, partitions, verify_only=not add)
            try:
                response = await self._peers.request(leader, message, AddPartitionsToTxnResponse)
                codes = _codes(response, transactional_id, partitions)
            except OdradekError:
                codes = dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        # All producers handle INVALID_PRODUCER_EPOCH in the response to a Produce.
        fenced = ErrorCode.PRODUCER_FENCED
        return {key: ErrorCode.INVALID_PRODUCER_EPOCH if code is fenced else code for key, code in codes.items()}


async def add_or_verify(
    coordinator: TransactionCoordinator, request: Request, partitions: Sequence[TopicPartition], *, verify_only: bool
) -> Codes:
    """The result of this broker's coordinator for each partition."""
    try:
        if not verify_only:
            await coordinator.add_partitions(request, partitions)
            return dict.fromkeys(partitions, ErrorCode.NONE)
        included = await coordinator.verify_partitions(request, partitions)
    except ApiError as error:
        return dict.fromkeys(partitions, error.code)
    return {key: ErrorCode.NONE if key in included else ErrorCode.TRANSACTION_ABORTABLE for key in partitions}


def _message(
    transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition], *, verify_only: bool
) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, partition_id in partitions:
        topics.setdefault(topic, []).append(partition_id)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def _codes(response: AddPartitionsToTxnResponse, transactional_id: str, partitions: Sequence[TopicPartition]) -> Codes:
    """The codes of an answer; a partition that it leaves out was not verified."""
    codes = dict.fromkeys(partitions, ErrorCode(response.error_code) or ErrorCode.NETWORK_EXCEPTION)
    for result in response.results_by_transaction:
        if result.transactional_id == transactional_id:
            for topic in result.topic_results:
                for answer in topic.results_by_partition:
                    codes[topic.name, answer.partition_index] = ErrorCode(answer.partition_error_code)
    return codes
