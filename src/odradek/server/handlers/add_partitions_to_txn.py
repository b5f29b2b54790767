"""AddPartitionsToTxn: key 24, versions 0-5.

Behaviour: adds partitions to a producer's transaction, all of them or none. From version 4 on brokers send it: several
transactions at once, to add partitions or only to verify them (KIP-890). It is accepted from brokers only
(`server.authorization.may_act_as_broker`); other clients get CLUSTER_AUTHORIZATION_FAILED.

Permissions: Write on the transactional id and on each topic; ClusterAction for brokers.

Versions: 2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; 3 flexible; 4 batched; 5 TRANSACTION_ABORTABLE
instead of INVALID_TXN_STATE for a partition that is not in the transaction.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import INTERNAL_TOPICS, METADATA_TOPIC, TopicPartition
from odradek.common.turns import PARTITIONS_PER_TURN, Turns
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from odradek.server.authorization import check, may_act_as_broker
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import fenced_code, transaction_request
from odradek.server.transactions.verification import Codes, add_or_verify

FIRST_FENCED_VERSION = 2
BATCH_VERSION = 4
ABORTABLE_VERSION = 5


async def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Add for one producer, or add and verify for each of many."""
    turns = Turns(PARTITIONS_PER_TURN)
    if context.api_version < BATCH_VERSION:
        requested = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        codes = await _answer(context, requested, turns)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _results(requested.topics, codes, turns))
    if not may_act_as_broker(context):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response = AddPartitionsToTxnResponse()
    for transaction in request.transactions:
        codes = await _answer(context, transaction, turns)
        results = await _results(transaction.topics, codes, turns)
        response.results_by_transaction.append(
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=results)
        )
    return response


async def _answer(context: RequestContext, requested: AddPartitionsToTxnTransaction, turns: Turns) -> Codes:
    image = context.broker.image
    batched = context.api_version >= BATCH_VERSION
    mirrors = context.broker.replicas.mirrors
    partitions: dict[TopicPartition, None] = {}
    refused: dict[TopicPartition, ErrorCode] = {}
    await turns.spend()
    for topic in requested.topics:
        await turns.spend()
        is_forbidden = not batched and not _may_write(context, topic.name)
        for number in topic.partitions:
            partitions[topic.name, number] = None
            if is_forbidden:
                refused[topic.name, number] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic.name == METADATA_TOPIC or image.partition(topic.name, number) is None:
                refused[topic.name, number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif topic.name in mirrors:
                refused[topic.name, number] = ErrorCode.INVALID_REQUEST
            await turns.spend()
    try:
        if not batched:
            check(context, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, requested.transactional_id)
        if refused:
            return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused
        request = transaction_request(
            context, requested.transactional_id, requested.producer_id, requested.producer_epoch, bumps=batched
        )
        codes = await add_or_verify(
            context.broker.transactions, request, list(partitions), verify_only=batched and requested.verify_only
        )
    except ApiError as error:
        codes = dict.fromkeys(partitions, error.code)
    return {key: _code(code, context.api_version) for key, code in codes.items()}


def _may_write(context: RequestContext, topic: str) -> bool:
    """Whether a client may; into internal topics only brokers write."""
    return topic not in INTERNAL_TOPICS and context.authorize(AclOperation.WRITE, AclResourceType.TOPIC, topic)


def _code(code: ErrorCode, api_version: int) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    return fenced_code(code, api_version, FIRST_FENCED_VERSION)


async def _results(
    topics: list[AddPartitionsToTxnTopic], codes: Codes, turns: Turns
) -> list[AddPartitionsToTxnTopicResult]:
    results: list[AddPartitionsToTxnTopicResult] = []
    for topic in topics:
        result = AddPartitionsToTxnTopicResult(name=topic.name)
        results.append(result)
        await turns.spend()
        for number in topic.partitions:
            answer = AddPartitionsToTxnPartitionResult(
                partition_index=number, partition_error_code=codes[topic.name, number]
            )
            result.results_by_partition.append(answer)
            await turns.spend()
    return results
