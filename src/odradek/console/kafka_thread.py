"""The thread that speaks to clusters, with an event loop of its own.

Answers of a large cluster take seconds to decode; in the loop that serves pages, no page would move meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class KafkaThread:
    """Runs coroutines on a loop beside the one of the pages. Use it as a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="kafka", daemon=True)

    def __enter__(self) -> KafkaThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work on the thread's loop, and return its result; it is cancelled with the caller."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def start(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Start work that runs until the thread ends; the future has its error."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)
