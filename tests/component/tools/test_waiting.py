"""`eventually` waits for a condition, and reports its last result if it fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.support import waiting
from tests.support.waiting import eventually, eventually_async


def test_eventually_returns_the_result_over_broken_connections() -> None:
    answers: Iterator[int | OSError] = iter([0, ConnectionRefusedError(), 7])

    def ask() -> int:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert eventually(ask) == 7
    with pytest.raises(KeyError):
        eventually(lambda: dict[str, int]()["other errors are errors"])


def test_a_failed_wait_names_the_condition_and_its_last_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.05)
    with pytest.raises(AssertionError, match=r"not within 0\.05 s: a cat \(last: \[\]\)"):
        eventually(list, "a cat")
    with pytest.raises(AssertionError, match="a dog"):
        eventually(lambda: False, lambda: "a dog", patience_s=0.01)


async def test_the_loop_goes_on_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    come = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.02, come.set_result, 3)
    assert await eventually_async(come.done)

    async def later() -> float:
        return time.monotonic()

    assert await eventually_async(later)
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.02)
    with pytest.raises(AssertionError, match="never so"):
        await eventually_async(lambda: 0, "never so")
