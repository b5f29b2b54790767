"""A Fetch that waits for min_bytes: an append or its deadline wakes it; no timer scans.

It reads all partitions again when it wakes, so that no file stays open during the wait. Source: Kafka DelayedFetch.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.common.turns import in_turns
from odradek.replica.waiters import DataWait
from odradek.server.pending_response import PendingResponse

if TYPE_CHECKING:
    from odradek.server.context import BrokerServices
    from odradek.server.handlers.fetch import PendingFetch


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
        wait = _wait_for_data(self._broker, self._fetch)
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


async def read_until_satisfied(broker: BrokerServices, fetch: PendingFetch) -> None:
    """Wait and read again, in turns of the event loop, until a Fetch of very many partitions can be answered.

    Data may come to a partition while others are read: as Kafka does, all are read once more when the wait has begun.
    The connection begins no other request meanwhile.
    """
    broker.replicas.parked_fetch_count += 1
    try:
        while not fetch.is_satisfied() and not fetch.is_late():
            wait = _wait_for_data(broker, fetch)
            try:
                await in_turns(fetch.read_steps())
                if fetch.is_satisfied():
                    return
                await wait.future
            finally:
                wait.wake()
            await in_turns(fetch.read_steps())
    finally:
        broker.replicas.parked_fetch_count -= 1


def _wait_for_data(broker: BrokerServices, fetch: PendingFetch) -> DataWait:
    fetch.responses.clear()  # keep no file open during the wait
    return DataWait(
        fetch.partitions,
        missing_bytes=fetch.missing_bytes,
        timeout_ms=max(0, fetch.deadline_ms - broker.clock.monotonic_ms()),
        replica=fetch.is_follower,
        committed_only=fetch.reads_committed,
        wakes_on_high_watermark=fetch.wakes_on_high_watermark,
    )
