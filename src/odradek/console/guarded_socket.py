"""A web socket ends with the session that opened it: one that is open outlives a logout otherwise."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Protocol

from odradek.console.sessions import Session

# The page has this long to lead its browser to the login; what the browser sends meanwhile is dropped.
CLOSES_WITHIN_S = 2.0
# Socket.IO's packet of an event; what comes of itself (pongs, acknowledgements of messages) begins otherwise.
_EVENT, _BY_USER = "42", '"event"'


class Watches(Protocol):
    """Who knows whether sessions go on."""

    def may(self, session: Session) -> bool:
        """Whether a session goes on."""

    def uses(self, session: Session) -> None:
        """Its user did something."""


class GuardedSocket:
    """One web socket over ASGI."""

    def __init__(self, guard: Watches, session: Session, receive: Any, send: Any) -> None:
        self._guard = guard
        self._session = session
        self._receive = receive
        self._send = send
        self._closed = False

    async def run(self, inner: Any, scope: Any) -> None:
        """Serve it until the browser or the session ends."""
        ending = asyncio.create_task(self._end_with_session())
        try:
            await inner(scope, self._receiving, self._sending)
        finally:
            ending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ending

    async def _end_with_session(self) -> None:
        await self._session.over.wait()
        await asyncio.sleep(CLOSES_WITHIN_S)
        await self._sending({"type": "websocket.close", "code": 1008, "reason": "the session is over"})

    async def _receiving(self) -> Any:
        while True:
            message = await self._receive()
            if message["type"] != "websocket.receive":
                return message
            if self._guard.may(self._session):
                text = message.get("text") or ""
                if text.startswith(_EVENT) and _BY_USER in text[:20]:
                    self._guard.uses(self._session)
                return message

    async def _sending(self, message: Any) -> None:
        if self._closed:
            return
        self._closed = message["type"] == "websocket.close"
        await self._send(message)
