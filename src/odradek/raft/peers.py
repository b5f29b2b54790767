"""Connections to the other replicas of the quorum: one for each endpoint and API.

A Fetch waits at the leader for news, and answers arrive in the order of the requests. APIs do not share connections, so
that a vote need not wait behind a Fetch. A failed connection is dropped; the next request opens another.
"""

from __future__ import annotations

from typing import TypeVar

from odradek.client.connection import Connection, Traffic, UnreachableError, UnsupportedRequestError, connect
from odradek.client.security import PLAINTEXT, OutgoingSecurity
from odradek.common.ports import Network
from odradek.protocol.apis import ApiKey
from odradek.protocol.declare import Message
from odradek.raft.voters import Endpoint

M = TypeVar("M", bound=Message)


class QuorumPeers:
    """Sends requests to other replicas' controller listeners; `traffic` counts what it sent and received."""

    def __init__(self, network: Network, node_id: int, security: OutgoingSecurity = PLAINTEXT) -> None:
        """
        Args:
            node_id: this node's, for the client id of its requests.
            security: of the controller listener.
        """
        self._network = network
        self._security = security
        self._client_id = f"raft-client-{node_id}"
        self._open: dict[tuple[Endpoint, int], Connection] = {}
        self._closed = False
        self.traffic = Traffic()

    async def send(
        self, endpoint: Endpoint, request: Message, response: type[M], *, timeout_ms: int, min_version: int = 0
    ) -> M:
        """Send one request and return its answer.

        Args:
            min_version: the lowest version of the API that has the fields of this request (inclusive).
        Raises:
            RefusedError: the connection is refused; UnreachableError, RequestTimeoutError, UnsupportedRequestError.
        """
        timeout_s = timeout_ms / 1000
        lane = (endpoint, int(request.KEY or 0))
        connection = self._open.get(lane)
        if connection is None or not connection.is_open:
            connection = await self._connect(lane, timeout_s)
        if connection.version_for(ApiKey(lane[1])) < min_version:
            raise UnsupportedRequestError(f"{connection.address} knows {ApiKey(lane[1]).name} below {min_version} only")
        return await connection.request(request, response, timeout_s=timeout_s)

    async def _connect(self, lane: tuple[Endpoint, int], timeout_s: float) -> Connection:
        host, port = lane[0]
        made = await connect(
            self._network,
            host,
            port,
            client_id=self._client_id,
            timeout_s=timeout_s,
            security=self._security,
            traffic=self.traffic,
        )
        other = self._open.get(lane)
        if self._closed or (other is not None and other.is_open):
            # Two requests opened a connection at the same time; only one is kept.
            made.close()
        if self._closed:
            raise UnreachableError("this node stops")
        if other is not None and other.is_open:
            return other
        self._open[lane] = made
        return made

    def drop(self, endpoint: Endpoint, key: ApiKey) -> None:
        """Close the connection for one API whose outstanding response is no longer needed."""
        connection = self._open.pop((endpoint, int(key)), None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close all connections; no further request is sent."""
        self._closed = True
        for connection in self._open.values():
            connection.close()
        self._open.clear()
