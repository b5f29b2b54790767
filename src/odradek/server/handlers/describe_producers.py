"""DescribeProducers: key 61, version 0. Producers that a partition's log remembers (KIP-664)."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import is_legal_topic_name
from odradek.common.turns import PARTITIONS_PER_TURN, Turns, first_step_at_once
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest
from odradek.protocol.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from odradek.server.authorization import TOPIC_REFUSED, refusal
from odradek.server.context import RequestContext


def handle(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse | Coroutine[Any, Any, DescribeProducersResponse]:
    """The active producers of each partition, as this replica knows them: leader or follower.

    A partition that a topic of the request names again is answered once: its producers may be many.
    """
    return first_step_at_once(_respond(context, request))


def _respond(
    context: RequestContext, request: DescribeProducersRequest
) -> Generator[None, None, DescribeProducersResponse]:
    image = context.broker.image
    response = DescribeProducersResponse()
    turns = Turns(PARTITIONS_PER_TURN)
    for topic in request.topics:
        answers = []
        refused = refusal(context, AclOperation.READ, AclResourceType.TOPIC, topic.name)
        for number in dict.fromkeys(topic.partition_indexes):
            answer = PartitionResponse(partition_index=number)
            answers.append(answer)
            try:
                if not is_legal_topic_name(topic.name):
                    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name!r} is not a topic name")
                if refused is not None:
                    raise ApiError(refused, TOPIC_REFUSED)
                partition = context.broker.replicas.find(topic.name, number, image)
                partition.check_epoch(-1)
                answer.active_producers = [
                    ProducerState(
                        producer_id=producer.producer_id,
                        producer_epoch=producer.producer_epoch,
                        last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
                        last_timestamp=producer.last_timestamp_ms,
                        coordinator_epoch=producer.coordinator_epoch,
                        current_txn_start_offset=producer.transaction_start,
                    )
                    for producer in partition.log.producers.producers.values()
                ]
            except ApiError as error:
                answer.error_code, answer.error_message = error.code, error.message
            if turns.fill(1 + len(answer.active_producers)):
                yield
        response.topics.append(TopicResponse(name=topic.name, partitions=answers))
        if turns.fill():
            yield
    return response
