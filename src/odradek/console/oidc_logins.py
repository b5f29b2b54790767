"""Logins at an issuer that are not finished: browsers store them in encrypted cookies.

The console stores nothing for them, so that many begun logins cannot displace others.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from odradek.common.log_lines import get_logger
from odradek.console.oidc import (
    SKEW_S,
    Endpoints,
    Granted,
    Identity,
    IssuerClient,
    LoginError,
    OidcConfig,
    authorization_url,
    end_session_form,
)
from odradek.console.sessions import Grant

BEGIN = "/oidc/begin"
LASTS_S = 600.0
# A cookie has at most 4 KB; a login for a longer path is redirected to the first page.
MAX_PATH = 1_000
# By so much of the state the cookies of one browser differ: each of its tabs may begin a login.
NAMED_BY = 8
_NONCE_BYTES = 12
_log = get_logger("console")


@dataclass(frozen=True, slots=True)
class Begun:
    """A login that was begun."""

    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    next_path: str
    at_s: float


class OidcLogins:
    """The logins of one console."""

    def __init__(self, config: OidcConfig, clock: Callable[[], float], wall: Callable[[], float] = time.time) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self.config = config
        self._issuer = IssuerClient(config)
        self._clock = clock
        self._wall = wall
        self._cipher = AESGCM(AESGCM.generate_key(256))
        self._describing: asyncio.Task[Endpoints] | None = None
        self._revoking: set[asyncio.Task[None]] = set()

    async def begin(self, next_path: str) -> tuple[str, Begun]:
        """Begin a login; returns the address for the browser, and the content of its cookie. Raises LoginError."""
        endpoints = await self._endpoints()
        state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
        begun = Begun(state, nonce, verifier, next_path if len(next_path) <= MAX_PATH else "/", self._clock())
        return authorization_url(endpoints, self.config, state, nonce, verifier), begun

    def sealed(self, begun: Begun) -> str:
        """The value of a cookie."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return (nonce + self._cipher.encrypt(nonce, json.dumps(asdict(begun)).encode(), None)).hex()

    def returned(self, asked: Mapping[str, str], cookie: str | None) -> Begun:
        """The login of a browser that returns, without a request to the issuer. Raises LoginError."""
        begun = self._opened(cookie or "")
        if begun is None or self._clock() - begun.at_s >= LASTS_S:
            raise LoginError("this login was not begun in this browser, took too long, or is finished; begin again")
        if not hmac.compare_digest(begun.state.encode(), asked.get("state", "").encode(errors="surrogatepass")):
            raise LoginError("this is the answer to another login; begin again")
        if asked.get("iss", self.config.issuer) != self.config.issuer:  # RFC 9207
            raise LoginError("this login comes from another issuer")
        if "code" not in asked:
            raise LoginError(f"the issuer refused: {asked.get('error', 'no code')[:100]}")
        return begun

    async def identity(self, begun: Begun, code: str) -> tuple[Identity, Grant]:
        """The identity of the user, from the issuer. Raises LoginError."""
        granted = await asyncio.to_thread(self._issuer.tokens_for, code, begun.verifier)
        identity = await asyncio.to_thread(self._issuer.identity, granted.id_token, begun.nonce, self._wall())
        return identity, self._grant(granted, identity, begun.nonce)

    async def renewed(self, grant: Grant) -> tuple[Identity, Grant]:
        """The present identity of a logged-in user, from the issuer. Raises LoginError."""
        granted = await asyncio.to_thread(self._issuer.renewed, grant.refresh_token)
        # The old refresh token may be invalid now, even if the next step fails and is retried.
        grant.refresh_token = granted.refresh_token
        identity = await asyncio.to_thread(
            self._issuer.identity, granted.id_token, grant.nonce, self._wall(), is_renewed=True
        )
        if identity.subject != grant.subject:
            raise LoginError("the issuer speaks of somebody else")
        return identity, self._grant(granted, identity, grant.nonce)

    async def end_session(self, grant: Grant) -> tuple[str, dict[str, str]]:
        """(address, fields) of the form that logs a browser out of the issuer, too; the address may be ""."""
        try:
            where = (await self._endpoints()).end_session
        except LoginError:
            where = ""
        return where, end_session_form(self.config, grant.id_token)

    def revoke(self, grant: Grant) -> None:
        """Start to revoke a refresh token after a logout; an error is logged."""
        if grant.refresh_token:
            task = asyncio.create_task(self._revoke(grant.refresh_token))
            self._revoking.add(task)
            task.add_done_callback(self._revoking.discard)

    async def _revoke(self, refresh_token: str) -> None:
        try:
            await asyncio.to_thread(self._issuer.revoke, refresh_token)
        except LoginError as error:
            _log.warning("a refresh token was not revoked at a logout", reason=str(error))

    def _grant(self, granted: Granted, identity: Identity, nonce: str) -> Grant:
        """A token is believed for as long after its end as clocks may differ."""
        left_s = identity.ends_at_s + SKEW_S - self._wall()
        return Grant(granted.id_token, granted.refresh_token, nonce, identity.subject, self._clock() + left_s)

    async def _endpoints(self) -> Endpoints:
        """The endpoints; one thread reads them for all callers, which may take long."""
        if self._describing is None or self._describing.done():
            self._describing = asyncio.create_task(asyncio.to_thread(self._issuer.endpoints))
            # If all callers are cancelled, nothing reads the error.
            self._describing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return await asyncio.shield(self._describing)

    def _opened(self, cookie: str) -> Begun | None:
        from cryptography.exceptions import InvalidTag

        try:
            data = bytes.fromhex(cookie)
            return Begun(**json.loads(self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], None)))
        except (ValueError, InvalidTag):
            return None
