"""Writes transaction markers into the partitions that this broker leads: once into each, however often they are sent.

A marker that the partition has already is not written again; the response waits until it is committed. The group
coordinator writes the markers of __consumer_offsets, since only it writes to that topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock
from odradek.common.turns import Turns
from odradek.coordinator.group.records import OFFSETS_TOPIC, TransactionEndRecord
from odradek.coordinator.group.service import GroupCoordinator
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.write_txn_markers_request import WritableTxnMarker, WriteTxnMarkersRequest
from odradek.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from odradek.record.batch import BatchHeader
from odradek.record.control import transaction_marker
from odradek.replica.manager import ReplicaManager

_log = get_logger("server.markers")
ALL_IN_SYNC = -1
# How many markers of a request are appended in one turn of the loop, some 100 to 500 us each.
MARKERS_PER_TURN = 40
# The tasks that wait for a marker's commit each, with the commit.
_Waits = dict[asyncio.Task[None], asyncio.Future[None]]


class MarkerWriter:
    """Writes the markers of one WriteTxnMarkers request."""

    def __init__(
        self, replicas: ReplicaManager, groups: GroupCoordinator, clock: Clock, image: Callable[[], MetadataImage]
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._image = image

    async def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Write missing markers; returns when all are committed, with an error for each partition.

        Many markers take turns. None waits for another's commit: one partition without enough replicas delays the
        response, not the other markers.
        """
        response, turns = WriteTxnMarkersResponse(), Turns(MARKERS_PER_TURN)
        waits: _Waits = {}
        try:
            for marker in request.markers:
                result = WritableTxnMarkerResult(producer_id=marker.producer_id)
                response.markers.append(result)
                await turns.spend()
                for topic in marker.topics:
                    of_topic = WritableTxnMarkerTopicResult(name=topic.name)
                    result.topics.append(of_topic)
                    await turns.spend()
                    for number in topic.partition_indexes:
                        answer = WritableTxnMarkerPartitionResult(partition_index=number)
                        of_topic.partitions.append(answer)
                        self._begin(marker, topic.name, answer, waits)
                        await turns.spend()
            await asyncio.gather(*waits)
        except (Exception, asyncio.CancelledError):
            # The tasks end with their commits. A task that was cancelled before it first ran has not cancelled its own.
            for commit in waits.values():
                commit.cancel()
            await asyncio.gather(*waits, *waits.values(), return_exceptions=True)
            raise
        return response

    def _begin(
        self,
        marker: WritableTxnMarker,
        topic: str,
        answer: WritableTxnMarkerPartitionResult,
        waits: _Waits,
    ) -> None:
        """Write one marker, and add the task that waits for its commit, if it is not committed at once."""
        loop = asyncio.get_running_loop()
        if topic == OFFSETS_TOPIC:
            # A task, and not a coroutine, which would never be awaited if the request is cancelled before.
            commit: asyncio.Future[None] | None = loop.create_task(
                self._groups.end_transaction(answer.partition_index, _end_of(marker), marker.transaction_version)
            )
        else:
            try:
                commit = self._append(marker, topic, answer.partition_index)
            except (ApiError, StorageError) as error:
                self._failed(answer, error)
                return
        if commit is not None:
            waits[loop.create_task(self._await_one(answer, commit))] = commit

    async def _await_one(self, answer: WritableTxnMarkerPartitionResult, commit: asyncio.Future[None]) -> None:
        try:
            await commit
        except (ApiError, StorageError) as error:
            self._failed(answer, error)

    def _failed(self, answer: WritableTxnMarkerPartitionResult, error: ApiError | StorageError) -> None:
        if isinstance(error, StorageError):
            self._replicas.storage_failed(error)
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            answer.error_code = error.code

    def _append(self, marker: WritableTxnMarker, topic: str, partition_id: int) -> asyncio.Future[None] | None:
        """Append the marker if it is missing; returns the wait for its commit, None if it is committed."""
        partition = self._replicas.find(topic, partition_id, self._image())
        partition.check_leader()
        if topic in self._replicas.mirrors:
            # It was a topic when the transaction began (ADR 0021).
            if topic in self._replicas.failing_back:
                text = f"{topic} is being failed back: whether its source has ended the transaction is not known yet"
                raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, text)
            return None  # its source has ended that
        producers = partition.log.producers
        producers.clear_verification(marker.producer_id, marker.producer_epoch, marker.transaction_version)
        if producers.must_write_marker(
            marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version
        ):
            now_ms = self._clock.now_ms()
            batch = transaction_marker(
                commit=marker.transaction_result,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                timestamp_ms=now_ms,
            )
            partition.append_as_leader([batch], [BatchHeader.read(batch)], required_acks=ALL_IN_SYNC, now_ms=now_ms)
        return partition.wait_replicated(partition.log.log_end_offset)


def _end_of(marker: WritableTxnMarker) -> TransactionEndRecord:
    return TransactionEndRecord(
        marker.producer_id, marker.transaction_result, marker.producer_epoch, marker.coordinator_epoch
    )
