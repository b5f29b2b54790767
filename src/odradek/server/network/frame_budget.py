"""The cost of one connection's requests while they are received: the memory that is reserved for the current frame, the
bytes that were read ahead of their turn, and whether the frame arrives fast enough."""

from __future__ import annotations

from odradek.server.network.request_memory import MemoryWaiter, RequestMemory, allowed_ms, stall_ms


class FrameBudget:
    """One connection's part of the memory that all requests share.

    Attributes:
        reserved_bytes: for the frame that comes, until its request is begun.
    """

    __slots__ = ("_ahead_bytes", "_frames_seen", "_memory", "_watched_frame", "_watched_since_ms", "reserved_bytes")

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self.reserved_bytes = 0
        self._ahead_bytes = 0
        self._frames_seen = 0
        self._watched_frame = -1
        self._watched_since_ms = 0

    @property
    def is_short(self) -> bool:
        """Whether connections are to be read in small pieces."""
        return self._memory.is_short

    def reserve(self, waiter: MemoryWaiter, address: str, size_bytes: int) -> bool:
        """Whether there is memory for a frame; otherwise `waiter` is queued and called when there is."""
        if not self._memory.reserve(waiter, size_bytes, address):
            return False
        self.reserved_bytes = size_bytes
        return True

    def granted(self, size_bytes: int) -> None:
        """The memory that the connection waited for is reserved."""
        self.reserved_bytes = size_bytes

    def transfer(self) -> int:
        """Transfer the reserved memory to the request that now begins, and return its size; the request releases it."""
        size_bytes, self.reserved_bytes = self.reserved_bytes, 0
        return size_bytes

    def release(self, size_bytes: int) -> None:
        """Release the memory of a request that has ended."""
        self._memory.release(size_bytes)

    def read_ahead(self, size_bytes: int) -> None:
        """Count bytes that were read and have to wait for their turn."""
        self._ahead_bytes += size_bytes
        self._memory.read_ahead(size_bytes)

    def caught_up(self) -> None:
        """Clear the bytes that were read ahead: none of them waits any longer."""
        if self._ahead_bytes:
            self._memory.read_ahead(-self._ahead_bytes)
            self._ahead_bytes = 0

    def close(self, waiter: MemoryWaiter, address: str) -> None:
        """Release everything: the connection has ended."""
        self._memory.cancel_wait(waiter, address)
        self.caught_up()
        if self.reserved_bytes:
            self._memory.release(self.transfer())

    def moved_to(self, memory: RequestMemory, waiter: MemoryWaiter, address: str) -> FrameBudget:
        """The connection's budget in another memory; requests under way release what they hold of this one."""
        moved = FrameBudget(memory)
        moved.read_ahead(self._ahead_bytes)
        self.close(waiter, address)
        return moved

    # -- pace ---------------------------------------------------------------------------------------------------

    def frames_received(self) -> None:
        """Record that whole frames were received: the next bytes are of another one."""
        self._frames_seen += 1

    def slowness(self, now_ms: int, *, coming_bytes: int, last_active_ms: int, idle_ms: int) -> str:
        """Why the current frame arrives too slowly; "" if it does not. Called about once a second.

        Time counts from the first time that the frame is seen here.

        Args:
            coming_bytes: size of the frame that is read; 0 where none is, or where nothing is read for now: its time
                stops, unless it has reserved memory that others may wait for.
            last_active_ms: of the last byte.
            idle_ms: connections.max.idle.ms.
        """
        size_bytes = self.reserved_bytes or coming_bytes
        if not size_bytes:
            self._watched_frame = -1
            return ""
        if self._watched_frame != self._frames_seen:
            self._watched_frame, self._watched_since_ms = self._frames_seen, now_ms
            return ""
        is_pressed = self._memory.is_pressed(size_bytes)
        still_ms = now_ms - max(last_active_ms, self._watched_since_ms)
        if still_ms >= stall_ms(idle_ms, pressed=is_pressed):
            return f"a request of {size_bytes} bytes came to a halt {still_ms // 1000} s ago"
        came_ms = now_ms - self._watched_since_ms
        if came_ms >= allowed_ms(size_bytes, idle_ms, pressed=is_pressed):
            return f"a request of {size_bytes} bytes is not here after {came_ms // 1000} s"
        return ""
