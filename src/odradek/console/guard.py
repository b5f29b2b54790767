"""Checks requests before a page is created: the host, the origin, the session.

All requests pass this middleware, those of web sockets too. Without a session only the login page is served.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import parse_qs, quote

from odradek.common.errors import ConfigError
from odradek.console.answers import (
    ALIVE,
    FORM_TO_ISSUER,
    LOGIN,
    LOGOUT,
    answer,
    issuer_page,
    logged_out_page,
    login_page,
    read_form,
    redirect,
    refuse,
    with_headers,
)
from odradek.console.auth import Users
from odradek.console.guarded_socket import MESSAGES, GuardedSocket, watched
from odradek.console.oidc import CALLBACK, Identity, LoginError
from odradek.console.oidc_logins import BEGIN, LASTS_S, NAMED_BY, Begun, OidcLogins
from odradek.console.origins import (
    Network,
    came_from,
    host_and_port,
    host_name,
    local_path,
    read_cookie,
    read_headers,
)
from odradek.console.renewals import Renewals
from odradek.console.sessions import Attempts, Grant, Session, Sessions

COOKIE = "odradek-session"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# scrypt takes 16 MB and a core for each guess.
HASHES_AT_ONCE = 2
# Each waits for the issuer on a thread.
ASKED_AT_ONCE = 4
TOO_MANY = "Too many wrong passwords: wait a minute."
TOO_MANY_LOGINS = "Too many logins failed: wait a minute."
_SAFE_METHODS = ("GET", "HEAD")


def cookie_name(*address: object) -> str:
    """A name for the cookie of one console: cookies know no ports, and a host may have several consoles."""
    return f"{COOKIE}-{hashlib.sha256(repr(address).encode()).hexdigest()[:12]}"


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
        cookie: str = COOKIE,
        proxies: Sequence[Network] = (),
        oidc: OidcLogins | None = None,
    ) -> None:
        """
        Args:
            users: the users who may log in; None: no logins, and only this machine can connect.
            hosts: host names of the console for browsers, besides those of this machine.
            secure: whether browsers use only TLS.
            proxies: trusted proxies, whose forwarded addresses are used.
            oidc: logins with an issuer, instead of `users`.
        """
        self._inner = inner
        self._sessions = sessions
        self._attempts = attempts
        self._users = users
        self._hosts = {*LOOPBACK, *hosts}
        self._secure = secure
        self._cookie = cookie
        self._proxies = tuple(proxies)
        self._oidc = oidc
        self._renewals = Renewals(oidc, sessions.clock) if oidc is not None else None
        self._has_logins = users is not None or oidc is not None
        self._hashing = asyncio.Semaphore(HASHES_AT_ONCE)
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._inner(scope, receive, send)
            return None
        headers = read_headers(scope)
        if scope["path"] == ALIVE and scope["type"] == "http":
            return await answer(send, 200, "ok\n", content_type=b"text/plain")  # probes ask by the address of a pod
        refusal = self._refusal(scope, headers)
        if refusal:
            return await refuse(scope, receive, send, refusal)
        token = read_cookie(headers, self._cookie)
        if scope["type"] == "http" and scope["path"] in (LOGIN, LOGOUT):  # independent of the issuer
            return await self._log_in_or_out(scope, receive, send, token)
        if scope["type"] == "http" and scope["path"] in (BEGIN, CALLBACK) and self._oidc is not None:
            return await self._at_issuer(self._oidc, scope, headers, send)
        # An open page connects by itself, and polls without a web socket.
        by_page = scope["path"].startswith(MESSAGES)
        session = await self._session(token, by_user=not by_page)
        if session is None:
            return await self._without_session(scope, receive, send)
        scope.setdefault("state", {})["session"] = session
        if scope["type"] == "websocket":
            return await GuardedSocket(self, session, receive, send).run(self._inner, scope)
        if by_page:
            receive = watched(self, session, receive)
        await self._inner(scope, receive, with_headers(send))
        return None

    def may(self, session: Session) -> bool:
        """Whether the session of an open page is valid."""
        if self._renewals is not None:
            self._renewals.check(session)
        return self._sessions.is_live(session) and self._knows(session)

    def uses(self, session: Session) -> None:
        """A user did something on a page that is open."""
        self._sessions.use(session)

    def _refusal(self, scope: Any, headers: dict[str, str]) -> str:
        """Why a request is refused for every user, or "".

        An unknown host name is DNS rebinding by another page; another origin is a page elsewhere that makes the browser
        of a user send a request.
        """
        host = host_name(headers.get("host", ""))
        if host not in self._hosts:
            return f"this console is not {host or 'nameless'}: start it with --hostname {host} if it shall be"
        changes = scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS
        origin = headers.get("origin")
        if changes and origin is not None and host_and_port(origin) != headers.get("host"):
            return "another site may not ask this of the console"
        if changes and origin is None and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "another site may not ask this of the console"
        return ""

    async def _session(self, token: str | None, *, by_user: bool) -> Session | None:
        session = self._sessions.find(token, by_user=by_user)
        if session is not None and self._renewals is not None:
            await self._renewals.await_renewal(session)
        if session is None or session.over.is_set() or not self._knows(session):
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
            return await refuse(scope, receive, send, "log in first")
        here = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        if not self._has_logins:
            return await self._begin(scope, send, self._sessions.begin(""), local_path(quote(here, safe="/?&=%")))
        if scope["path"].startswith("/_nicegui"):
            return await refuse(scope, receive, send, "log in first")
        return await redirect(send, f"{LOGIN}?next={quote(here, safe='')}")

    async def _log_in_or_out(self, scope: Any, receive: Any, send: Any, token: str | None) -> None:
        asked = parse_qs(scope["query_string"].decode("latin-1"))
        to = local_path(asked.get("next", ["/"])[0])
        if scope["path"] == LOGOUT:
            over = self._sessions.end(token) if scope["method"] == "POST" else None
            return await self._logged_out(send, over)
        if self._oidc is not None:
            return await self._issuer_page(send, 200, to, self._sessions.why_over(token))
        if self._users is None:
            return await redirect(send, "/")
        if scope["method"] != "POST":
            return await answer(send, 200, login_page(to, ""))
        form = parse_qs((await read_form(receive)).decode("utf-8", "replace"), keep_blank_values=True)
        name, password = (form.get(field, [""])[0] for field in ("name", "password"))
        return await self._log_in(scope, send, name, password, to)

    async def _log_in(self, scope: Any, send: Any, name: str, password: str, to: str) -> None:
        assert self._users is not None
        address, _ = came_from(scope, read_headers(scope), self._proxies)
        keys = (f"name {name[:200]}", f"address {address}")
        if self._attempts.must_wait(*keys):
            return await answer(send, 429, login_page(to, TOO_MANY))
        try:
            async with self._hashing:
                if self._attempts.must_wait(*keys):  # others failed while this one waited for its turn
                    return await answer(send, 429, login_page(to, TOO_MANY))
                is_right = await asyncio.to_thread(self._users.check, name, password)
        except ConfigError:
            return await answer(
                send, 503, login_page(to, "The file of users cannot be read: see the console's output.")
            )
        if not is_right:
            self._attempts.failed(*keys)
            return await answer(send, 401, login_page(to, "This name and password do not match."))
        return await self._begin(scope, send, self._sessions.begin(name), to)

    async def _logged_out(self, send: Any, session: Session | None) -> None:
        """To the login; from a login at an issuer over there, so that the next one does not go without a question."""
        if self._oidc is not None and session is not None and session.grant is not None:
            self._oidc.revoke(session.grant)
            to, fields = await self._oidc.end_session(session.grant)
            if to:
                page = logged_out_page(to, fields, self._oidc.config.issuer)
                return await answer(send, 200, page, policy=FORM_TO_ISSUER)
        return await redirect(send, LOGIN if self._has_logins else "/")

    async def _issuer_page(self, send: Any, status: int, to: str, text: str) -> None:
        assert self._oidc is not None
        begin = f"{BEGIN}?next={quote(to, safe='')}"
        await answer(send, status, issuer_page(begin, self._oidc.config.issuer, text))

    async def _at_issuer(self, oidc: OidcLogins, scope: Any, headers: dict[str, str], send: Any) -> None:
        """To the issuer, and back from it."""
        asked = {name: values[0] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}
        try:
            if scope["path"] == BEGIN:
                where, begun = await oidc.begin(local_path(asked.get("next", "/")))
                kept = self._login_cookie(scope, headers, begun.state, oidc.sealed(begun), LASTS_S)
                return await redirect(send, where, kept)
            begun = oidc.returned(asked, read_cookie(headers, self._login_name(asked.get("state", ""))))
            found = await self._exchange_code(oidc, scope, headers, begun, asked["code"])
        except LoginError as error:
            return await self._issuer_page(send, 401, "/", f"{error}.")
        if found is None:
            return await self._issuer_page(send, 429, "/", TOO_MANY_LOGINS)
        over = self._login_cookie(scope, headers, begun.state, "", 0)
        identity, grant = found
        token = self._sessions.begin(identity.user, identity.groups, grant)
        return await self._begin(scope, send, token, begun.next_path, over)

    async def _exchange_code(
        self, oidc: OidcLogins, scope: Any, headers: dict[str, str], begun: Begun, code: str
    ) -> tuple[Identity, Grant] | None:
        """The user who logged in; None for an address that failed too often. Raises LoginError."""
        address, _ = came_from(scope, headers, self._proxies)
        key = f"address {address}"
        if self._attempts.must_wait(key):
            return None
        async with self._asking:
            if self._attempts.must_wait(key):  # others failed while this one waited for its turn
                return None
            try:
                return await oidc.identity(begun, code)
            except LoginError:
                self._attempts.failed(key)
                raise

    def _login_name(self, state: str) -> str:
        return f"{self._cookie}-login-{state[:NAMED_BY]}"

    def _login_cookie(
        self, scope: Any, headers: dict[str, str], state: str, value: str, lasts_s: float
    ) -> tuple[bytes, bytes]:
        kept = f"{self._login_name(state)}={value}; Path={CALLBACK}; Max-Age={lasts_s:.0f}; HttpOnly; SameSite=Lax"
        return b"set-cookie", (kept + "; Secure" * self._is_secure(scope, headers)).encode()

    async def _begin(self, scope: Any, send: Any, token: str, to: str, *headers: tuple[bytes, bytes]) -> None:
        """Give the browser the cookie of a session that was begun."""
        cookie = f"{self._cookie}={token}; Path=/; HttpOnly; SameSite=Lax"
        secure = self._is_secure(scope, read_headers(scope))
        await redirect(send, to, (b"set-cookie", (cookie + "; Secure" * secure).encode()), *headers)

    def _is_secure(self, scope: Any, headers: dict[str, str]) -> bool:
        _, by_proxy = came_from(scope, headers, self._proxies)
        # Of several proxies the first one has the browser.
        scheme = headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
        return self._secure or (by_proxy and scheme == "https")
