"""A pending response ends once, its end is seen at once or in the next iteration, and its waits are released."""

from __future__ import annotations

import asyncio

import pytest

from odradek.server.pending_response import PendingResponse


class Observed(PendingResponse):
    """Counts its releases and keeps its results."""

    def __init__(self) -> None:
        super().__init__()
        self.releases = 0
        self.results: list[object] = []
        self.when_ended(lambda pending: self.results.append(pending.response))

    def release(self) -> None:
        self.releases += 1


async def test_a_completed_response_is_seen_at_once_and_once() -> None:
    pending = Observed()
    pending.complete("first")
    assert pending.results == ["first"] and pending.is_ended
    pending.complete("second")
    pending.complete_soon("third")
    pending.fail(ValueError())
    pending.cancel()
    await asyncio.sleep(0)
    assert (pending.results, pending.releases, pending.error) == (["first"], 1, None)


async def test_complete_soon_is_seen_in_the_next_iteration_and_releases_now() -> None:
    pending = Observed()
    pending.complete_soon("soon")
    pending.complete("now")
    assert (pending.results, pending.releases, pending.is_ended) == ([], 1, True)
    await asyncio.sleep(0)
    assert pending.results == ["soon"]


async def test_a_cancelled_one_has_no_response() -> None:
    pending = Observed()
    pending.cancel()
    pending.complete("late")
    await asyncio.sleep(0)
    assert (pending.results, pending.releases, pending.response) == ([], 1, None)


async def test_a_coroutine_awaits_the_response_or_the_error() -> None:
    async def awaited(pending: PendingResponse) -> object:
        return await pending

    already, completed, failed, left = (PendingResponse() for _ in range(4))
    already.complete("was here")
    assert await awaited(already) == "was here"
    tasks = [asyncio.ensure_future(awaited(pending)) for pending in (completed, failed, left)]
    await asyncio.sleep(0)
    completed.complete("here")
    failed.fail(ValueError("no"))
    tasks[2].cancel()
    assert await tasks[0] == "here"
    with pytest.raises(ValueError, match="no"):
        await tasks[1]
    with pytest.raises(asyncio.CancelledError):
        await tasks[2]
    assert left.is_ended, "the wait ends with the task"
