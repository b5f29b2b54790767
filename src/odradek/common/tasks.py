"""Tasks that belong together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def gather_cancelling(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run coroutines concurrently until all have ended.

    If one fails, or this is cancelled, the others are cancelled in the given order, and have ended when this returns.
    `asyncio.TaskGroup` cancels in the order of a set, which depends on memory addresses: two runs of one seed would
    differ.

    Raises:
        BaseException: the error of the first coroutine that failed.
    """
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(each) for each in coroutines]
    try:
        await asyncio.gather(*tasks)
    except (Exception, asyncio.CancelledError):
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
