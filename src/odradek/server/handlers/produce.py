"""Produce: key 0, versions 3-13, advertised from 0.

Behaviour: each partition's batch is validated with all its records, appended, and answered separately. A request with
acks=0 gets no response; the broker closes its connection where a batch fails, the only way to report that. acks=1 is
answered after the append, acks=-1 when all in-sync replicas have the batch, or with REQUEST_TIMED_OUT after timeout_ms.
`handle` appends at once, in the order of the requests; later requests of the connection run while this one waits for
replicas. A batch that takes long to validate, or is recompressed (compression.type), is prepared off the event loop,
and appended before every batch that was sent later for its partition. Many batches are appended in several turns of the
loop, in which other connections are served; this one waits.

Versions: 3 format v2 only; 7 zstd (KIP-110); 8 record errors (KIP-467); 9 flexible; 10 the current leader with
NOT_LEADER_OR_FOLLOWER (KIP-951); 12 partitions join a transaction by this request (KIP-890); 13 topic ids (KIP-516).
0-2 are offered and then refused: librdkafka before 2.15 takes their absence for missing compression (KAFKA-18659).

Transactions: the first batch of a transaction in a partition is written once the transaction coordinator has confirmed
that the partition is part of it; from version 12 on this request adds the partition. Until then the connection waits.

Permissions: Write on the topic, checked before the topic's existence, and Write on the transactional id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.topic_names import INTERNAL_TOPICS
from odradek.common.turns import Turns, first_step_at_once, in_turns
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.record.batch import HEADER_BYTES, BatchHeader
from odradek.record.validation import TooLongForLoopError, admit, is_long_walk
from odradek.server.acknowledgement import Acknowledgement, Waiting
from odradek.server.handlers.shared import ADMIN_CLIENT_ID
from odradek.server.log_creation import after_logs_created, logs_pending
from odradek.server.partition_errors import set_produce_error
from odradek.server.produce_preparation import (
    RECORDS_PER_TURN,
    needs_recompression,
    prepare_off_loop,
    record_refused,
    work_of,
)
from odradek.server.transactions.produce_verification import Check, Unverified, Verified, find_unverified, verify

if TYPE_CHECKING:
    from odradek.replica.partition import Partition
    from odradek.server.context import RequestContext

_NO_TRANSACTIONAL_ID = ApiError(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transaction needs a transactional id"
)
_TRANSACTIONAL_ID_DENIED = ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no Write on the transactional id")
_NONE_VERIFIED: Verified = {}
# To read a member of an enumeration takes longer than to read a name of the module.
_WRITE, _TOPIC = AclOperation.WRITE, AclResourceType.TOPIC
_FIRST_WITH_TOPIC_IDS = 13
AT_ONCE = 5  # so many batches are appended in one turn of the event loop, whatever they hold


def handle(
    context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Acknowledgement | Coroutine[Any, Any, Any] | None:
    """Append all batches; returns the response, None for acks=0, or what responds once replicas have them."""
    if context.broker.replicas.is_creating_logs and logs_pending(
        context, (topic.partition_data for topic in request.topic_data)
    ):
        return after_logs_created(context, request, handle)
    if request.transactional_id is not None and context.is_allowed(
        AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id
    ):
        unverified = first_step_at_once(find_unverified(context, request))
        if unverified:
            return _verify_and_append(context, request, unverified)
    return first_step_at_once(_Appends(context, request).run())


class _Appends:
    """The appends of one request, with each partition's response and the futures that it waits for."""

    __slots__ = (
        "_acks",
        "_context",
        "_image",
        "_request",
        "_response",
        "_unverified_error",
        "_verified",
        "_waiting",
    )

    def __init__(self, context: RequestContext, request: ProduceRequest, verified: Verified = _NONE_VERIFIED) -> None:
        """`verified` has the coordinator's result for each partition that was verified."""
        self._context = context
        self._request = request
        self._acks = request.acks
        self._image = context.broker.image
        self._response = ProduceResponse()
        self._waiting: list[Waiting] = []
        self._verified = verified
        # The error of transactional batches in partitions that were not verified.
        self._unverified_error: ApiError | None = None
        if request.transactional_id is None:
            self._unverified_error = _NO_TRANSACTIONAL_ID
        elif not context.authorize(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id):
            self._unverified_error = _TRANSACTIONAL_ID_DENIED

    def run(self) -> Generator[None, None, ProduceResponse | Acknowledgement | None]:
        """Append each partition's batch; an error of one partition does not affect the others."""
        response, image = self._response, self._image
        turns = Turns(RECORDS_PER_TURN) if self._is_long() else None
        by_id = self._context.api_version >= _FIRST_WITH_TOPIC_IDS
        for topic in self._request.topic_data:
            name: str | None = topic.name
            if by_id:
                known = image.topics_by_id.get(topic.topic_id)
                name = None if known is None else known.name
            is_forbidden = name is not None and not self._context.authorize(_WRITE, _TOPIC, name)
            partition_responses = []
            for data in topic.partition_data:
                partition_response = PartitionProduceResponse(index=data.index)
                partition_responses.append(partition_response)
                try:
                    if is_forbidden:
                        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    self._check_request(name)
                    self._append(self._find(topic, name, data), data.records, partition_response)
                except (ApiError, StorageError) as error:
                    self._set_error(partition_response, name or "", error)
                if turns is not None and turns.fill(work_of(data.records)):
                    yield
            response.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partition_responses)
            )
            if turns is not None and turns.fill():
                yield
        if self._acks == 0:
            return None
        if not self._waiting:
            return response
        return Acknowledgement(response, self._waiting, self._request, self._context)

    def _is_long(self) -> bool:
        """Whether the batches may take more than one turn of the event loop."""
        topics = self._request.topic_data
        if len(topics) == 1:
            return len(topics[0].partition_data) > AT_ONCE
        return len(topics) > AT_ONCE or sum(len(topic.partition_data) for topic in topics) > AT_ONCE

    def _find(self, topic: TopicProduceData, name: str | None, data: PartitionProduceData) -> Partition:
        replicas, records = self._context.broker.replicas, data.records
        try:
            if name is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            return replicas.find(name, data.index, self._image)
        except ApiError as error:
            if isinstance(records, bytes | bytearray | memoryview) and len(records) >= HEADER_BYTES:
                key = topic.topic_id if name is None else name
                replicas.early_refusals.record(key, data.index, BatchHeader.read(records), error.code)
            raise

    def _check_request(self, name: str | None) -> None:
        if self._acks not in (-1, 0, 1):
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self._acks} must be -1, 0 or 1")
        if name in INTERNAL_TOPICS and self._context.client_id != ADMIN_CLIENT_ID:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal: clients may not write to it")

    def _append(self, partition: Partition, records: Any, partition_response: PartitionProduceResponse) -> None:
        """Validate and append one batch: at once, or in the partition's order after preparation off the loop."""
        if records is None or not len(records):
            raise ApiError(ErrorCode.INVALID_RECORD, "a partition without records")
        broker, rules = self._context.broker, partition.rules
        is_behind_others = broker.replicas.preparations.is_busy(partition)
        if is_behind_others or is_long_walk(records, rules) or needs_recompression(partition, records):
            self._prepare_and_append(partition, records, partition_response)
            return
        now_ms, version = broker.clock.now_ms(), self._context.api_version
        try:
            batch, header = admit(records, rules, now_ms=now_ms, api_version=version, on_loop=True)
        except TooLongForLoopError:
            self._prepare_and_append(partition, records, partition_response)
            return
        except ApiError as error:
            record_refused(partition, records, error)
            raise
        wait = self._write(partition, batch, header, partition_response)
        if wait is not None:
            self._waiting.append((partition_response, partition, wait))

    def _prepare_and_append(
        self, partition: Partition, records: Any, partition_response: PartitionProduceResponse
    ) -> None:
        ended = prepare_off_loop(
            self._context,
            partition,
            records,
            lambda batch, header: self._write(partition, batch, header, partition_response),
            lambda error: self._set_error(partition_response, partition.topic, error),
        )
        if self._acks:
            self._waiting.append((partition_response, partition, ended))

    def _write(
        self, partition: Partition, records: Any, header: BatchHeader, partition_response: PartitionProduceResponse
    ) -> asyncio.Future[None] | None:
        """Append a validated batch; returns the future that its acknowledgement waits for, None for no wait."""
        broker, acks = self._context.broker, self._acks
        check: Check = self._unverified_error
        if self._verified:
            check = self._verified.get((partition.topic, partition.partition_id), check)
        if isinstance(check, ApiError):
            if header.is_transactional:
                partition.log.producers.record_refused((header,), check.code)
                raise ApiError(check.code, check.message)
            check = None
        now_ms = broker.clock.now_ms()
        info = partition.append_as_leader((records,), (header,), required_acks=acks, now_ms=now_ms, verification=check)
        broker.metrics.produced(partition.topic, len(records), header.record_count)
        partition_response.base_offset = info.base_offset
        partition_response.log_append_time_ms = info.log_append_time_ms
        partition_response.log_start_offset = partition.log.log_start_offset
        if not acks:
            return None
        end_offset = info.last_offset + 1
        return partition.wait_replicated(end_offset) if acks == -1 else partition.wait_durable(end_offset)

    def _set_error(
        self, partition_response: PartitionProduceResponse, topic: str, error: ApiError | StorageError
    ) -> None:
        if not self._acks:
            self._context.connection.close_because("a record sent with acks=0 was refused")
        set_produce_error(self._context, self._response, partition_response, topic, error)


async def _verify_and_append(
    context: RequestContext,
    request: ProduceRequest,
    unverified: list[Unverified] | Coroutine[Any, Any, list[Unverified]],
) -> ProduceResponse | Acknowledgement | None:
    """Verify the partitions with the transaction coordinator, then append."""
    found = unverified if isinstance(unverified, list) else await unverified
    verified = await verify(context, request, found) if found else _NONE_VERIFIED
    return await in_turns(_Appends(context, request, verified).run())
