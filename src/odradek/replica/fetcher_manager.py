"""Fetches the partitions that this broker follows: one task and connection for each leader and fetcher number.

This module does the I/O; `fetcher.Fetcher` builds requests and handles responses. A task runs as long as its fetcher
has partitions. Partitions that are added while a Fetch waits at the leader are requested at once by a second request of
the same session: our leaders then respond to the waiting one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from odradek.client.connection import Connection, RequestTimeoutError, connect
from odradek.client.security import PLAINTEXT, OutgoingSecurity
from odradek.common.buggify import buggify
from odradek.common.errors import OdradekError, StorageError
from odradek.common.log_lines import get_logger
from odradek.common.token_bucket import TokenBucket
from odradek.protocol.api_key import ApiKey
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.replica.fetcher import EARLIEST_LOCAL, LATEST, Fetcher, PartitionFetchState

if TYPE_CHECKING:
    from pathlib import Path

    from odradek.common.ports import Clock, Network
    from odradek.protocol.declare import Message
    from odradek.replica.config import FetcherConfig
    from odradek.replica.fetch_session_handler import PartitionKey
    from odradek.replica.partition import Partition

# This version has topic ids and the broker epoch of the follower; all leaders with our metadata support it.
FIRST_VERSION = 15
CONNECT_TIMEOUT_S = 5.0
MAX_QUOTA_PAUSE_MS = 1_000
_log = get_logger("replica.fetch")

# (host, port) of a broker by its id, None if it is unknown or fenced.
AddressOf = Callable[[int], tuple[str, int] | None]


class ReplicaFetcherManager:
    """All that this broker fetches."""

    def __init__(
        self,
        config: FetcherConfig,
        network: Network,
        clock: Clock,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        address_of: AddressOf,
        on_storage_failed: Callable[[StorageError], None],
        on_reached: Callable[[int], None] = lambda leader_id: None,
        on_lost: Callable[[int], None] = lambda leader_id: None,
        full_dirs: Callable[[], Collection[Path]] = tuple,
        security: OutgoingSecurity = PLAINTEXT,
    ) -> None:
        """
        Args:
            broker_epoch: of this broker's registration, -1 before there is one.
            address_of: the address of another broker for requests of brokers.
            on_storage_failed: called when a disk failed under a follower.
            full_dirs: the log directories without space.
            on_reached, on_lost: called when a leader has answered on a new connection, and when one was ended by
                the leader or the network.
            security: of the inter-broker listener.
        """
        self._config = config
        self._network = network
        self._security = security
        self._clock = clock
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self._address_of = address_of
        self._on_storage_failed = on_storage_failed
        self._full_dirs = full_dirs
        self._on_reached = on_reached
        self._on_lost = on_lost
        self._tasks: dict[tuple[int, int], _FetchTask] = {}
        self._homes: dict[PartitionKey, tuple[int, int]] = {}
        self._ending: dict[asyncio.Task[None], None] = {}
        self._closing = False
        self.quota = TokenBucket()
        self.appended_bytes = 0
        self.failed_count = 0

    def __iter__(self) -> Iterator[PartitionFetchState]:
        return iter([each for task in self._tasks.values() for each in task.fetcher])

    def add_partition(self, partition: Partition) -> None:
        """Fetch a partition from its leader of now, in place of any other."""
        key = (partition.topic_id, partition.partition_id)
        home = (partition.leader_id, _fetcher_number(key, self._config.fetcher_count))
        self._remove_partition(key, unless=home)
        if self._closing:
            return
        self._homes[key] = home
        task = self._tasks.get(home)
        if task is None:
            fetcher = Fetcher(self._config, broker_id=self.broker_id, full_dirs=self._full_dirs)
            task = self._tasks[home] = _FetchTask(self, home[0], fetcher)
        task.fetcher.add_partition(partition)
        task.partition_added(partition)

    def remove_partition(self, partition: Partition) -> None:
        """Fetch a partition no more: it is led here, or gone, or it has no leader."""
        self._remove_partition((partition.topic_id, partition.partition_id), unless=None)

    def _remove_partition(self, key: PartitionKey, *, unless: tuple[int, int] | None) -> None:
        home = self._homes.get(key)
        if home is None or home == unless:
            return
        del self._homes[key]
        task = self._tasks.get(home)
        if task is None:
            return  # the fetcher let it go when its disk failed, and the last of the others took the task along
        task.fetcher.remove_partition(key)
        if not len(task.fetcher):
            del self._tasks[home]
            self._end(task)

    def change_config(self, config: FetcherConfig) -> None:
        """Use other settings; num.replica.fetchers spreads the partitions again."""
        followed = [each.partition for task in self._tasks.values() for each in task.fetcher]
        spread = config.fetcher_count != self._config.fetcher_count
        self._config = config
        for task in self._tasks.values():
            task.fetcher.config = config
        for partition in followed if spread else ():
            self.remove_partition(partition)
            self.add_partition(partition)

    async def close(self) -> None:
        """Fetch nothing more; ends when no task is left."""
        self._closing = True
        tasks, self._tasks = list(self._tasks.values()), {}
        self._homes.clear()
        for task in tasks:
            self._end(task)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, ended: _FetchTask) -> None:
        self._ending[ended.task] = None
        ended.task.add_done_callback(self._ending.pop)
        ended.task.cancel()

    async def connect_to(self, leader_id: int) -> Connection:
        """A connection to a leader. Raises OdradekError if it cannot be established."""
        address = self._address_of(leader_id)
        if address is None:
            raise OdradekError(f"no address of broker {leader_id} is known")
        connection = await connect(
            self._network,
            *address,
            client_id=f"broker-{self.broker_id}-fetcher",
            timeout_s=CONNECT_TIMEOUT_S,
            security=self._security,
        )
        self._on_reached(leader_id)
        connection.on_lost = lambda: self._on_lost(leader_id)
        return connection

    def storage_failed(self, failures: Iterable[StorageError]) -> None:
        """Disks failed under followers."""
        for failure in failures:
            _log.error("follower's disk failed", log_dir=failure.log_dir, error=failure)
            self._on_storage_failed(failure)

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def config(self) -> FetcherConfig:
        return self._config


class _FetchTask:
    """One connection to one leader, and the task that uses it. Cancelled when nothing is left to fetch."""

    def __init__(self, owner: ReplicaFetcherManager, leader_id: int, fetcher: Fetcher) -> None:
        self._owner = owner
        self._leader_id = leader_id
        self.fetcher = fetcher
        self._wake = asyncio.Event()
        self._connection: Connection | None = None
        self._held_back: list[PartitionKey] = []
        self.task = asyncio.get_running_loop().create_task(self._run())

    def partition_added(self, partition: Partition) -> None:
        """A partition was added, to be fetched now or when its log is durable."""
        self._wake.set()
        if partition.flush_is_due:
            self._wake_when_durable(partition)

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._fetch_once()
                except OdradekError as error:
                    self._failed(error)
                    _log.debug("fetch failed", leader=self._leader_id, error=error)
                except Exception as error:
                    self._failed(error)
                    _log.bug("fetch failed", error, leader=self._leader_id)
        finally:
            self._disconnect()

    def _failed(self, error: Exception) -> None:
        self._owner.failed_count += 1
        self._disconnect()
        self.fetcher.failed(self._owner.clock.monotonic_ms(), f"{type(error).__name__}: {error}")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _fetch_once(self) -> None:
        """Send one request and handle its response; or wait until there is something to fetch."""
        fetcher, clock = self.fetcher, self._owner.clock
        self._wake.clear()
        if not fetcher.has_work(clock.monotonic_ms()):
            await self._pause()
            return
        connection = await self._connected()
        await buggify("replica: before a fetch")
        if fetcher.has_out_of_range:
            await self._fetch_leader_offsets(connection)
        waiting = deque(self._send_fetch(connection))
        if not waiting and self._held_back:
            await self._wait_for_quota()
        while waiting:
            await self._wait_for_response_or_wakeup(waiting[0])
            if waiting[0].done():
                await buggify("replica: before an answer is taken")
                self._handle_response(waiting.popleft().result())
            more = waiting and fetcher.has_work(clock.monotonic_ms()) and fetcher.can_pipeline
            if more and connection.is_open and not connection.session_is_ending:
                waiting += self._send_fetch(connection)

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._owner.connect_to(self._leader_id)
        return self._connection

    def _send_fetch(self, connection: Connection) -> list[asyncio.Future[Message]]:
        """Send the next request, if there is one; returns the future of its response."""
        owner = self._owner
        self._wake.clear()
        version = connection.version_for(ApiKey.FETCH)
        if version < FIRST_VERSION:
            raise OdradekError(f"broker {self._leader_id} knows Fetch only up to version {version}")
        now_ms = owner.clock.monotonic_ms()
        self._held_back = self.fetcher.throttled() if owner.quota.is_exhausted(now_ms) else []
        request = self.fetcher.next_request(now_ms, broker_epoch=owner.broker_epoch(), held_back=self._held_back)
        if request is None:
            return []
        return [connection.send(request, version, on_end=self._ended)]

    def _ended(self, future: asyncio.Future[Message] | asyncio.Future[None]) -> None:
        """A response or a flush has ended: continue. Errors are raised in its awaiter."""
        if not future.cancelled():
            future.exception()
        self._wake.set()

    async def _wait_for_response_or_wakeup(self, response: asyncio.Future[Message]) -> None:
        """Wait until an answer is there, something is assigned, or a backoff is over."""
        if response.done():
            return
        limit_s = self._owner.config.socket_timeout_ms / 1000
        retry_s = self._until_retry_s()
        try:
            async with asyncio.timeout(limit_s if retry_s is None else min(retry_s, limit_s)):
                await self._wake.wait()
        except TimeoutError:
            if retry_s is None or retry_s >= limit_s:
                raise RequestTimeoutError(f"broker {self._leader_id} does not answer") from None
        self._wake.clear()

    def _handle_response(self, response: Message) -> None:
        owner = self._owner
        assert isinstance(response, FetchResponse)
        clock = owner.clock
        processed = self.fetcher.received(response, now_ms=clock.monotonic_ms(), wall_ms=clock.now_ms())
        owner.appended_bytes += processed.appended_bytes
        owner.quota.spend(processed.throttled_bytes, clock.monotonic_ms())
        owner.storage_failed(processed.failures)
        for partition in self.fetcher.flushing():
            self._wake_when_durable(partition)

    def _wake_when_durable(self, partition: Partition) -> None:
        durable = partition.wait_durable(partition.log.log_end_offset)
        if durable is None:
            self._wake.set()
        else:
            durable.add_done_callback(self._ended)

    async def _fetch_leader_offsets(self, connection: Connection) -> None:
        """Request the start and end offsets of the leader's log for OUT_OF_RANGE partitions."""
        responses = []
        for timestamp in (EARLIEST_LOCAL, LATEST):
            requested = self.fetcher.offsets_request(timestamp)
            if requested is None:
                return
            request, out_of_range = requested
            responses.append(
                await connection.request(
                    request, ListOffsetsResponse, timeout_s=self._owner.config.socket_timeout_ms / 1000
                )
            )
        now_ms = self._owner.clock.monotonic_ms()
        self._owner.storage_failed(self.fetcher.handle_offsets(out_of_range, responses[0], responses[1], now_ms=now_ms))

    async def _wait_for_quota(self) -> None:
        """All that is followed here is throttled, and the rate is used up; a changed rate is noticed in a second."""
        owner = self._owner
        ready_ms = owner.quota.ready_in_ms(owner.clock.monotonic_ms())
        pause_ms = MAX_QUOTA_PAUSE_MS if ready_ms is None else min(MAX_QUOTA_PAUSE_MS, ready_ms)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1000):
                await self._wake.wait()

    async def _pause(self) -> None:
        """Wait until something is assigned, a log is durable, or a backoff is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._until_retry_s()):
                await self._wake.wait()

    def _until_retry_s(self) -> float | None:
        retry_at_ms = self.fetcher.retry_at_ms()
        return None if retry_at_ms is None else max(0, retry_at_ms - self._owner.clock.monotonic_ms()) / 1000


def _fetcher_number(key: PartitionKey, count: int) -> int:
    return (31 * key[0].int + key[1]) % count
