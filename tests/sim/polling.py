"""Waiting in the box for a condition without a notification: checked again and again, as a client does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from odradek.common.errors import OdradekError
from tests.sim.clients import RETRY_S


async def until(holds: Callable[[], Awaitable[object] | object], *, pause_s: float = RETRY_S) -> None:
    """Return as soon as the answer is yes; it may have to be awaited."""
    while True:
        answer = holds()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        await asyncio.sleep(pause_s)


async def surely(work: Callable[[], Awaitable[object]]) -> None:
    """Do something until it succeeds."""
    while True:
        try:
            await work()
        except OdradekError:
            await asyncio.sleep(RETRY_S)
        else:
            return
