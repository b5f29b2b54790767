"""DeleteRecords: key 21, versions 0-2.

Behaviour: moves a partition's log start to an offset (-1: the high watermark); records below are gone for readers at
once and from disk with their segments. Answers the new start.

Versions: 2 flexible.

Not done: waiting for followers to move theirs, which they do with their next fetch: the answer is the leader's start.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.topic_names import INTERNAL_TOPICS
from odradek.common.turns import PARTITIONS_PER_TURN, Turns, first_step_at_once
from odradek.log.retention import delete_records
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsRequest
from odradek.protocol.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.server.authorization import refusal
from odradek.server.context import RequestContext


def handle(
    context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Coroutine[Any, Any, DeleteRecordsResponse]:
    """The low watermark of each partition."""
    return first_step_at_once(_respond(context, request))


def _respond(context: RequestContext, request: DeleteRecordsRequest) -> Generator[None, None, DeleteRecordsResponse]:
    image = context.broker.image
    response, turns = DeleteRecordsResponse(), Turns(PARTITIONS_PER_TURN)
    for topic in request.topics:
        answers = []
        refused = refusal(context, AclOperation.DELETE, AclResourceType.TOPIC, topic.name)
        for wanted in topic.partitions:
            answer = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
            answers.append(answer)
            try:
                if refused is not None:
                    raise ApiError(refused)
                answer.low_watermark = _delete(context, image, topic.name, wanted)
            except StorageError as error:
                context.broker.replicas.storage_failed(error)
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            except ApiError as error:
                answer.error_code = error.code
            if turns.fill():
                yield
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
        if turns.fill():
            yield
    return response


def _delete(context: RequestContext, image: MetadataImage, topic: str, wanted: DeleteRecordsPartition) -> int:
    """Advance the log start of one partition; returns it. Raises ApiError, StorageError."""
    partition = context.broker.replicas.find(topic, wanted.partition_index, image)
    if topic in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
    partition.check_leader()
    if partition.is_mirror:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{topic} is a mirror: its source says what goes")
    if not partition.log.config.deletes:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "cleanup.policy has no delete")
    return delete_records(partition.log, wanted.offset)
