"""Aborted and open transactions during a cleaning.

Aborted records are removed at once. Their marker must outlive them: without it, readers would count the rest as
committed, or wait for the end of the transaction. So a marker is removed only if no batch of its transaction is left,
and after the retention time of tombstones, as markers of committed transactions are (KIP-534).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from odradek.log.index import AbortedTransaction
from odradek.record.batch import BatchHeader


class AbortedData:
    """The aborted transactions of a log by producer; those of one producer do not overlap."""

    def __init__(self, entries: Iterable[AbortedTransaction]) -> None:
        self._by_producer: dict[int, list[tuple[int, int]]] = {}
        for entry in sorted(entries, key=lambda entry: entry.first_offset):
            self._by_producer.setdefault(entry.producer_id, []).append((entry.first_offset, entry.last_offset))

    def covers(self, header: BatchHeader) -> bool:
        """Whether a batch of records belongs to an aborted transaction."""
        if not header.is_transactional or header.is_control:
            return False
        spans = self._by_producer.get(header.producer_id)
        if spans is None:
            return False
        index = bisect_right(spans, (header.base_offset, 2**63)) - 1
        return index >= 0 and header.last_offset <= spans[index][1]


class OpenTransactions:
    """The transactions with batches whose marker has not been reached yet."""

    def __init__(self) -> None:
        self._met: set[int] = set()
        # Markers whose transaction has no batch left: (producer, the marker's offset).
        self.emptied: set[tuple[int, int]] = set()

    def add(self, header: BatchHeader) -> None:
        """Add a batch of records; readers count even an empty one as the start of a transaction."""
        if header.is_transactional:
            self._met.add(header.producer_id)

    def end(self, header: BatchHeader) -> bool:
        """Handle a marker; returns whether its transaction has no batch left."""
        if header.producer_id in self._met:
            self._met.discard(header.producer_id)
            return False
        self.emptied.add((header.producer_id, header.last_offset))
        return True

    def retained_entries(self, entries: Iterable[AbortedTransaction]) -> list[AbortedTransaction]:
        """The aborted transactions that the index must keep, because they may have batches left."""
        return [entry for entry in entries if (entry.producer_id, entry.last_offset) not in self.emptied]
