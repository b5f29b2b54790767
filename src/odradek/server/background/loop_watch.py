"""Measures the delay of the event loop, which all requests of a node share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from odradek.common.metrics import Family
from odradek.common.ports import Timer
from odradek.common.spread import NS_PER_S, durations

INTERVAL_S = 0.1
# The largest is shown for at least so long, however many scrape, and how often.
KEPT_S = 60


class LoopWatch:
    """Schedules a call, and measures how late it comes."""

    def __init__(self, timer: Timer, cpu_timer: Timer, *, is_shown: bool) -> None:
        """`is_shown`: whether anything shows the result; `cpu_timer`: the processor time of the loop's thread."""
        self._timer = timer
        self._cpu_timer = cpu_timer
        self._is_shown = is_shown
        self._late = durations()
        self._max_ns = self._max_before_ns = 0  # of this minute and of the one before
        self._minute_since_ns = timer()
        self._planned_ns = 0
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start, if the metrics are served."""
        if self._is_shown:
            self._plan()

    async def stop(self) -> None:
        """End it."""
        if self._next is not None:
            self._next.cancel()

    def families(self) -> Iterator[Family]:
        """The measured delays."""
        yield Family.counter(
            "odradek_loop_cpu_seconds",
            "Processor time of the thread of the event loop; its rate is how busy the loop is, 0 to 1.",
            self._cpu_timer() / NS_PER_S,
        )
        yield Family(
            "odradek_loop_late_seconds",
            "histogram",
            "Delay of the event loop, sampled ten times a second.",
            histograms=(self._late.histogram(),),
        )
        yield Family.gauge(
            "odradek_loop_max_late_seconds",
            "By how much the event loop was late at most in this minute and the one before.",
            max(self._max_ns, self._max_before_ns) / NS_PER_S,
        )

    def _plan(self) -> None:
        self._planned_ns = self._timer() + int(INTERVAL_S * NS_PER_S)
        self._next = asyncio.get_running_loop().call_later(INTERVAL_S, self._measure)

    def _measure(self) -> None:
        now_ns = self._timer()
        late_ns = max(0, now_ns - self._planned_ns)
        self._late.add(late_ns)
        if now_ns - self._minute_since_ns >= KEPT_S * NS_PER_S:
            self._max_before_ns, self._max_ns, self._minute_since_ns = self._max_ns, 0, now_ns
        self._max_ns = max(self._max_ns, late_ns)
        if self._late.is_due:
            self._late.fold()
        self._plan()
