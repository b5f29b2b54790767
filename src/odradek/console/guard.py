"""Who is let in, decided before any page is made: the host that is asked for, the origin, the session.

All requests pass here, those of web sockets too. Without a session there is the page of the login and nothing else.
"""

from __future__ import annotations

import asyncio
import html
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from odradek.common.errors import ConfigError
from odradek.console.auth import Users
from odradek.console.sessions import Attempts, Session, Sessions

COOKIE = "odradek-session"
LOGIN, LOGOUT, ALIVE = "/login", "/logout", "/alive"
MAX_FORM_BYTES = 8 * 1024
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# scrypt takes 16 MB and a core for each guess.
HASHES_AT_ONCE = 2
TOO_MANY = "Too many wrong passwords: wait a minute."
_SAFE_METHODS = ("GET", "HEAD")
# Nothing is loaded from elsewhere, and no other page has these in a frame. The front end makes functions itself.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "frame-ancestors 'none'; base-uri 'self'; form-action 'self'; object-src 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
)


class Guard:
    """An ASGI application around another one."""

    def __init__(
        self,
        inner: Any,
        sessions: Sessions,
        attempts: Attempts,
        *,
        users: Users | None,
        hosts: Iterable[str],
        secure: bool,
    ) -> None:
        """
        Args:
            users: who may log in; None: everyone who reaches it is in, and that is this machine alone.
            hosts: names by which browsers reach it, beside those of this machine.
            secure: whether it is reached by TLS.
        """
        self._inner = inner
        self._sessions = sessions
        self._attempts = attempts
        self._users = users
        self._hosts = {*LOOPBACK, *hosts}
        self._secure = secure
        self._hashing = asyncio.Semaphore(HASHES_AT_ONCE)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._inner(scope, receive, send)
            return None
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["path"] == ALIVE and scope["type"] == "http":
            return await _answer(send, 200, "ok\n", content_type=b"text/plain")  # probes ask by the address of a pod
        refusal = self._refusal(scope, headers)
        if refusal:
            return await _refuse(scope, receive, send, refusal)
        token = _cookie(headers)
        session = self._session(token)
        if scope["type"] == "http" and scope["path"] in (LOGIN, LOGOUT):
            return await self._log_in_or_out(scope, receive, send, token)
        if session is None:
            return await self._without_session(scope, receive, send)
        scope.setdefault("state", {})["session"] = session
        await self._inner(scope, receive, _with_headers(send))
        return None

    def may(self, session: Session) -> bool:
        """Whether a session goes on, for a page that is open."""
        return self._sessions.is_live(session) and self._knows(session)

    def _refusal(self, scope: Any, headers: dict[str, str]) -> str:
        """Why a request is refused from any user, or "".

        A name that is not ours is that of a page which made its name point here; another origin is a page elsewhere
        that lets the browser of a user send something.
        """
        host = _host_name(headers.get("host", ""))
        if host not in self._hosts:
            return f"this console is not {host or 'nameless'}: start it with --hostname {host} if it shall be"
        changes = scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS
        origin = headers.get("origin")
        if changes and origin is not None and _host_and_port(origin) != headers.get("host"):
            return "another site may not ask this of the console"
        if changes and origin is None and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "another site may not ask this of the console"
        return ""

    def _session(self, token: str | None) -> Session | None:
        session = self._sessions.find(token)
        if session is None or not self._knows(session):
            return None
        return session

    def _knows(self, session: Session) -> bool:
        if self._users is None:
            return True
        try:
            self._users.reload()
        except ConfigError:
            return False
        return session.user in self._users

    async def _without_session(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS:
            return await _refuse(scope, receive, send, "log in first")
        here = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        if self._users is None:
            return await self._begin(send, "", _local(quote(here, safe="/?&=%")))
        if scope["path"].startswith("/_nicegui"):
            return await _refuse(scope, receive, send, "log in first")
        return await _redirect(send, f"{LOGIN}?next={quote(here, safe='')}")

    async def _log_in_or_out(self, scope: Any, receive: Any, send: Any, token: str | None) -> None:
        asked = parse_qs(scope["query_string"].decode("latin-1"))
        to = _local(asked.get("next", ["/"])[0])
        if scope["path"] == LOGOUT:
            if scope["method"] == "POST":
                self._sessions.end(token)
            return await _redirect(send, LOGIN if self._users is not None else "/")
        if self._users is None:
            return await _redirect(send, "/")
        if scope["method"] != "POST":
            return await _answer(send, 200, _login_page(to, ""))
        form = parse_qs((await _body(receive)).decode("utf-8", "replace"), keep_blank_values=True)
        name, password = (form.get(field, [""])[0] for field in ("name", "password"))
        address = scope["client"][0] if scope.get("client") else ""
        return await self._log_in(send, name, password, address, to)

    async def _log_in(self, send: Any, name: str, password: str, address: str, to: str) -> None:
        assert self._users is not None
        keys = (f"name {name[:200]}", f"address {address}")
        if self._attempts.must_wait(*keys):
            return await _answer(send, 429, _login_page(to, TOO_MANY))
        try:
            async with self._hashing:
                if self._attempts.must_wait(*keys):  # others failed while this one waited for its turn
                    return await _answer(send, 429, _login_page(to, TOO_MANY))
                is_right = await asyncio.to_thread(self._users.check, name, password)
        except ConfigError:
            return await _answer(
                send, 503, _login_page(to, "The file of users cannot be read: see the console's output.")
            )
        if not is_right:
            self._attempts.failed(*keys)
            return await _answer(send, 401, _login_page(to, "This name and password do not match."))
        return await self._begin(send, name, to)

    async def _begin(self, send: Any, user: str, to: str) -> None:
        cookie = f"{COOKIE}={self._sessions.begin(user)}; Path=/; HttpOnly; SameSite=Lax"
        await _redirect(send, to, (b"set-cookie", (cookie + "; Secure" * self._secure).encode()))


def _host_name(host: str) -> str:
    """`name:port`, `[::1]:port` → the name."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _local(path: str) -> str:
    """A path of the console itself: a redirect leads nowhere else."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and path.isascii()
    return path if is_ours else "/"


def _host_and_port(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _cookie(headers: dict[str, str]) -> str | None:
    """Ours, whatever other programs of this host have set: cookies know no ports."""
    for each in headers.get("cookie", "").split(";"):
        name, _, value = each.partition("=")
        if name.strip() == COOKIE:
            return value.strip()
    return None


async def _body(receive: Any) -> bytes:
    body = b""
    while len(body) <= MAX_FORM_BYTES:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return body[:MAX_FORM_BYTES]


def _with_headers(send: Any) -> Any:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *_HEADERS]}
        await send(message)

    return sending


async def _refuse(scope: Any, receive: Any, send: Any, text: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": text[:100]})
    else:
        await _answer(send, 403, text + "\n", content_type=b"text/plain")


async def _redirect(send: Any, to: str, *headers: tuple[bytes, bytes]) -> None:
    await _answer(send, 303, "", (b"location", to.encode("latin-1", "replace")), *headers)


async def _answer(
    send: Any, status: int, text: str, *headers: tuple[bytes, bytes], content_type: bytes = b"text/html; charset=utf-8"
) -> None:
    body = text.encode()
    fields = [
        (b"content-type", content_type),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *_HEADERS,
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


def _login_page(to: str, text: str) -> str:
    said = f'<p role="alert">{html.escape(text)}</p>' if text else ""
    return _LOGIN_PAGE.format(said=said, action=html.escape(f"{LOGIN}?next={quote(to, safe='')}"))


_LOGIN_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Odradek: log in</title>
<style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif; }}
body {{ display: grid; place-items: center; min-height: 90vh; margin: 1rem; }}
form {{ display: grid; gap: .75rem; width: min(20rem, 100%); }}
input, button {{ font: inherit; padding: .6rem; border-radius: .3rem; border: 1px solid #8888; }}
button {{ background: #24527a; color: white; }}
[role=alert] {{ color: #c62828; margin: 0; }}
</style>
</head>
<body>
<form method="post" action="{action}">
<h1>Odradek</h1>
{said}
<label for="name">Name</label>
<input id="name" name="name" autocomplete="username" autocapitalize="none" required autofocus>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required>
<button>Log in</button>
</form>
</body>
</html>
"""
