"""The limits of the bytes of requests in flight, over all connections, and of the time in which one arrives.

A frame that does not come in one read reserves the whole size that it announces before the rest of it is read. A frame
with a reservation can always be received to its end, so no two frames wait for each other. A frame without one waits
its turn, while its connection is not read: addresses take turns, and frames of one address are served by arrival. Small
frames and large ones have half of the budget each, so that many large ones do not block the frames that most clients
send. A frame larger than its half is received alone in it.

Frames of up to FREE_BYTES reserve nothing, so that heartbeats and single records pass whatever else is under way. Bytes
that were read ahead of their turn (whole requests behind one that is not answered, the beginning of a frame that waits)
are counted too: while they or the queue are long, connections are read in pieces of FREE_BYTES.
"""

from __future__ import annotations

from typing import Protocol

# Of one frame, and of one read while memory is short: a connection costs about as much anyway.
FREE_BYTES = 4096
# Java's and librdkafka's largest requests by default are half of it.
LARGE_BYTES = 2 * 1024 * 1024
# Of the machine's memory, where queued.max.request.bytes is not given.
_SHARE = 4
_MIN_CAPACITY_BYTES = 32 * 1024 * 1024
_MAX_CAPACITY_BYTES = 1024 * 1024 * 1024
# Frames before a login have a budget of their own, smaller by this factor; a login of 4096 bytes needs none of it.
LOGIN_SHARE = 8
# Of the budget: so much may be read ahead.
_AHEAD_SHARE = 4

# The time that a frame may take, beside what its size allows; less where connections.max.idle.ms is below a sixth.
GRACE_MS = 30_000
_GRACE_IDLES = 5
# A bad line gives a few KB a second; no client waits for ten minutes until a request of a MiB has left on it.
_SLOW_BYTES = 1024 * 1024
_SLOW_BYTES_PER_MS = 2
_LARGE_BYTES_PER_MS = 1024
# While others wait for memory for so long, those who hold it must be quick.
_PATIENCE_MS = 5_000
_PRESSED_GRACE_MS = 10_000


def capacity_bytes(configured_bytes: int, memory_bytes: int | None) -> int:
    """The budget: the configured one, or, with Kafka's default of -1, a share of the machine's memory."""
    if configured_bytes > 0:
        return configured_bytes
    if memory_bytes is None:
        return _MAX_CAPACITY_BYTES
    return min(_MAX_CAPACITY_BYTES, max(_MIN_CAPACITY_BYTES, memory_bytes // _SHARE))


def stall_ms(idle_ms: int, *, pressed: bool) -> int:
    """The time for which a frame may make no progress."""
    grace_ms = _PRESSED_GRACE_MS if pressed else GRACE_MS
    return grace_ms if idle_ms < 0 else min(grace_ms, idle_ms)


def allowed_ms(length: int, idle_ms: int, *, pressed: bool) -> int:
    """The time limit of a frame of `length` bytes, from its first byte to its last."""
    grace_ms = _PRESSED_GRACE_MS if pressed else GRACE_MS
    if idle_ms >= 0:
        grace_ms = min(grace_ms, _GRACE_IDLES * idle_ms)
    slow_ms = 0 if pressed else min(length, _SLOW_BYTES) // _SLOW_BYTES_PER_MS
    return grace_ms + slow_ms + length // _LARGE_BYTES_PER_MS


class MemoryWaiter(Protocol):
    """A connection that waits for memory."""

    def memory_granted(self, size_bytes: int) -> None:
        """The memory that it waited for is reserved for it."""
        ...


class _Lane:
    """One half of the budget."""

    __slots__ = ("_turns", "limit_bytes", "pressed", "used_bytes", "waiting")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        # Since when each has waited; None before the first `update_pressure`.
        self.waiting: dict[MemoryWaiter, int | None] = {}
        self.pressed = False
        # By address, the one whose turn it is first: sizes in the order of arrival.
        self._turns: dict[str, dict[MemoryWaiter, int]] = {}

    def fits(self, size_bytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + size_bytes <= self.limit_bytes

    def wait(self, waiter: MemoryWaiter, address: str, size_bytes: int) -> None:
        self.waiting[waiter] = None
        self._turns.setdefault(address, {})[waiter] = size_bytes

    def remove(self, waiter: MemoryWaiter, address: str) -> None:
        del self.waiting[waiter], self._turns[address][waiter]
        if not self._turns[address]:
            del self._turns[address]

    def grant_next(self) -> tuple[MemoryWaiter, int] | None:
        """Grant memory to the first in line, if it fits, and move its address to the end of the line.

        Returns:
            The waiter and the size of its frame; None if nothing was granted.
        """
        if not self._turns:
            return None
        address, waiting = next(iter(self._turns.items()))
        waiter, size_bytes = next(iter(waiting.items()))
        if not self.fits(size_bytes):
            return None  # others do not overtake it, or the largest would never have their turn
        self.remove(waiter, address)
        if waiting:
            del self._turns[address]
            self._turns[address] = waiting
        self.used_bytes += size_bytes
        return waiter, size_bytes

    def update_pressure(self, now_ms: int, patience_ms: int) -> None:
        since = {waiter: now_ms if since_ms is None else since_ms for waiter, since_ms in self.waiting.items()}
        self.waiting.update(since)
        self.pressed = any(now_ms - since_ms >= patience_ms for since_ms in since.values())


class RequestMemory:
    """The budget of a node."""

    __slots__ = ("_ahead_bytes", "_lanes", "capacity_bytes", "is_short")

    def __init__(self, capacity_bytes: int = _MAX_CAPACITY_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        # Asked before every read, so it is kept.
        self.is_short = False
        self._lanes = (_Lane(capacity_bytes // 2), _Lane(capacity_bytes // 2))
        self._ahead_bytes = 0

    @property
    def held_bytes(self) -> int:
        """The bytes that are reserved or were read ahead."""
        return sum(lane.used_bytes for lane in self._lanes) + self._ahead_bytes

    @property
    def waiting_count(self) -> int:
        """Connections whose frame waits for memory."""
        return sum(len(lane.waiting) for lane in self._lanes)

    def reserve(self, waiter: MemoryWaiter, size_bytes: int, address: str) -> bool:
        """Reserve memory for a frame now, or queue for it: then `memory_granted` is called once.

        Args:
            address: the host that sends it.
        """
        lane = self._lane(size_bytes)
        if waiter in lane.waiting:
            return False
        if lane.waiting or not lane.fits(size_bytes):
            lane.wait(waiter, address, size_bytes)
            self.is_short = True
            return False
        lane.used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Release the memory of a frame that is handled or will not be received."""
        lane = self._lane(size_bytes)
        lane.used_bytes -= size_bytes
        self._grant(lane)

    def cancel_wait(self, waiter: MemoryWaiter, address: str) -> None:
        """Remove a connection that has ended from the line, whether it waits or not."""
        for lane in self._lanes:
            if waiter in lane.waiting:
                lane.remove(waiter, address)
                self._grant(lane)

    def read_ahead(self, size_bytes: int) -> None:
        """Add bytes that were read before their turn; negative when they no longer wait."""
        self._ahead_bytes += size_bytes
        self._update_is_short()

    def update_pressure(self, now_ms: int, idle_ms: int) -> None:
        """Update whether frames have waited too long; called about once a second."""
        patience_ms = _PATIENCE_MS if idle_ms < 0 else min(_PATIENCE_MS, idle_ms)
        for lane in self._lanes:
            lane.update_pressure(now_ms, patience_ms)

    def is_pressed(self, size_bytes: int) -> bool:
        """Whether other frames have waited long for the memory that a frame of this size holds."""
        return size_bytes > FREE_BYTES and self._lane(size_bytes).pressed

    def _lane(self, size_bytes: int) -> _Lane:
        return self._lanes[size_bytes > LARGE_BYTES]

    def _grant(self, lane: _Lane) -> None:
        while (granted := lane.grant_next()) is not None:
            waiter, size_bytes = granted
            waiter.memory_granted(size_bytes)
        self._update_is_short()

    def _update_is_short(self) -> None:
        self.is_short = bool(self.waiting_count) or self._ahead_bytes * _AHEAD_SHARE >= self.capacity_bytes
