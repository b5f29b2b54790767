"""A Fetch that waits for min_bytes: an append or its deadline wakes it; no timer scans.

It reads all partitions again when it wakes, so that no file stays open during the wait. Source: Kafka DelayedFetch.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.replica.waiters import DataWait
from odradek.server.pending_response import PendingResponse

if TYPE_CHECKING:
    from odradek.protocol.messages.fetch_response import FetchResponse
    from odradek.server.context import BrokerServices
    from odradek.server.handlers.fetch import PendingFetch


# Long polls over all connections; beyond this number a Fetch is answered at once with the data that exists.
MAX_PARKED = 50_000


def read_or_wait(broker: BrokerServices, fetch: PendingFetch) -> FetchResponse | LongPoll:
    """Read the partitions; the response, or a long poll if there is less than min_bytes."""
    fetch.read()
    if fetch.is_satisfied() or fetch.is_late() or broker.replicas.parked_fetch_count >= MAX_PARKED:
        return fetch.response()
    return LongPoll(broker, fetch)


class LongPoll(PendingResponse):
    """One Fetch that waits for more data, until its deadline."""

    __slots__ = ("_broker", "_fetch", "_session", "_wait")

    def __init__(self, broker: BrokerServices, fetch: PendingFetch) -> None:
        super().__init__()
        self._broker = broker
        self._fetch = fetch
        self._session = fetch.session
        broker.replicas.parked_fetch_count += 1
        if self._session is not None:
            self._session.park(self._respond_now)
        self._wait = self._wait_more()

    def _wait_more(self) -> DataWait:
        wait = wait_for_data(self._broker, self._fetch)
        wait.future.add_done_callback(self._woken)
        return wait

    def _woken(self, _: asyncio.Future[None]) -> None:
        if self.is_ended:
            return
        fetch = self._fetch
        try:
            fetch.read()
            if not fetch.is_satisfied() and not fetch.is_late():
                self._wait = self._wait_more()
                return
            response = fetch.response()
        except Exception as error:
            self.fail(error)
            return
        self.complete(response)

    def _respond_now(self) -> None:
        """Respond with the data that exists, after the client's next request, which is under way."""
        if not self.is_ended:
            self._fetch.read()
            self.complete_soon(self._fetch.response())

    def release(self) -> None:
        self._broker.replicas.parked_fetch_count -= 1
        if self._session is not None:
            self._session.unpark(self._respond_now)
        self._wait.wake()


def wait_for_data(broker: BrokerServices, fetch: PendingFetch) -> DataWait:
    """The wait for what a Fetch still lacks; nothing that was read is kept."""
    fetch.responses.clear()  # keep no file open during the wait
    return DataWait(
        fetch.partitions,
        missing_bytes=fetch.missing_bytes,
        timeout_ms=max(0, fetch.deadline_ms - broker.clock.monotonic_ms()),
        replica=fetch.is_follower,
        committed_only=fetch.reads_committed,
        wakes_on_high_watermark=fetch.wakes_on_high_watermark,
    )
