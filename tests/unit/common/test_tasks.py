"""Tasks that belong together end together, and in order."""

from __future__ import annotations

import asyncio

import pytest

from odradek.common.tasks import gather_cancelling

MANY = 50


class Members:
    """Tasks that wait for ever and record their cancellation."""

    def __init__(self) -> None:
        self._begun = asyncio.Barrier(MANY + 1)
        self.ended: list[int] = []

    async def wait(self, number: int) -> None:
        await self._begun.wait()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.ended.append(number)

    async def all_begun(self) -> None:
        await self._begun.wait()
        await asyncio.sleep(0)


async def test_cancellation_cancels_all_tasks_in_order() -> None:
    members = Members()
    task = asyncio.create_task(gather_cancelling(*map(members.wait, range(MANY))))
    await members.all_begun()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert members.ended == list(range(MANY))


async def test_where_one_fails_the_others_end_first() -> None:
    members = Members()

    async def fail() -> None:
        await members.all_begun()
        raise ValueError("the first")

    with pytest.raises(ValueError, match="the first"):
        await gather_cancelling(*map(members.wait, range(MANY)), fail())
    assert members.ended == list(range(MANY))


async def test_all_are_waited_for() -> None:
    done: list[int] = []

    async def take(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        done.append(turns)

    await gather_cancelling(take(3), take(1), take(2))
    assert done == [1, 2, 3]
