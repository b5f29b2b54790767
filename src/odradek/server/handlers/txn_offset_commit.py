"""TxnOffsetCommit: key 28, versions 0-5.

Behaviour: commits offsets in the producer's transaction: they are written to __consumer_offsets at once, and count when
the commit marker is written. Topics and partitions that do not exist are refused one by one.

Permissions: Write on the transactional id, Read on the group and on each topic.

Versions: 2 leader epoch (KIP-320); 3 flexible, member and generation (KIP-447); 4 TRANSACTION_ABORTABLE; 5 this
request adds the group's partition to the transaction (KIP-890). Version 6, topics by id, is not stable yet.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns
from odradek.coordinator.group.classic.membership import Caller
from odradek.coordinator.group.records import OFFSETS_TOPIC
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from odradek.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.server.authorization import may_read, refusal
from odradek.server.context import RequestContext
from odradek.server.transactions.verification import RETRIABLE

ABORTABLE_VERSION = 4
ADDING_VERSION = 5


async def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Commit for existing partitions, and merge the results in the order of the request."""
    image, turns = context.broker.image, Turns(PARTITIONS_PER_TURN)
    codes: dict[tuple[str, int], int] = {}
    requested = request.topics
    refused = refusal(context, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id)
    refused = refused or refusal(context, AclOperation.READ, AclResourceType.GROUP, request.group_id)
    existing = [await _authorized_part(context, image, topic, refused, codes, turns) for topic in requested]
    request.topics = [topic for topic in existing if topic.partitions]
    if request.topics:
        try:
            committed = await _commit(context, request)
            for answer in committed.topics:
                for each in answer.partitions:
                    codes[answer.name, each.partition_index] = each.error_code
                    await turns.spend()
        except ApiError as error:
            code = _code(error.code, context.api_version)
            for topic in request.topics:
                for partition in topic.partitions:
                    codes[topic.name, partition.partition_index] = code
                    await turns.spend()
    response = TxnOffsetCommitResponse()
    for topic in requested:
        merged = TxnOffsetCommitResponseTopic(name=topic.name)
        response.topics.append(merged)
        if not topic.partitions:
            await turns.spend()
        for wanted in topic.partitions:
            index = wanted.partition_index
            result = TxnOffsetCommitResponsePartition(partition_index=index, error_code=codes[topic.name, index])
            merged.partitions.append(result)
            await turns.spend()
    return response


async def _authorized_part(
    context: RequestContext,
    image: MetadataImage,
    requested: TxnOffsetCommitRequestTopic,
    refused: ErrorCode | None,
    codes: dict[tuple[str, int], int],
    turns: Turns,
) -> TxnOffsetCommitRequestTopic:
    """The part of a topic that exists and may be read; `codes` gets the others' errors, `refused` where all are."""
    topic, code = image.topic(requested.name), refused or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refused is not None:
        topic = None
    elif not may_read(context, requested.name):
        topic, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    found = TxnOffsetCommitRequestTopic(name=requested.name)
    if not requested.partitions:
        await turns.spend()
    for each in requested.partitions:
        if topic is not None and each.partition_index in topic.partitions:
            found.topic_id = topic.topic_id
            found.partitions.append(each)
        else:
            codes[requested.name, each.partition_index] = code
        await turns.spend()
    return found


async def _commit(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    verifier = context.broker.verifier
    add = context.api_version >= ADDING_VERSION

    async def verify(partition_id: int) -> ErrorCode:
        key = (OFFSETS_TOPIC, partition_id)
        codes = await verifier.verify(
            request.transactional_id, request.producer_id, request.producer_epoch, [key], add=add
        )
        return codes[key]

    needed = add or verifier.config.enable
    caller = Caller(context.client_id, f"/{context.client_address}", context.api_version)
    committed: TxnOffsetCommitResponse = await context.broker.coordinator.txn_offset_commit(
        request, verify if needed else None, caller, supports_epoch_bump=add
    )
    return committed


def _code(code: ErrorCode, api_version: int) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    if code in RETRIABLE and code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        # All clients retry after this error, without another FindCoordinator.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code
