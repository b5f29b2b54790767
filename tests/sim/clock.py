"""The clocks of a simulated host: monotonic time is the loop's; the wall clock jumps, and may drift."""

from __future__ import annotations

from tests.sim.loop import SimLoop

# 2026-01-01T00:00:00Z: any fixed moment serves, and this one makes timestamps readable in a trace.
START_OF_TIME_MS = 1_767_225_600_000


class SimClock:
    """Monotonic time never goes back; the wall clock is wrong by `skew_ms` and runs fast or slow by `drift_ppm`."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._start_s = loop.time()
        self.skew_ms = 0
        self.drift_ppm = 0

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def now_ms(self) -> int:
        elapsed_ms = (self._loop.time() - self._start_s) * 1000
        return START_OF_TIME_MS + self.skew_ms + int(elapsed_ms * (1 + self.drift_ppm / 1_000_000))

    def drift(self, ppm: int) -> None:
        """Let the wall clock run fast (or slow, below 0) by so many millionths from here on, without a jump."""
        now_ms = self.now_ms()
        self.drift_ppm = ppm
        self.skew_ms += now_ms - self.now_ms()

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forward or back, as an operator or a time server does."""
        self.skew_ms += by_ms
