"""Tasks that belong together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def gather_cancelling(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run coroutines side by side until all have ended.

    Where one fails, or this is cancelled, the others are cancelled in the order in which they were given, and have
    ended when this returns. `asyncio.TaskGroup` cancels in the order of a set, which is that of the tasks' places in
    memory: two runs of one seed would part there.

    Raises:
        BaseException: what the first that failed raised.
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
