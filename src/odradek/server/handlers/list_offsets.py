"""ListOffsets: key 2, versions 1-11.

Behaviour: the offset at or after a time, or at one of the places that negative times stand for: -1 the end (high
watermark; last stable offset for READ_COMMITTED; log end for followers), -2 the start, -3 the largest timestamp, -4 the
local start, -5 the end of tiered storage, -6 the first record not yet tiered. A time that no record reaches answers -1.

Versions: 2 isolation level; 4 leader epoch; 6 flexible; 7 -3 (KIP-734); 8 -4 (KIP-405); 9 -5 (KIP-1005); 10 timeout;
11 -6 (KIP-1023).

Not done: tiered storage, so -4 is -2, and -5 and -6 answer that there is none.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.turns import PARTITIONS_PER_TURN, Turns, first_step_at_once
from odradek.log.search import first_record_ms, search_timestamp
from odradek.protocol.extras import (
    NO_RECORD_TIME,
    OFFSET_TIMES_LIMIT,
    UNKNOWN_TIME,
    offset_times_field,
    read_offset_times,
)
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.replica.partition import READ_COMMITTED
from odradek.server.authorization import may_describe
from odradek.server.log_creation import after_logs_created, logs_pending

if TYPE_CHECKING:
    from odradek.log.log import Log
    from odradek.log.search import FoundTimestamp, TimestampSearch
    from odradek.metadata.image import MetadataImage
    from odradek.replica.partition import Partition
    from odradek.server.context import RequestContext

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# The first version that may request the place of a record.
_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_FIRST_WITH_LEADER_EPOCH = 4
_FIRST_WITH_NOT_AVAILABLE = 5
CONSUMER = -1
DEBUGGING_CONSUMER = -2


def handle(
    context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """An offset or an error for each partition; a coroutine if records must be searched."""
    if context.broker.replicas.is_creating_logs and logs_pending(
        context, (topic.partitions for topic in request.topics)
    ):
        return after_logs_created(context, request, handle)
    outcome = first_step_at_once(_answer_all(context, request))
    if not isinstance(outcome, tuple):
        return _search_later(context, outcome)
    response, searches = outcome
    return response if not searches else _search_all(context, response, searches)


def _answer_all(context: RequestContext, request: ListOffsetsRequest) -> Generator[None, None, _Answered]:
    """The response, and the searches that complete it."""
    searches: list[_Search] = []
    image = context.broker.image
    twice, times = (yield from _duplicates(request)), _OffsetTimes()
    response, turns = ListOffsetsResponse(), Turns(PARTITIONS_PER_TURN)
    for topic in request.topics:
        answers = []
        is_forbidden = not may_describe(context, topic.name)
        for wanted in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            answers.append(answer)
            try:
                _check_place(wanted, context.api_version, is_repeated=(topic.name, wanted.partition_index) in twice)
                if is_forbidden:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                partition = _partition(context, request, topic.name, wanted, image)
                searches += _answer(request, wanted, partition, answer)
                times.answer(wanted, partition, answer)
            except ApiError as error:
                answer.error_code = _code(error, context.api_version)
            if context.api_version < _FIRST_WITH_LEADER_EPOCH:
                answer.leader_epoch = -1
            if turns.fill():
                yield
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        if turns.fill():
            yield
    return response, searches


class _OffsetTimes:
    """The timestamps of offsets, for a group coordinator that computes the age of unread records."""

    def __init__(self) -> None:
        self._left = OFFSET_TIMES_LIMIT

    def answer(self, wanted: ListOffsetsPartition, partition: Partition, answer: ListOffsetsPartitionResponse) -> None:
        """Read the timestamps in one partition, up to the limit of a request."""
        offsets = read_offset_times(wanted)[: self._left] if wanted.unknown_tagged_fields else ()
        if offsets:
            self._left -= len(offsets)
            answer.unknown_tagged_fields = (offset_times_field([_time_of(partition, offset) for offset in offsets]),)


def _time_of(partition: Partition, offset: int) -> int:
    try:
        found = first_record_ms(partition.log, offset, partition.log.high_watermark)
    except OSError:
        return UNKNOWN_TIME  # those who read there get the error
    return NO_RECORD_TIME if found is None else found


def _duplicates(request: ListOffsetsRequest) -> Generator[None, None, set[tuple[str, int]]]:
    turns = Turns(PARTITIONS_PER_TURN)
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        if turns.fill():
            yield
        for wanted in topic.partitions:
            key = (topic.name, wanted.partition_index)
            (twice if key in seen else seen).add(key)
            if turns.fill():
                yield
    return twice


def _check_place(wanted: ListOffsetsPartition, api_version: int, *, is_repeated: bool) -> None:
    if is_repeated:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the partition is asked for twice")
    if wanted.timestamp < 0 and api_version < _SINCE.get(wanted.timestamp, 2**15):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"no version has place {wanted.timestamp} so early")


def _partition(
    context: RequestContext, request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition, image: MetadataImage
) -> Partition:
    partition = context.broker.replicas.find(topic, wanted.partition_index, image)
    if request.replica_id != DEBUGGING_CONSUMER:  # which may ask any replica
        partition.check_leader(wanted.current_leader_epoch)
    return partition


def _code(error: ApiError, api_version: int) -> ErrorCode:
    if error.code is ErrorCode.OFFSET_NOT_AVAILABLE and api_version < _FIRST_WITH_NOT_AVAILABLE:
        return ErrorCode.LEADER_NOT_AVAILABLE  # which older clients retry as well
    return error.code


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for a timestamp in one partition. `end_offset` (exclusive) is read once, at the start:
    records that are appended during the search are not found (KAFKA-9835)."""

    partition: Partition
    leader_epoch: int
    end_offset: int
    timestamps: TimestampSearch
    log: Log
    answer: ListOffsetsPartitionResponse


_Answered = tuple[ListOffsetsResponse, list[_Search]]


async def _search_later(context: RequestContext, answered: Coroutine[Any, Any, _Answered]) -> ListOffsetsResponse:
    return await _search_all(context, *await answered)


async def _search_all(
    context: RequestContext, response: ListOffsetsResponse, searches: list[_Search]
) -> ListOffsetsResponse:
    for search in searches:
        partition, answer, found = search.partition, search.answer, None
        try:
            found = await _searched(context, search)
        except OSError as error:
            if search.log.is_detached:
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                continue
            context.broker.replicas.storage_failed(StorageError(partition.log.log_dir, str(error)))
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        except ApiError as error:
            answer.error_code = error.code
        if found is not None and found.offset < search.end_offset:
            answer.timestamp, answer.offset = found.timestamp_ms, found.offset
            if context.api_version >= _FIRST_WITH_LEADER_EPOCH:
                answer.leader_epoch = found.leader_epoch
    return response


async def _searched(context: RequestContext, search: _Search) -> FoundTimestamp | None:
    """Run a search. Raises ApiError if this broker lost the partition or its leadership meanwhile; OSError."""
    partition, disk = search.partition, context.broker.log_manager.disk
    while not search.log.is_detached and (work := search.timestamps.next_step()) is not None:
        search.timestamps.apply(await disk.run_blocking(work))
    if search.log.is_detached:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} is no longer here")
    if partition.leader_epoch != search.leader_epoch:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} has a new leader epoch")
    return search.timestamps.found


def _end(request: ListOffsetsRequest, partition: Partition, time_ms: int) -> int:
    """The end offset for this client. Raises ApiError if a new leader does not know it yet."""
    log = partition.log
    if request.replica_id >= 0:
        return log.log_end_offset
    if request.replica_id != CONSUMER:
        return log.high_watermark
    if time_ms not in (EARLIEST, EARLIEST_LOCAL) and not partition.offsets_are_known():
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{partition.name} has a new leader that is not sure of its end")
    return log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark


def _answer(
    request: ListOffsetsRequest,
    wanted: ListOffsetsPartition,
    partition: Partition,
    answer: ListOffsetsPartitionResponse,
) -> tuple[_Search, ...]:
    """Answer at once, or return the search that does."""
    log, time_ms = partition.log, wanted.timestamp
    start, end = log.log_start_offset, _end(request, partition, time_ms)
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
        search = search_timestamp(log, None if time_ms == MAX_TIMESTAMP else time_ms)
        answer.leader_epoch = -1
        return (_Search(partition, partition.leader_epoch, end, search, log, answer),)
    return ()
