"""A page without a web socket: its periodic requests do not prolong its session, and the user's requests do."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from odradek.console.guard import COOKIE, Guard
from odradek.console.guarded_socket import MESSAGES, watched
from odradek.console.sessions import IDLE_S, Attempts, Session, Sessions

POLLING = f"{MESSAGES}socket.io/?EIO=4&transport=polling"
EVENT = '42["event",{"id":1}]'


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Reads a request, and answers."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.parametrize(
    ("method", "body", "goes_on"),
    [
        ("GET", "", False),
        ("POST", "3", False),
        ("POST", '42["ack",{"a":"event"}]', False),
        ("POST", EVENT, True),
        ("POST", f"3\x1e{EVENT}", True),
        ("POST", '4217["event",{"id":1}]', True),
    ],
)
async def test_polling_does_not_keep_the_session(method: str, body: str, *, goes_on: bool) -> None:
    clock = Clock()
    sessions = Sessions(clock)
    guard = Guard(application, sessions, Attempts(clock), users=None, hosts=(), secure=False)
    headers = {"Cookie": f"{COOKIE}={sessions.begin('')}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://localhost") as client:
        clock.now_s += IDLE_S * 0.9
        assert (await client.request(method, POLLING, content=body, headers=headers)).status_code == 200
        clock.now_s += IDLE_S * 0.9
        assert ((await client.get(POLLING, headers=headers)).status_code == 200) == goes_on
        # A page that is opened is a use.
        assert (await client.get("/", headers=headers)).status_code == (200 if goes_on else 303)
        clock.now_s += IDLE_S * 0.9
        assert (await client.get("/", headers=headers)).status_code == (200 if goes_on else 303)


class Uses:
    """Counts the uses of sessions."""

    def __init__(self) -> None:
        self.count = 0

    def may(self, session: Session) -> bool:
        return not session.over.is_set()

    def uses(self, session: Session) -> None:
        self.count += 1


async def test_a_body_comes_in_parts() -> None:
    uses = Uses()
    parts = iter([b"3\x1e42[", b'"eve', b'nt",{"id":1}]', b"x" * 100])

    async def receive() -> Any:
        return {"type": "http.request", "body": next(parts), "more_body": True}

    receiving = watched(uses, Session("", 0.0, 0.0), receive)
    counts = []
    for _ in range(3):
        await receiving()
        counts.append(uses.count)
    assert counts == [0, 0, 1]
