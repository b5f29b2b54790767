"""How many bytes of requests may be under way at one time, over all connections, and how long one may take to come.

A frame that does not come in one read reserves the whole size that it announces before the rest of it is read. What has
reserved can always be received to its end, so no two frames wait for each other; what finds no room waits its turn,
while its connection is not read: addresses take turns, and those of one address go by arrival. Small frames and large
ones have half of the budget each: a crowd of large ones does not keep out what most clients send. A frame
larger than its half is received alone in it.

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
# What comes before logins has a budget of its own, smaller by so much; a login of 4096 bytes needs none of it.
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
    """The budget: what was configured, or, with Kafka's default of -1, a share of the memory that there is."""
    if configured_bytes > 0:
        return configured_bytes
    if memory_bytes is None:
        return _MAX_CAPACITY_BYTES
    return min(_MAX_CAPACITY_BYTES, max(_MIN_CAPACITY_BYTES, memory_bytes // _SHARE))


def stall_ms(idle_ms: int, *, pressed: bool) -> int:
    """How long a frame may be without any progress."""
    grace_ms = _PRESSED_GRACE_MS if pressed else GRACE_MS
    return grace_ms if idle_ms < 0 else min(grace_ms, idle_ms)


def allowed_ms(length: int, idle_ms: int, *, pressed: bool) -> int:
    """How long a frame of `length` bytes may take from its first byte to its last."""
    grace_ms = _PRESSED_GRACE_MS if pressed else GRACE_MS
    if idle_ms >= 0:
        grace_ms = min(grace_ms, _GRACE_IDLES * idle_ms)
    slow_ms = 0 if pressed else min(length, _SLOW_BYTES) // _SLOW_BYTES_PER_MS
    return grace_ms + slow_ms + length // _LARGE_BYTES_PER_MS


class Taker(Protocol):
    """A connection that waits for memory."""

    def memory_granted(self, size_bytes: int) -> None:
        """What it asked for is its own now."""
        ...


class _Lane:
    """One half of the budget."""

    __slots__ = ("_turns", "limit_bytes", "pressed", "used_bytes", "waiting")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        # Since when each has waited, as far as `note_waits` knows.
        self.waiting: dict[Taker, int | None] = {}
        self.pressed = False
        # By address, the one whose turn it is first: sizes in the order of arrival.
        self._turns: dict[str, dict[Taker, int]] = {}

    def fits(self, size_bytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + size_bytes <= self.limit_bytes

    def wait(self, taker: Taker, address: str, size_bytes: int) -> None:
        self.waiting[taker] = None
        self._turns.setdefault(address, {})[taker] = size_bytes

    def leave(self, taker: Taker, address: str) -> None:
        del self.waiting[taker], self._turns[address][taker]
        if not self._turns[address]:
            del self._turns[address]

    def take_next(self) -> tuple[Taker, int] | None:
        """Whose turn it is, with its size, if there is room for it; its address has the last turn then."""
        if not self._turns:
            return None
        address, waiting = next(iter(self._turns.items()))
        taker, size_bytes = next(iter(waiting.items()))
        if not self.fits(size_bytes):
            return None  # others do not overtake it, or the largest would never have their turn
        self.leave(taker, address)
        if waiting:
            del self._turns[address]
            self._turns[address] = waiting
        self.used_bytes += size_bytes
        return taker, size_bytes

    def note_waits(self, now_ms: int, patience_ms: int) -> None:
        since = {taker: now_ms if since_ms is None else since_ms for taker, since_ms in self.waiting.items()}
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
        """What is reserved and what was read ahead."""
        return sum(lane.used_bytes for lane in self._lanes) + self._ahead_bytes

    @property
    def waiting_count(self) -> int:
        """Connections whose frame waits for memory."""
        return sum(len(lane.waiting) for lane in self._lanes)

    def reserve(self, taker: Taker, size_bytes: int, address: str) -> bool:
        """Take memory for a frame now, or wait in line for it: then `memory_granted` follows, once.

        Args:
            address: the host that sends it.
        """
        lane = self._lane(size_bytes)
        if taker in lane.waiting:
            return False
        if lane.waiting or not lane.fits(size_bytes):
            lane.wait(taker, address, size_bytes)
            self.is_short = True
            return False
        lane.used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """A frame that had reserved is done with, or will not come."""
        lane = self._lane(size_bytes)
        lane.used_bytes -= size_bytes
        self._grant(lane)

    def cancel_wait(self, taker: Taker, address: str) -> None:
        """A connection has ended, whether it waits or not."""
        for lane in self._lanes:
            if taker in lane.waiting:
                lane.leave(taker, address)
                self._grant(lane)

    def read_ahead(self, size_bytes: int) -> None:
        """So many bytes were read before their turn; less than nothing where that is over."""
        self._ahead_bytes += size_bytes
        self._update_is_short()

    def note_waits(self, now_ms: int, idle_ms: int) -> None:
        """Look at who waits, about once a second."""
        patience_ms = _PATIENCE_MS if idle_ms < 0 else min(_PATIENCE_MS, idle_ms)
        for lane in self._lanes:
            lane.note_waits(now_ms, patience_ms)

    def is_pressed(self, size_bytes: int) -> bool:
        """Whether others have waited long for what a frame of this size holds."""
        return size_bytes > FREE_BYTES and self._lane(size_bytes).pressed

    def _lane(self, size_bytes: int) -> _Lane:
        return self._lanes[size_bytes > LARGE_BYTES]

    def _grant(self, lane: _Lane) -> None:
        while (granted := lane.take_next()) is not None:
            taker, size_bytes = granted
            taker.memory_granted(size_bytes)
        self._update_is_short()

    def _update_is_short(self) -> None:
        self.is_short = bool(self.waiting_count) or self._ahead_bytes * _AHEAD_SHARE >= self.capacity_bytes
