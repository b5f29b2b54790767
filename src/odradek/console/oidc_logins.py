"""Logins that were begun at an issuer and are not finished: their browsers keep them, in cookies that only we read.

Nothing is kept here of those who only begin, so that no one takes another one's place.
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
    end_session_url,
)
from odradek.console.sessions import Grant

BEGIN = "/oidc/begin"
LASTS_S = 600.0
# A browser takes 4 KB in a cookie; who wanted a path that is longer gets the first page.
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
        """Begin a login; returns where the browser goes, and what its cookie holds meanwhile. Raises LoginError."""
        endpoints = await self._endpoints()
        state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
        begun = Begun(state, nonce, verifier, next_path if len(next_path) <= MAX_PATH else "/", self._clock())
        return authorization_url(endpoints, self.config, state, nonce, verifier), begun

    def sealed(self, begun: Begun) -> str:
        """The value of a cookie."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return (nonce + self._cipher.encrypt(nonce, json.dumps(asdict(begun)).encode(), None)).hex()

    def returned(self, asked: Mapping[str, str], cookie: str | None) -> Begun:
        """The login with which a browser came back. Asks the issuer nothing. Raises LoginError."""
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
        """Who logged in, as the issuer says. Raises LoginError."""
        granted = await asyncio.to_thread(self._issuer.tokens_for, code, begun.verifier)
        identity = await asyncio.to_thread(self._issuer.identity, granted.id_token, begun.nonce, self._wall())
        return identity, self._grant(granted, identity, begun.nonce)

    async def renewed(self, grant: Grant) -> tuple[Identity, Grant]:
        """What the issuer says now of someone who logged in. Raises LoginError."""
        granted = await asyncio.to_thread(self._issuer.renewed, grant.refresh_token)
        # The old one may be good no more, also where what follows fails and is tried again.
        grant.refresh_token = granted.refresh_token
        identity = await asyncio.to_thread(
            self._issuer.identity, granted.id_token, grant.nonce, self._wall(), is_renewed=True
        )
        if identity.subject != grant.subject:
            raise LoginError("the issuer speaks of somebody else")
        return identity, self._grant(granted, identity, grant.nonce)

    async def end_session_url(self, grant: Grant) -> str:
        """Where a browser logs out of the issuer, too; "" where that is nowhere."""
        try:
            return end_session_url(await self._endpoints(), self.config, grant.id_token)
        except LoginError:
            return ""

    def revoke(self, grant: Grant) -> None:
        """Begin to have a refresh token end of someone who logged out; a failure gets a line in the log."""
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
        """All who wait for the description of the issuer wait for one thread, which may take long."""
        if self._describing is None or self._describing.done():
            self._describing = asyncio.create_task(asyncio.to_thread(self._issuer.endpoints))
            # Those who wait may go: what went wrong is then heard by none.
            self._describing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return await asyncio.shield(self._describing)

    def _opened(self, cookie: str) -> Begun | None:
        from cryptography.exceptions import InvalidTag

        try:
            data = bytes.fromhex(cookie)
            return Begun(**json.loads(self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], None)))
        except (ValueError, InvalidTag):
            return None
