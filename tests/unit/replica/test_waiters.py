"""Waits for offsets and for bytes end by progress, by time, or with the leader epoch; in order, and once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.replica.waiters import DataWait, OffsetWaiters

SOON_MS, LATE_MS = 50, 60_000


class Source:
    """The attribute of a partition that a long poll uses."""

    def __init__(self) -> None:
        self.data_waits: dict[DataWait, None] = {}


class TestOffsets:
    async def test_all_at_or_below_the_mark_are_released(self) -> None:
        waiters = OffsetWaiters()
        futures = {offset: waiters.wait(offset) for offset in (9, 3, 7, 5, 7)}
        twice = waiters.wait(7)
        waiters.advance_to(2)
        assert not any(future.done() for future in futures.values())
        waiters.advance_to(7)
        assert {offset for offset, future in futures.items() if future.done()} == {3, 5, 7}
        assert twice.done()
        assert len(waiters) == 1

    async def test_in_the_order_of_offsets_and_of_asking(self) -> None:
        waiters = OffsetWaiters()
        order: list[str] = []

        def note(name: str) -> Callable[[object], None]:
            return lambda _: order.append(name)

        for name, offset in (("c", 5), ("a", 2), ("d", 5), ("b", 3)):
            waiters.wait(offset).add_done_callback(note(name))
        waiters.advance_to(10)
        await asyncio.sleep(0)
        assert order == ["a", "b", "c", "d"]

    async def test_a_leader_epoch_that_ends_fails_all(self) -> None:
        waiters = OffsetWaiters()
        futures = [waiters.wait(offset) for offset in (1, 2)]
        gone = waiters.wait(3)
        gone.cancel()
        waiters.fail(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for future in futures:
            with pytest.raises(ApiError, match="NOT_LEADER"):
                await future
        assert len(waiters) == 0

    async def test_a_cancelled_wait_for_an_offset_is_skipped(self) -> None:
        waiters = OffsetWaiters()
        waiters.wait(1).cancel()
        kept = waiters.wait(2)
        waiters.advance_to(2)
        assert kept.done()


class TestData:
    async def test_enough_bytes_of_any_source_end_it(self) -> None:
        one, two = Source(), Source()
        wait = DataWait([one, two], missing_bytes=100, timeout_ms=LATE_MS)
        for source in (one, two):
            assert list(source.data_waits) == [wait]
        wait.bytes_available(60)
        assert not wait.future.done()
        wait.bytes_available(40)
        assert wait.future.done()
        await asyncio.sleep(0)
        assert not one.data_waits
        assert not two.data_waits, "it leaves every source"

    async def test_time_ends_it(self) -> None:
        source = Source()
        started = time.monotonic()
        wait = DataWait([source], missing_bytes=1, timeout_ms=SOON_MS)
        await wait.future
        assert time.monotonic() - started >= SOON_MS / 1000 - 0.01
        assert not source.data_waits

    async def test_a_source_that_ends_wakes_it_once(self) -> None:
        source = Source()
        wait = DataWait([source], missing_bytes=100, timeout_ms=SOON_MS)
        wait.wake()
        wait.wake()
        wait.bytes_available(1000)
        await wait.future
        await asyncio.sleep(0)
        assert wait._timer.cancelled(), "nothing is set twice"
        assert not source.data_waits

    async def test_a_cancelled_wait_for_data_leaves_nothing_behind(self) -> None:
        source = Source()
        wait = DataWait([source], missing_bytes=1, timeout_ms=LATE_MS)
        wait.future.cancel()
        await asyncio.sleep(0)
        assert not source.data_waits

    async def test_one_byte_at_least_is_waited_for(self) -> None:
        wait = DataWait([], missing_bytes=-5, timeout_ms=LATE_MS)
        assert not wait.future.done()
        wait.bytes_available(1)
        assert wait.future.done()
