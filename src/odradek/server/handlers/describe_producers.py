"""DescribeProducers: key 61, version 0. Producers that a partition's log remembers (KIP-664)."""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import is_legal_topic_name
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


def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """The active producers of each partition, as this replica knows them: leader or follower."""
    image = context.broker.image
    response = DescribeProducersResponse()
    for topic in request.topics:
        answers = []
        refused = refusal(context, AclOperation.READ, AclResourceType.TOPIC, topic.name)
        for number in topic.partition_indexes:
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
        response.topics.append(TopicResponse(name=topic.name, partitions=answers))
    return response
