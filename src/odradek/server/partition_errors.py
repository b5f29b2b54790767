"""The response of a partition whose Produce or Fetch failed: the error, and the current leader (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.log_lines import get_logger
from odradek.protocol.messages import fetch_response, produce_response
from odradek.record.validation import InvalidRecordsError
from odradek.server.handlers.shared import leader_hint

if TYPE_CHECKING:
    from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
    from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
    from odradek.server.context import RequestContext
    from odradek.server.fetch_session_cache import TopicKey

_FIRST_PRODUCE_WITH_LEADER = 10
_FIRST_FETCH_WITH_LEADER = 12
_FIRST_FETCH_WITH_ENDPOINTS = 16
_OTHER_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_log = get_logger("server.produce")


def set_produce_error(
    context: RequestContext,
    response: ProduceResponse,
    answer: PartitionProduceResponse,
    topic: str,
    error: ApiError | StorageError,
) -> None:
    """Set the error of a batch that was not appended, and the current leader if that is another broker."""
    answer.base_offset = -1
    if topic in context.broker.image.topics_by_name:
        context.broker.metrics.produce_failed(topic)
    if isinstance(error, StorageError):
        _log.error("append failed", topic=topic, partition=answer.index, error=error)
        context.broker.replicas.storage_failed(error)
        answer.error_code, answer.error_message = ErrorCode.KAFKA_STORAGE_ERROR, "the broker's disk failed"
        return
    answer.error_code, answer.error_message = error.code, error.message or None
    if isinstance(error, InvalidRecordsError):
        answer.record_errors = [
            produce_response.BatchIndexAndErrorMessage(batch_index=each.index, batch_index_error_message=each.message)
            for each in error.record_errors
        ]
    elif error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and context.api_version >= _FIRST_PRODUCE_WITH_LEADER:
        hint = leader_hint(context.broker.image, topic, answer.index, context.listener_name)
        if hint is None:
            return
        leader_id, epoch, endpoint = hint
        answer.current_leader = produce_response.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
        nodes = response.node_endpoints
        if all(node.node_id != leader_id for node in nodes):
            nodes.append(produce_response.NodeEndpoint(node_id=leader_id, host=endpoint.host, port=endpoint.port))


def set_fetch_error(context: RequestContext, answer: PartitionData, error: ApiError | StorageError) -> None:
    """Set the error of a partition that was not read; `name_leader` adds the leader once the response is sent."""
    answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1
    answer.records = b""
    if isinstance(error, StorageError):
        context.broker.replicas.storage_failed(error)
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        answer.error_code = error.code


def name_leader(context: RequestContext, response: FetchResponse, key: TopicKey, answer: PartitionData) -> None:
    """Set the current leader of a partition that was not read because another broker leads it."""
    if answer.error_code not in _OTHER_LEADER or context.api_version < _FIRST_FETCH_WITH_LEADER:
        return
    image = context.broker.image
    known = None if isinstance(key, str) else image.topics_by_id.get(key)
    name = key if isinstance(key, str) else known.name if known is not None else ""
    hint = leader_hint(image, name, answer.partition_index, context.listener_name)
    if hint is None:
        return
    leader_id, epoch, endpoint = hint
    answer.current_leader = fetch_response.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
    nodes = response.node_endpoints
    if context.api_version >= _FIRST_FETCH_WITH_ENDPOINTS and all(node.node_id != leader_id for node in nodes):
        nodes.append(fetch_response.NodeEndpoint(node_id=leader_id, host=endpoint.host, port=endpoint.port))
