"""What a client did per second, in windows as Kafka counts, and how long it must wait to come back to its quota."""

from __future__ import annotations

from collections import deque


class WindowedRate:
    """A rate over `quota.window.num` windows of `quota.window.size.seconds`, the last of them being filled."""

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        # Start and amount of each window, oldest first.
        self._windows: deque[tuple[int, float]] = deque()

    def add(self, amount: float, now_ms: int) -> None:
        """Count what was done now."""
        self._forget(now_ms)
        if self._windows and now_ms - self._windows[-1][0] < self._window_ms:
            start_ms, before = self._windows.pop()
            self._windows.append((start_ms, before + amount))
        else:
            self._windows.append((now_ms, amount))

    def per_second(self, now_ms: int) -> float:
        """The rate. Time before the first window counts, too, so that a short burst is no high rate."""
        return self._total(now_ms) * 1000 / self._elapsed_ms(now_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to wait, doing nothing, until the rate is `limit`; 0 where it is not above. Kafka's formula.

        Of a limit of 0: until all that was done is forgotten.
        """
        elapsed_ms = self._elapsed_ms(now_ms)
        rate = self._total(now_ms) * 1000 / elapsed_ms
        if limit <= 0:
            return self._window_count * self._window_ms if rate > 0 else 0
        return round((rate - limit) / limit * elapsed_ms) if rate > limit else 0

    def _total(self, now_ms: int) -> float:
        self._forget(now_ms)
        return sum(amount for _, amount in self._windows)

    def _elapsed_ms(self, now_ms: int) -> int:
        self._forget(now_ms)
        elapsed_ms = now_ms - self._windows[0][0] if self._windows else 0
        missing = self._window_count - 1 - elapsed_ms // self._window_ms
        return max(1, elapsed_ms + max(0, missing) * self._window_ms)

    def _forget(self, now_ms: int) -> None:
        kept_ms = self._window_count * self._window_ms
        while self._windows and now_ms - self._windows[0][0] >= kept_ms:
            self._windows.popleft()
