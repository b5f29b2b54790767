"""The response of a request that waits: for acknowledgements, or for data.

A handler that is a plain function returns a `PendingResponse` if it has to wait. Callbacks of a future run in the next
iteration of the event loop; the callback of a `PendingResponse` runs at once, so that the response leaves an iteration
earlier. Therefore `complete` and `fail` are called where nothing else is under way: by a timer or by the callback of a
future. Code amid another request calls `complete_soon`. Source: Kafka DelayedOperation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any


class PendingResponse:
    """A response to come. It ends once: it is completed, fails, or is cancelled because the client has disconnected.

    Attributes:
        is_ended: whether it ended, or will in the next iteration.
        response: None until then, and if it failed or was cancelled.
        error: why it failed.
    """

    __slots__ = ("_on_end", "error", "is_ended", "response")

    def __init__(self) -> None:
        self.is_ended = False
        self.response: Any = None
        self.error: Exception | None = None
        self._on_end: Callable[[PendingResponse], None] | None = None

    def when_ended(self, on_end: Callable[[PendingResponse], None]) -> None:
        """Call `on_end` when it is completed or fails, which is later: a handler has just returned this."""
        assert self._on_end is None, "one callback"
        self._on_end = on_end

    def complete(self, response: Any) -> None:
        """End with a response, which is sent now."""
        if not self.is_ended:
            self.response = response
            self._end()
            self._call_back()

    def complete_soon(self, response: Any) -> None:
        """End with a response, which is sent in the next iteration of the event loop."""
        if not self.is_ended:
            self.response = response
            self._end()
            asyncio.get_running_loop().call_soon(self._call_back)

    def fail(self, error: Exception) -> None:
        """End with an error, for which the client gets a response now."""
        if not self.is_ended:
            self.error = error
            self._end()
            self._call_back()

    def cancel(self) -> None:
        """End without a response, and without a callback."""
        if not self.is_ended:
            self._on_end = None
            self._end()

    def release(self) -> None:
        """Release the resources of a subclass's wait; called once, at the end."""

    def _end(self) -> None:
        self.is_ended = True
        self.release()

    def _call_back(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the response in a handler that is a coroutine; raises the error."""
        if not self.is_ended:
            yield from self._until_ended()
        if self.error is not None:
            raise self.error
        return self.response

    def _until_ended(self) -> Generator[Any, None, None]:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_ended(lambda _: None if ended.done() else ended.set_result(None))
        try:
            yield from ended
        except asyncio.CancelledError:
            self.cancel()
            raise
