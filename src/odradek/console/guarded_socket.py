"""Closes a web socket with its session: otherwise an open one would outlive a logout.

Messages of a page, by a web socket or by polling, extend the session if they are actions of the user.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Protocol

from odradek.console.sessions import Session

# The time for the page to redirect its browser to the login; messages of the browser are dropped meanwhile.
CLOSES_WITHIN_S = 2.0
# The path of a page's messages: of its web socket, or of its polling.
MESSAGES = "/_nicegui_ws/"
# Engine.IO puts it between the packets of one request of polling.
_SEPARATOR = b"\x1e"
# The prefix of Socket.IO's event packets; automatic packets (pongs, acknowledgements) have other prefixes.
_EVENT, _BY_USER = "42", '"event"'
_BEGINNING = 20


class Watches(Protocol):
    """Checks whether sessions are valid."""

    def may(self, session: Session) -> bool:
        """Whether a session is valid."""

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
                if _is_by_user(message.get("text") or ""):
                    self._guard.uses(self._session)
                return message

    async def _sending(self, message: Any) -> None:
        if self._closed:
            return
        self._closed = message["type"] == "websocket.close"
        await self._send(message)


def watched(guard: Watches, session: Session, receive: Any) -> Any:
    """The receive function of a polling request."""
    last = b""

    async def receiving() -> Any:
        nonlocal last
        message = await receive()
        # The parts of a body may end anywhere: the beginning of each packet suffices.
        *whole, last = (last + message.get("body", b"")).split(_SEPARATOR)
        last = last[:_BEGINNING]
        if any(_is_by_user(each[:_BEGINNING].decode("latin-1")) for each in (*whole, last)):
            guard.uses(session)
        return message

    return receiving


def _is_by_user(text: str) -> bool:
    return text.startswith(_EVENT) and _BY_USER in text[:_BEGINNING]
