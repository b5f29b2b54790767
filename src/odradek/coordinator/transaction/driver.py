"""Sends the markers of an ended transaction to the leaders of its partitions, until every partition has its marker.

A partition counts as deleted only if current metadata, at least as new as this broker's registration, does not include
it. A restarted broker starts its coordinators before it has all metadata: Apache Kafka 4.3.1 then skips unknown
partitions as deleted, and their transactions hang.
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

# The pauses between attempts: the first is short, since most failures are changes of a leader.
FIRST_PAUSE_MS = 20
LAST_PAUSE_MS = 1_000
# A repeated error is logged once in this time for each code, for all transactions and partitions.
LOG_AGAIN_S = 60.0
_KNOWN_CODES = frozenset(map(int, ErrorCode))

# Sends markers to a broker, which may be this one; raises OdradekError if it does not respond.
SendMarkers = Callable[[int, WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]


class CoordinatorFencedError(OdradekError):
    """A partition has markers of a newer coordinator epoch: this broker no longer coordinates the transaction."""


class TransactionMarkerSender:
    """Sends the markers of ended transactions."""

    def __init__(
        self, *, image: Callable[[], MetadataImage], image_is_current: Callable[[], bool], send: SendMarkers
    ) -> None:
        """
        Args:
            image_is_current: whether a partition that the image lacks is deleted; False while a broker catches up.
        """
        self.counts = TransactionCounts()
        self._image = image
        self._image_is_current = image_is_current
        self._send = send
        self._logged_at: dict[int, float] = {}

    async def deliver(self, ended: Ended, coordinator_epoch: int) -> None:
        """Return when every partition of the transaction has its marker, or is deleted.

        Raises:
            CoordinatorFencedError: a newer coordinator sends the markers.
        """
        left = set(ended.metadata.partitions)
        backoff = Backoff(FIRST_PAUSE_MS, LAST_PAUSE_MS)
        while left:
            by_leader = self._by_leader(left)
            answers = [
                self._deliver_to(leader, ended, coordinator_epoch, partitions, is_repeated=backoff.at_last)
                for leader, partitions in sorted(by_leader.items())
            ]
            for done in await asyncio.gather(*answers):
                left -= done
            if left:
                self.counts.marker_retries += 1
                await backoff.sleep()

    def _by_leader(self, left: set[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions that have a leader, by leader; removes deleted partitions from `left`."""
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
        is_repeated: bool,
    ) -> set[TopicPartition]:
        """Send markers to one leader; returns the partitions that are done."""
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
                    if self._is_done(ended, topic.name, answer.partition_index, answer.error_code):
                        done.add((topic.name, answer.partition_index))
                    elif is_repeated:
                        self._log_failure(ended, f"{topic.name}-{answer.partition_index}", answer.error_code)
        return done

    def _is_done(self, ended: Ended, topic: str, partition_id: int, code: int) -> bool:
        if code == ErrorCode.NONE:
            return True
        where = f"{topic}-{partition_id}"
        if code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            raise CoordinatorFencedError(f"{where} has a newer coordinator epoch for {ended.transactional_id}")
        if code == ErrorCode.INVALID_PRODUCER_EPOCH:
            # The partition has a later epoch, which a producer gets only after this transaction has ended there.
            _log.warning("marker has an old producer epoch", partition=where, transactional_id=ended.transactional_id)
            return True
        return False

    def _log_failure(self, ended: Ended, where: str, code: int) -> None:
        now_s = asyncio.get_running_loop().time()
        logged_at = self._logged_at.get(code)
        if logged_at is None or now_s - logged_at >= LOG_AGAIN_S:
            self._logged_at[code] = now_s
            name = ErrorCode(code).name if code in _KNOWN_CODES else code
            _log.warning(
                "transaction marker refused repeatedly",
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
