"""Records batches that were refused before the log of their partition existed: see `log.refusals`.

A batch may arrive before the broker has the partition in its metadata, or while there is no space for its log. Later
batches of the producer may arrive when the log exists, and must not be appended as its first.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from odradek.common.errors import ErrorCode
from odradek.log.refusals import Refusals
from odradek.record.batch import BatchHeader

MAX_PARTITIONS: Final = 100
MAX_PRODUCERS: Final = 100


class EarlyRefusals:
    """Refusals by partition; the oldest is removed if there are too many.

    The key has the topic's name or id in the request.
    """

    def __init__(self) -> None:
        self._by_partition: dict[tuple[str | UUID, int], Refusals] = {}

    def record(self, topic: str | UUID, partition_id: int, header: BatchHeader, code: ErrorCode) -> None:
        """Record a refused batch whose partition does not exist here."""
        if not code.retriable or not header.has_producer_id or header.base_sequence < 0:
            return
        key = topic, partition_id
        if key not in self._by_partition:
            if len(self._by_partition) >= MAX_PARTITIONS:
                del self._by_partition[next(iter(self._by_partition))]
            self._by_partition[key] = Refusals(MAX_PRODUCERS)
        self._by_partition[key].record(header, None, code)

    def move_to(self, topic: str, topic_id: UUID, partition_id: int, to: Refusals) -> None:
        """Move the refusals of a partition to those of its log, which is created now."""
        for key in ((topic, partition_id), (topic_id, partition_id)):
            earlier = self._by_partition.pop(key, None)
            if earlier is not None:
                to.merge(earlier)
