"""ListOffsets: key 2, versions 1-11.

Behaviour: the offset at or after a time, or at one of the places that negative times stand for: -1 the end (high
watermark; last stable offset for READ_COMMITTED; log end for followers), -2 the start, -3 the largest timestamp, -4 the
local start, -5 the end of tiered storage, -6 the first record not yet tiered. A time that no record reaches answers -1.

Versions: 2 isolation level; 4 leader epoch; 6 flexible; 7 -3 (KIP-734); 8 -4 (KIP-405); 9 -5 (KIP-1005); 10 time-out;
11 -6 (KIP-1023).

Not done: tiered storage, so -4 is -2, and -5 and -6 answer that there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from odradek.replica.partition import Partition
    from odradek.server.context import RequestContext

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# The first version that may ask for a place.
_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_FIRST_WITH_LEADER_EPOCH = 4
CONSUMER = -1
READ_COMMITTED = 1


def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """An offset, or an error, for each partition."""
    image = context.broker.image
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for wanted in topic.partitions:
            key = (topic.name, wanted.partition_index)
            (twice if key in seen else seen).add(key)
    response = ListOffsetsResponse()
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            answers.append(answer)
            try:
                if (topic.name, wanted.partition_index) in twice:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "the partition is asked for twice")
                if wanted.timestamp < 0 and context.api_version < _SINCE.get(wanted.timestamp, 2**15):
                    raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"no version has place {wanted.timestamp} so early")
                partition = context.broker.replicas.find(topic.name, wanted.partition_index, image)
                if request.replica_id != -2:  # a debugging consumer may ask any replica
                    partition.check_leader(wanted.current_leader_epoch)
                _answer(context, request, wanted, partition, answer)
            except StorageError as error:
                context.broker.replicas.storage_failed(error)
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            except ApiError as error:
                answer.error_code = error.code
            if context.api_version < _FIRST_WITH_LEADER_EPOCH:
                answer.leader_epoch = -1
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _answer(
    context: RequestContext,
    request: ListOffsetsRequest,
    wanted: ListOffsetsPartition,
    partition: Partition,
    answer: ListOffsetsPartitionResponse,
) -> None:
    log, time_ms = partition.log, wanted.timestamp
    start, watermark = log.log_start_offset, log.high_watermark
    end = log.log_end_offset if request.replica_id >= 0 else watermark
    if request.isolation_level == READ_COMMITTED and request.replica_id == CONSUMER:
        end = min(end, log.last_stable_offset)
    answer.leader_epoch = partition.leader_epoch
    if time_ms == LATEST:
        answer.offset = end
    elif time_ms in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = start
        if start < log.log_end_offset:
            answer.leader_epoch = log.epochs.epoch_for_offset(start)
    elif time_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        answer.leader_epoch = -1
    else:
        found = log.max_timestamp_offset() if time_ms == MAX_TIMESTAMP else log.offset_for_timestamp(time_ms)
        if found is None or found[1] >= end:
            answer.leader_epoch = -1
        else:
            answer.timestamp, answer.offset = found[0], found[1]
            answer.leader_epoch = found[2] if len(found) > 2 else log.epochs.epoch_for_offset(found[1])
