"""Markers on their way: to every partition of a transaction that ends, again and again until all have it.

Nothing is left out because a partition is not there *yet*: a broker that was killed and is back has its coordinators
before it has all its partitions, and Apache Kafka 4.3.1, which takes a partition that it does not know for one that was
deleted, lets transactions hang then. A partition counts as gone only where the cluster's metadata, as current as this
broker's registration, has no such partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from odradek.common.backoff import Backoff
from odradek.common.errors import ErrorCode, OdradekError
from odradek.common.log_lines import get_logger
from odradek.common.topic_names import TopicPartition
from odradek.coordinator.transaction.machine import Ended
from odradek.coordinator.transaction.metrics import TransactionCounts
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse

_log = get_logger("coordinator.transaction.markers")

# Between two attempts: the first comes soon, since the usual cause is a leader that has just changed.
FIRST_PAUSE_MS = 20
LAST_PAUSE_MS = 1_000
# A refusal that keeps coming is logged once in so long for each code, whichever transaction and partition it concerns.
TELL_AGAIN_S = 60.0
_KNOWN_CODES = frozenset(map(int, ErrorCode))

# Sends markers to a broker, this one among them; raises OdradekError where there is no answer.
SendMarkers = Callable[[int, WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]


class CoordinatorFencedError(OdradekError):
    """A partition has seen markers of a later coordinator: this one is no longer in charge."""


class TransactionMarkerSender:
    """Brings the markers of ended transactions to their partitions."""

    def __init__(
        self, *, image: Callable[[], MetadataImage], image_is_current: Callable[[], bool], send: SendMarkers
    ) -> None:
        """
        Args:
            image_is_current: whether what the image lacks does not exist; False while a broker catches up.
        """
        self.counts = TransactionCounts()
        self._image = image
        self._image_is_current = image_is_current
        self._send = send
        self._told_at: dict[int, float] = {}

    async def deliver(self, ended: Ended, coordinator_epoch: int) -> None:
        """Return when every partition of the transaction has its marker, or is gone.

        Raises:
            CoordinatorFencedError: another coordinator is in charge and will deliver.
        """
        left = set(ended.metadata.partitions)
        backoff = Backoff(FIRST_PAUSE_MS, LAST_PAUSE_MS)
        while left:
            by_leader = self._by_leader(left)
            answers = [
                self._deliver_to(leader, ended, coordinator_epoch, partitions, keeps_coming=backoff.at_last)
                for leader, partitions in sorted(by_leader.items())
            ]
            for done in await asyncio.gather(*answers):
                left -= done
            if left:
                self.counts.marker_rounds_repeated += 1
                await backoff.sleep()

    def _by_leader(self, left: set[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions that have a leader; those that are gone are taken out of `left`."""
        image = self._image()
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic, partition_id in sorted(left):
            partition = image.partition(topic, partition_id)
            if partition is None:
                if self._image_is_current():
                    left.discard((topic, partition_id))
            elif partition.leader >= 0:
                by_leader.setdefault(partition.leader, []).append((topic, partition_id))
        return by_leader

    async def _deliver_to(
        self,
        leader: int,
        ended: Ended,
        coordinator_epoch: int,
        partitions: list[TopicPartition],
        *,
        keeps_coming: bool,
    ) -> set[TopicPartition]:
        """The partitions that need nothing more."""
        request = WriteTxnMarkersRequest(markers=[_marker(ended, coordinator_epoch, partitions)])
        try:
            response = await self._send(leader, request)
        except OdradekError as error:
            _log.debug("markers not delivered", broker=leader, error=error)
            return set()
        done: set[TopicPartition] = set()
        for marker in response.markers:
            for topic in marker.topics:
                for answer in topic.partitions:
                    if self._is_settled(ended, topic.name, answer.partition_index, answer.error_code):
                        done.add((topic.name, answer.partition_index))
                    elif keeps_coming:
                        self._tell(ended, f"{topic.name}-{answer.partition_index}", answer.error_code)
        return done

    def _is_settled(self, ended: Ended, topic: str, partition_id: int, code: int) -> bool:
        if code == ErrorCode.NONE:
            return True
        where = f"{topic}-{partition_id}"
        if code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            raise CoordinatorFencedError(f"{where} has seen a later coordinator of {ended.transactional_id}")
        if code == ErrorCode.INVALID_PRODUCER_EPOCH:
            # The partition is at a later epoch, which no producer gets before this transaction has ended there.
            _log.warning("a marker came too late", partition=where, transactional_id=ended.transactional_id)
            return True
        return False

    def _tell(self, ended: Ended, where: str, code: int) -> None:
        now_s = asyncio.get_running_loop().time()
        told_at = self._told_at.get(code)
        if told_at is None or now_s - told_at >= TELL_AGAIN_S:
            self._told_at[code] = now_s
            name = ErrorCode(code).name if code in _KNOWN_CODES else code
            _log.warning(
                "a marker is refused again and again",
                partition=where,
                transactional_id=ended.transactional_id,
                code=name,
            )


def _marker(ended: Ended, coordinator_epoch: int, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, partition_id in partitions:
        topics.setdefault(topic, []).append(partition_id)
    return WritableTxnMarker(
        producer_id=ended.metadata.producer_id,
        producer_epoch=ended.metadata.producer_epoch,
        transaction_result=ended.committed,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
        coordinator_epoch=coordinator_epoch,
        transaction_version=ended.metadata.version,
    )
