"""The connection to the active controller.

A node knows the quorum's leader from its replica of the metadata log. All callers share one connection to it, with
pipelined requests. When the leader changes, the connection is closed at once, so that no caller waits for the timeout
of a dead host, and callers can retry at the new leader. Source: Kafka NodeToControllerChannelManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from odradek.client.connection import (
    Connection,
    RequestTimeoutError,
    UnreachableError,
    UnsupportedRequestError,
    connect,
)
from odradek.client.security import PLAINTEXT, OutgoingSecurity
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Network
from odradek.protocol.declare import Message

M = TypeVar("M", bound=Message)

# As in Kafka's NodeToControllerChannelManager.
RETRY_S = 0.05


class KnownLeader(Protocol):
    """The quorum's leader, and (host, port) of its controller listener, if known."""

    @property
    def node_id(self) -> int: ...

    @property
    def endpoint(self) -> tuple[str, int] | None: ...


class ControllerChannel:
    """Requests to the active controller; each call of `request` is one attempt."""

    def __init__(
        self,
        network: Network,
        leader: Callable[[], KnownLeader | None],
        *,
        client_id: str,
        connect_timeout_ms: int,
        request_timeout_ms: int,
        security: OutgoingSecurity = PLAINTEXT,
    ) -> None:
        """
        Args:
            leader: returns the present active controller; None if there is none.
            request_timeout_ms: the timeout of one attempt.
        """
        self._network = network
        self._security = security
        self._leader = leader
        self._client_id = client_id
        self._connect_timeout_s = connect_timeout_ms / 1000
        self._request_timeout_s = request_timeout_ms / 1000
        self._address: tuple[int, tuple[str, int]] | None = None
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._changed = asyncio.Event()
        self.closed = False

    def leader_changed(self) -> None:
        """Close the connection if the leader has changed, and wake callers of `pause`."""
        if self._address is not None and self._address != self._where():
            self._drop()
        self._changed.set()
        self._changed = asyncio.Event()

    async def pause(self) -> None:
        """Wait between two attempts, or until the leader changes."""
        try:
            async with asyncio.timeout(RETRY_S):
                await self._changed.wait()
        except TimeoutError:
            return

    async def request(self, request: Message, response: type[M], *, timeout_ms: int, version: int | None = None) -> M:
        """Send a request to the active controller and return the response.

        Args:
            timeout_ms: for this attempt, limited by the channel's own timeout.
            version: None uses the newest that both sides support.
        Raises:
            ApiError: NOT_CONTROLLER if no controller is known, reached or responding, or the peer is not active
                (retriable); UNSUPPORTED_VERSION if it does not support the request.
        """
        try:
            connection = await self._connected()
            timeout_s = min(self._request_timeout_s, timeout_ms / 1000)
            answer = await connection.request(request, response, timeout_s=timeout_s, version=version)
        except (UnreachableError, RequestTimeoutError) as error:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"the controller does not answer: {error}") from None
        except UnsupportedRequestError as error:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
        if getattr(answer, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"{connection.address} is not the active controller")
        return answer

    async def close(self) -> None:
        """Close the connection; pending and later requests fail."""
        self.closed = True
        connecting = self._connecting
        self._drop()
        self._changed.set()
        if connecting is not None:
            await asyncio.gather(connecting, return_exceptions=True)

    async def _connected(self) -> Connection:
        """The connection to the present leader; concurrent callers share one attempt to connect."""
        address = None if self.closed else self._where()
        if address is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "no active controller is known")
        if address != self._address:
            self._drop()
            self._address = address
        if self._connection is not None and self._connection.is_open:
            return self._connection
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect(address))
            self._connecting.add_done_callback(self._connect_ended)
        try:
            return await asyncio.shield(self._connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise UnreachableError("the controller changed during the connection attempt") from None

    def _where(self) -> tuple[int, tuple[str, int]] | None:
        leader = self._leader()
        return None if leader is None or leader.endpoint is None else (leader.node_id, leader.endpoint)

    async def _connect(self, address: tuple[int, tuple[str, int]]) -> Connection:
        host, port = address[1]
        connection = await connect(
            self._network,
            host,
            port,
            client_id=self._client_id,
            timeout_s=self._connect_timeout_s,
            security=self._security,
        )
        if address != self._address:
            connection.close()
            raise UnreachableError("the controller changed during the connection attempt")
        self._connection = connection
        return connection

    def _connect_ended(self, task: asyncio.Task[Any]) -> None:
        if self._connecting is task:
            self._connecting = None
        if not task.cancelled():
            task.exception()  # it is raised in the callers that wait; mark it as retrieved

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        connecting, self._connecting = self._connecting, None
        self._address = None
        if connecting is not None:
            connecting.cancel()
        if connection is not None:
            connection.close()
