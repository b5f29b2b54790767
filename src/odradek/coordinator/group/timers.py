"""Deadlines of one shard, in a heap that makes a heartbeat cost one dict write.

A deadline that moves later keeps its old heap entry; when that entry is due it is pushed again with the real deadline.
So the heap has about one entry per key however often members send heartbeats.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple


class TimerKey(NamedTuple):
    """The key of a deadline."""

    kind: str  # "session", "join", "sync" or "expiry"
    group_id: str
    member_id: str = ""


class Timers:
    """Deadlines by key, in monotonic milliseconds."""

    __slots__ = ("_deadlines", "_heap", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []
        # The earliest heap entry of each key; later ones of the same key are stale.
        self._queued: dict[TimerKey, int] = {}

    def set(self, key: TimerKey, deadline_ms: int) -> None:
        """Set or move the deadline of `key`."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._queued[key] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, key))

    def cancel(self, key: TimerKey) -> None:
        """Remove a deadline; no error if there is none."""
        self._deadlines.pop(key, None)

    def get(self, key: TimerKey) -> int | None:
        return self._deadlines.get(key)

    def clear(self) -> None:
        self._deadlines.clear()
        self._queued.clear()
        self._heap.clear()

    def __len__(self) -> int:
        return len(self._deadlines)

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline, or None."""
        while self._heap:
            queued_ms, key = self._heap[0]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms == queued_ms:
                return queued_ms
            heapq.heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue  # stale: the key was queued again, earlier
            if deadline_ms is None:
                del self._queued[key]
            else:
                self._queued[key] = deadline_ms
                heapq.heappush(self._heap, (deadline_ms, key))
        return None

    def pop_expired(self, now_ms: int) -> TimerKey | None:
        """Remove and return the earliest key whose deadline is at or before `now_ms`."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        _, key = heapq.heappop(self._heap)
        del self._deadlines[key]
        self._queued.pop(key, None)
        return key
