"""A kept connection to the active controller, wherever it is at the moment.

Every node knows the quorum's leader from its replica of the metadata log. One connection to it is kept and shared by
all who ask; requests on it are pipelined. When the leader changes, the connection to the old one is dropped at once, so
that no caller waits for the time-out of a dead host, and callers may try again at the new one.
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

# As Kafka's channel from a node to the controller.
RETRY_S = 0.05


class KnownLeader(Protocol):
    """The quorum's leader as a node knows it, and (host, port) of its controller listener where that is known."""

    @property
    def node_id(self) -> int: ...

    @property
    def endpoint(self) -> tuple[str, int] | None: ...


class ControllerChannel:
    """Requests to the active controller; each call of `ask` is one attempt."""

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
            leader: the active controller as this node knows it now; None while there is none.
            request_timeout_ms: for one attempt: a peer that is silent for longer is given up.
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
        """Find the leader again: requests to a former leader fail, and those who pause go on."""
        if self._address is not None and self._address != self._where():
            self._drop()
        self._changed.set()
        self._changed = asyncio.Event()

    async def pause(self) -> None:
        """Between two attempts: a moment, or until the leader changes."""
        try:
            async with asyncio.timeout(RETRY_S):
                await self._changed.wait()
        except TimeoutError:
            return

    async def ask(self, request: Message, response: type[M], *, timeout_ms: int, version: int | None = None) -> M:
        """Send a request to the active controller and wait for the answer.

        Args:
            timeout_ms: for this attempt, at most the channel's own.
            version: None takes the newest that both sides know.
        Raises:
            ApiError: NOT_CONTROLLER where no controller is known, reached or answering, or the one that answered is not
                active: the same request may be sent again. UNSUPPORTED_VERSION where it knows no such request.
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
        """Drop the connection; requests that wait fail, and later ones too."""
        self.closed = True
        connecting = self._connecting
        self._drop()
        self._changed.set()
        if connecting is not None:
            await asyncio.gather(connecting, return_exceptions=True)

    async def _connected(self) -> Connection:
        """The connection to the present leader, made by the first caller and shared by those who come meanwhile."""
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
            raise UnreachableError("the controller moved while it was dialled") from None

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
            raise UnreachableError("the controller moved while it was dialled")
        self._connection = connection
        return connection

    def _connect_ended(self, task: asyncio.Task[Any]) -> None:
        if self._connecting is task:
            self._connecting = None
        if not task.cancelled():
            task.exception()  # raised in those who wait; where there are none, it is of no use

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        connecting, self._connecting = self._connecting, None
        self._address = None
        if connecting is not None:
            connecting.cancel()
        if connection is not None:
            connection.close()
