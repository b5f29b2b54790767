"""A loop that is held up is seen to be late."""

from __future__ import annotations

import time

from odradek.common.metrics import Family
from odradek.common.spread import NS_PER_S
from odradek.server.background.loop_watch import INTERVAL_S, LoopWatch
from tests.support.waiting import eventually_async


def hold_up() -> None:
    """The loop does nothing else meanwhile."""
    time.sleep(3 * INTERVAL_S)


def seen(watch: LoopWatch) -> dict[str, Family]:
    return {family.name: family for family in watch.families()}


def looks(watch: LoopWatch) -> int:
    return seen(watch)["odradek_loop_late_seconds"].histograms[0].buckets[-1][1]


async def test_work_that_holds_the_loop_is_seen() -> None:
    watch = LoopWatch(time.perf_counter_ns, time.thread_time_ns, is_shown=True)
    watch.start()
    try:
        hold_up()
        late = await eventually_async(lambda: seen(watch)["odradek_loop_max_late_seconds"].samples[0].value)
        # Planned before the sleep began, for one interval later.
        assert late > INTERVAL_S
        await eventually_async(lambda: looks(watch) >= 2)
        assert seen(watch)["odradek_loop_cpu_seconds"].samples[0].value > 0
    finally:
        await watch.stop()


async def test_no_look_is_taken_for_a_metric_that_is_not_shown() -> None:
    watch = LoopWatch(time.perf_counter_ns, time.thread_time_ns, is_shown=False)
    watch.start()
    hold_up()
    await watch.stop()
    assert looks(watch) == 0


async def test_the_largest_outlasts_scrapes_and_expires() -> None:
    now_s = [0]
    watch = LoopWatch(lambda: now_s[0] * NS_PER_S, time.thread_time_ns, is_shown=True)

    async def late_after(seconds: int) -> float:
        """The value of the metric after the loop was late by this many seconds."""
        before = looks(watch)
        now_s[0] += seconds
        await eventually_async(lambda: looks(watch) > before)
        return seen(watch)["odradek_loop_max_late_seconds"].samples[0].value

    watch.start()
    try:
        shown = await late_after(100)
        assert 99 < shown <= 100
        assert await late_after(0) == shown, "a scrape changes nothing"
        assert await late_after(70) == shown, "of the minute before"
        assert 69 < await late_after(65) <= 70
    finally:
        await watch.stop()
