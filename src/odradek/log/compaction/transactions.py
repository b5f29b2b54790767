"""Whose records were aborted, and which markers still have records before them, while a cleaning walks a log in order.

An aborted record goes at once. Its marker must outlive it: were the marker gone first, readers would take what is left
for committed, or wait for an end that never comes. So a marker may go only where the walk met no batch of its
transaction, and then stays for the time of a tombstone, like those of committed transactions (KIP-534).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from odradek.log.index import AbortedTransaction
from odradek.record.batch import BatchHeader


class AbortedData:
    """The aborted transactions of a log, by producer, who has one at a time."""

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
    """The transactions of which the walk has met batches, and not yet the marker."""

    def __init__(self) -> None:
        self._met: set[int] = set()
        # Markers whose transaction has no batch left: (producer, the marker's offset).
        self.emptied: set[tuple[int, int]] = set()

    def add(self, header: BatchHeader) -> None:
        """A batch of records, whatever becomes of it: even an empty one is taken for the beginning of a transaction."""
        if header.is_transactional:
            self._met.add(header.producer_id)

    def end(self, header: BatchHeader) -> bool:
        """A marker; returns whether nothing of its transaction is left before it."""
        if header.producer_id in self._met:
            self._met.discard(header.producer_id)
            return False
        self.emptied.add((header.producer_id, header.last_offset))
        return True

    def to_keep(self, entries: Iterable[AbortedTransaction]) -> list[AbortedTransaction]:
        """Those of the aborted transactions of which readers must know: batches of theirs may be there."""
        return [entry for entry in entries if (entry.producer_id, entry.last_offset) not in self.emptied]
