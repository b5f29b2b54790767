"""The one way in which tests wait: ask again until something is so, with a patience that outlasts any busy machine."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, overload

T = TypeVar("T")

# A limit for hangs alone: no wait for an event that happens reaches it, even on a busy machine.
PATIENCE_S = 150.0
PAUSE_S = 0.02
SHORT_PAUSE_S = 0.005
# A connection is accepted, begun, made, refused, and lost, each in a turn of its own.
TURNS = 8


def eventually(
    condition: Callable[..., T | None], what: object = "", *, patience_s: float | None = None, pause_s: float = PAUSE_S
) -> T:
    """The result of the condition once it counts as true.

    Args:
        condition: is called again and again; a connection error counts as false.
        what: a text for the error, or a function that returns it then.
        patience_s: a limit other than that of all tests.

    Raises:
        AssertionError: it never was so.
    """
    limit_s = PATIENCE_S if patience_s is None else patience_s
    deadline = time.monotonic() + limit_s
    while True:
        last: object
        try:
            found = condition()
        except OSError as error:
            last = error
        else:
            if found:
                return found
            last = found
        if time.monotonic() >= deadline:
            raise AssertionError(_never(what, last, limit_s))
        time.sleep(pause_s)


@overload
async def eventually_async(
    condition: Callable[..., Coroutine[Any, Any, T | None]], what: object = "", *, pause_s: float = SHORT_PAUSE_S
) -> T: ...
@overload
async def eventually_async(
    condition: Callable[..., T | None], what: object = "", *, pause_s: float = SHORT_PAUSE_S
) -> T: ...
async def eventually_async(condition: Callable[..., Any], what: object = "", *, pause_s: float = SHORT_PAUSE_S) -> Any:
    """The result of the condition once it counts as true; it may have to be awaited. Raises AssertionError."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while True:
        answer = condition()
        found = await answer if inspect.isawaitable(answer) else answer
        if found:
            return found
        if loop.time() >= deadline:
            raise AssertionError(_never(what, found, PATIENCE_S))
        await asyncio.sleep(pause_s)


async def some_turns() -> None:
    """Return when what was accepted, closed or cancelled just now has ended: all of it takes some turns of the loop.

    Time does not do: a process that the system has stopped for a while finds all its timers over in one turn.
    """
    for _ in range(TURNS):
        await asyncio.sleep(0)


def _never(what: object, last: object, limit_s: float) -> str:
    said = what() if callable(what) else what
    return f"not within {limit_s:g} s: {said} (last: {last!r})"
