"""A client's view of a cluster: bootstrap addresses, a pool of connections, and metadata of topics.

For brokers, tools and links; applications use the Kafka client of their language. Requests that fail because a leader
or coordinator has moved are retried with new metadata until the timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from odradek.client.connection import Connection, RequestTimeoutError, UnreachableError, connect
from odradek.client.security import OutgoingSecurity
from odradek.common.backoff import Backoff
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.numbers import parse_natural
from odradek.common.ports import Clock, Network
from odradek.protocol.api_key import ApiKey
from odradek.protocol.declare import Message
from odradek.protocol.messages import metadata_request, metadata_response
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

M = TypeVar("M", bound=Message)
if TYPE_CHECKING:
    from odradek.client.sasl import Credentials

T = TypeVar("T")

DEFAULT_PORT = 9092
FIRST_BACKOFF_MS, LAST_BACKOFF_MS = 50, 1_000
# The timeout of each address when another broker is to be preferred.
ANOTHER_TIMEOUT_S = 2.0
GROUP_KEY_TYPE = 0


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """`host:port,[::1]:port` → addresses; the default port is Kafka's.

    Raises:
        ValueError: a part is no valid address.
    """
    addresses = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, str(DEFAULT_PORT)
        host, number = host.removeprefix("[").removesuffix("]"), parse_natural(port, 65535)
        if not host or not number:
            raise ValueError(f"{part!r} is not a host:port")
        addresses.append((host, number))
    if not addresses:
        raise ValueError("no host:port is given")
    return addresses


class BrokerGoneError(ApiError):
    """BROKER_NOT_AVAILABLE: the cluster's metadata does not include the broker."""


class Cluster:
    """Connections to the brokers of one cluster; an async context manager."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        bootstrap: Sequence[tuple[str, int]],
        *,
        client_id: str = "odradek",
        timeout_ms: int = 30_000,
        tls: ssl.SSLContext | None = None,
        sasl: Credentials | None = None,
    ) -> None:
        """`timeout_ms` is for a whole operation, including retries."""
        self._network = network
        self._clock = clock
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._security = OutgoingSecurity(lambda: tls, lambda: sasl)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._connecting: dict[tuple[str, int], asyncio.Lock] = {}
        self.brokers: dict[int, tuple[str, int]] = {}
        self.cluster_id: str | None = None

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        # One iteration of the loop, in which transports close their sockets.
        await asyncio.sleep(0)

    def with_own_connections(self) -> Cluster:
        """A client of the same cluster with its own connections; TLS and SASL are shared."""
        made = Cluster(
            self._network, self._clock, self._bootstrap, client_id=self._client_id, timeout_ms=self._timeout_ms
        )
        made._security = self._security
        return made

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def any_connection(self) -> Connection:
        """A connection to any broker; open ones are preferred.

        Raises:
            UnreachableError, RequestTimeoutError: no bootstrap address responds; the text is that of the last one.
            RefusedLoginError: a broker refused the login.
        """
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        failure: Exception = UnreachableError("no bootstrap address")
        for address in [*self._bootstrap, *self.brokers.values()]:
            try:
                return await self._connection(address)
            except (UnreachableError, RequestTimeoutError) as error:
                failure = error
        raise failure

    async def prefer_another_broker(self) -> None:
        """Prefer another broker for requests to any broker: the metadata of the present one may be outdated.

        If no other can be reached, nothing changes.
        """
        addresses = list(dict.fromkeys([*self._bootstrap, *self.brokers.values()]))
        present = next((address for address, each in self._connections.items() if each.is_open), None)
        if present is None:
            return
        begin = addresses.index(present) + 1 if present in addresses else 0
        for address in [*addresses[begin:], *addresses[:begin]]:
            if address == present:
                continue
            with contextlib.suppress(OdradekError, TimeoutError):
                async with asyncio.timeout(ANOTHER_TIMEOUT_S):
                    await self._connection(address)
                self._connections = {address: self._connections.pop(address), **self._connections}
                return

    async def connection_to(self, node_id: int) -> Connection:
        """A connection to one broker.

        Raises:
            BrokerGoneError: the cluster has no such broker, or it is fenced.
            UnreachableError, RequestTimeoutError.
        """
        if node_id not in self.brokers:
            await self.metadata([])
        if node_id not in self.brokers:
            raise BrokerGoneError(ErrorCode.BROKER_NOT_AVAILABLE, f"the cluster has no broker {node_id}")
        return await self._connection(self.brokers[node_id])

    @property
    def timeout_ms(self) -> int:
        """The timeout of an operation, including retries."""
        return self._timeout_ms

    async def request(
        self, request: Message, response: type[M], *, node_id: int | None = None, at_most: int | None = None
    ) -> M:
        """Send a request once, to one broker or any.

        Args:
            at_most: the newest version (inclusive) to use.
        Raises:
            UnreachableError, RequestTimeoutError, UnsupportedRequestError.
        """
        connection = await (self.any_connection() if node_id is None else self.connection_to(node_id))
        version = connection.version_for(ApiKey(cast(int, request.KEY)), at_most)
        return await connection.request(request, response, timeout_s=self._timeout_ms / 1000, version=version)

    async def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """Request the metadata of these topics, or (None) of all. Errors of topics stay in the response."""
        asked = None
        if topics is not None:
            asked = [metadata_request.MetadataRequestTopic(name=name) for name in topics]
        message = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        response = await self._metadata(message)
        self.brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self.cluster_id = response.cluster_id
        return response

    async def _metadata(self, message: MetadataRequest) -> MetadataResponse:
        """The response of the first broker that knows the metadata.

        An isolated broker responds with an error (KIP-1102).

        Raises:
            ApiError: no reachable broker knows it.
        """
        response = await self.request(message, MetadataResponse)
        for address in [*self._bootstrap, *self.brokers.values()] if response.error_code else ():
            with contextlib.suppress(UnreachableError, RequestTimeoutError):
                connection = await self._connection(address)
                response = await connection.request(message, MetadataResponse, timeout_s=self._timeout_ms / 1000)
                if not response.error_code:
                    break
                connection.close()
        check(response.error_code, "metadata")
        return response

    async def topic(self, name: str) -> metadata_response.MetadataResponseTopic:
        """The metadata of one topic.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION, and other errors of the topic.
        """
        (topic,) = (await self.metadata([name])).topics
        check(topic.error_code, f"topic {name}")
        return topic

    async def coordinator(self, group_id: str) -> int:
        """The broker id of a group's coordinator; waits until there is one.

        Raises:
            ApiError: the last error of FindCoordinator at the timeout.
        """

        async def send() -> int:
            connection = await self.any_connection()
            version = connection.version_for(ApiKey.FIND_COORDINATOR)
            message = FindCoordinatorRequest(key_type=GROUP_KEY_TYPE)
            if version >= 4:
                message.coordinator_keys = [group_id]
            else:
                message.key = group_id
            response = await connection.request(message, FindCoordinatorResponse, timeout_s=self._timeout_ms / 1000)
            found: Any = response.coordinators[0] if version >= 4 else response
            check(found.error_code, f"coordinator of group {group_id}", found.error_message)
            self.brokers.setdefault(found.node_id, (found.host, found.port))
            return int(found.node_id)

        return await self.retried(send)

    async def retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry an attempt until the timeout while it fails with a retriable error.

        Raises:
            ApiError: the last one.
        """
        deadline = self._clock.monotonic_ms() + self._timeout_ms
        backoff = Backoff(FIRST_BACKOFF_MS, LAST_BACKOFF_MS)
        while True:
            try:
                return await attempt()
            except ApiError as error:
                if not error.code.retriable or error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                pause_ms = backoff.next_ms()
                if self._clock.monotonic_ms() + pause_ms >= deadline:
                    raise
            await asyncio.sleep(pause_ms / 1000)

    async def _connection(self, address: tuple[str, int]) -> Connection:
        lock = self._connecting.setdefault(address, asyncio.Lock())
        async with lock:
            known = self._connections.get(address)
            if known is not None and known.is_open:
                return known
            timeout_s = min(10.0, self._timeout_ms / 1000)
            made = await connect(
                self._network,
                *address,
                client_id=self._client_id,
                timeout_s=timeout_s,
                security=self._security,
            )
            self._connections[address] = made
            return made


def partitions_of(topics: Iterable[MetadataResponseTopic]) -> dict[tuple[str, int], MetadataResponsePartition]:
    """All partitions of topics, by topic name and partition id."""
    return {
        (topic.name or "", partition.partition_index): partition for topic in topics for partition in topic.partitions
    }


def check(error_code: int, what: str, message: str | None = None) -> None:
    """Raise ApiError for an error code that is not NONE; codes of newer brokers are UNKNOWN_SERVER_ERROR."""
    if error_code == 0:
        return
    try:
        code = ErrorCode(error_code)
    except ValueError:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        message = f"error code {error_code}, which this release does not know"
    text = message or code.name.lower().replace("_", " ")
    raise ApiError(code, text if message and what in message else f"{what}: {text}")
