"""Requests to other brokers: one open connection to each, over the inter-broker listener.

After an error the next request opens a new connection. Responses come in the order of the requests, so a request that
waits long (a Fetch) does not belong here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from odradek.client.connection import Connection, UnreachableError, connect
from odradek.client.security import PLAINTEXT, OutgoingSecurity
from odradek.common.ports import Network
from odradek.metadata.image import MetadataImage
from odradek.protocol.declare import Message

M = TypeVar("M", bound=Message)

REQUEST_TIMEOUT_S = 10.0


class BrokerPeers:
    """Sends requests to other brokers by id."""

    def __init__(
        self,
        network: Network,
        *,
        node_id: int,
        listener_name: str,
        image: Callable[[], MetadataImage],
        security: OutgoingSecurity = PLAINTEXT,
    ) -> None:
        """
        Args:
            node_id: this broker's, for the client id that others see.
            listener_name: of the listener that brokers reach each other by; security is its.
        """
        self._network = network
        self._security = security
        self._client_id = f"broker-{node_id}"
        self._listener_name = listener_name
        self._image = image
        self._open: dict[int, tuple[tuple[str, int], Connection]] = {}
        self._connecting: dict[int, asyncio.Task[Connection]] = {}
        self._closed = False

    async def request(self, broker_id: int, request: Message, response: type[M]) -> M:
        """Send a request and return its response.

        Raises:
            UnreachableError, RequestTimeoutError, UnsupportedRequestError.
        """
        connection = await self._connection_to(broker_id)
        return await connection.request(request, response, timeout_s=REQUEST_TIMEOUT_S)

    async def _connection_to(self, broker_id: int) -> Connection:
        broker = self._image().brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener_name)
        if endpoint is None or self._closed:
            raise UnreachableError(f"broker {broker_id} has no address")
        address = (endpoint.host, endpoint.port)
        known = self._open.get(broker_id)
        if known is not None and known[1].is_open and known[0] == address:
            return known[1]
        task = self._connecting.get(broker_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._connect(broker_id, address))
            self._connecting[broker_id] = task
            task.add_done_callback(lambda done: self._connected(broker_id, done))
        return await asyncio.shield(task)

    def _connected(self, broker_id: int, task: asyncio.Task[Connection]) -> None:
        self._connecting.pop(broker_id, None)
        if not task.cancelled():
            task.exception()  # if all who asked have given up, none of them takes it

    async def _connect(self, broker_id: int, address: tuple[str, int]) -> Connection:
        made = await connect(
            self._network,
            *address,
            client_id=self._client_id,
            timeout_s=REQUEST_TIMEOUT_S,
            security=self._security,
        )
        old = self._open.pop(broker_id, None)
        if old is not None:
            old[1].close()
        self._open[broker_id] = (address, made)
        return made

    async def close(self) -> None:
        """Close all connections; requests under way fail with UnreachableError."""
        self._closed = True
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _, connection in self._open.values():
            connection.close()
        self._open.clear()
