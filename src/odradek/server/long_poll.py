"""A Fetch that waits for min_bytes: an append or its deadline wakes it; no timer scans.

It reads all partitions again when it wakes, so that no file stays open during the wait. Source: Kafka DelayedFetch.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.replica.waiters import DataWait

if TYPE_CHECKING:
    from odradek.protocol.messages.fetch_response import FetchResponse
    from odradek.server.context import BrokerServices
    from odradek.server.handlers.fetch import PendingFetch


class LongPoll:
    """One Fetch that waits for more data."""

    __slots__ = ("_broker", "_done", "_fetch", "_session", "_wait")

    def __init__(self, broker: BrokerServices, fetch: PendingFetch) -> None:
        self._broker = broker
        self._fetch = fetch
        self._session = fetch.session
        self._done: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        self._wait: DataWait | None = None

    def begin(self) -> asyncio.Future[FetchResponse]:
        """Return a future of the response; it is cancelled if the client disconnects."""
        self._broker.replicas.parked_fetch_count += 1
        self._done.add_done_callback(self._ended)
        if self._session is not None:
            self._session.park(self._respond_now)
        self._wait_more()
        return self._done

    def _wait_more(self) -> None:
        fetch = self._fetch
        fetch.responses.clear()  # keep no file open during the wait
        self._wait = DataWait(
            fetch.partitions,
            missing_bytes=fetch.missing_bytes,
            timeout_ms=max(0, fetch.deadline_ms - self._broker.clock.monotonic_ms()),
            replica=fetch.is_follower,
            committed_only=fetch.reads_committed,
            wakes_on_high_watermark=fetch.wakes_on_high_watermark,
        )
        self._wait.future.add_done_callback(self._woken)

    def _woken(self, _: asyncio.Future[None]) -> None:
        if self._done.done():
            return
        try:
            self._fetch.read()
            is_late = self._broker.clock.monotonic_ms() >= self._fetch.deadline_ms
            if self._fetch.is_satisfied() or is_late:
                self._done.set_result(self._fetch.response())
            else:
                self._wait_more()
        except Exception as error:
            self._done.set_exception(error)

    def _respond_now(self) -> None:
        """Respond with the data that exists: the client has sent its next request."""
        if not self._done.done():
            self._fetch.read()
            self._done.set_result(self._fetch.response())

    def _ended(self, _: asyncio.Future[FetchResponse]) -> None:
        self._broker.replicas.parked_fetch_count -= 1
        if self._session is not None:
            self._session.unpark(self._respond_now)
        if self._wait is not None:
            self._wait.wake()
