"""Logins that were begun at an issuer and are not finished: each is bound to its browser, and ends once, in minutes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from odradek.console.oidc import Identity, IssuerClient, LoginError, OidcConfig, authorization_url

BEGIN = "/oidc/begin"
LASTS_S = 600.0
MAX_BEGUN = 1_000


@dataclass(frozen=True, slots=True)
class _Begun:
    browser: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    next_path: str
    at_s: float


class OidcLogins:
    """The logins of one console."""

    def __init__(self, config: OidcConfig, clock: Callable[[], float], wall: Callable[[], float] = time.time) -> None:
        self.config = config
        self._issuer = IssuerClient(config)
        self._clock = clock
        self._wall = wall
        self._begun: dict[str, _Begun] = {}

    async def begin(self, next_path: str) -> tuple[str, str]:
        """Begin a login; returns where the browser goes, and what its cookie holds meanwhile. Raises LoginError."""
        endpoints = await asyncio.to_thread(self._issuer.endpoints)
        state, browser, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(4))
        now = self._clock()
        for key in [key for key, each in self._begun.items() if now - each.at_s >= LASTS_S]:
            del self._begun[key]
        while len(self._begun) >= MAX_BEGUN:
            self._begun.pop(next(iter(self._begun)))
        self._begun[state] = _Begun(_hashed(browser), nonce, verifier, next_path, now)
        return authorization_url(endpoints, self.config, state, nonce, verifier), browser

    async def finish(self, asked: Mapping[str, str], browser: str | None) -> tuple[Identity, str]:
        """Who came back from the issuer, and the path where they wanted to go. Raises LoginError."""
        begun = self._begun.pop(asked.get("state", ""), None)
        if begun is None or self._clock() - begun.at_s >= LASTS_S:
            raise LoginError("this login was not begun here, took too long, or is finished; begin again")
        if not hmac.compare_digest(begun.browser, _hashed(browser or "")):
            raise LoginError("this login was begun in another browser; begin again")
        if asked.get("iss", self.config.issuer) != self.config.issuer:  # RFC 9207
            raise LoginError("this login comes from another issuer")
        if "code" not in asked:
            raise LoginError(f"the issuer refused: {asked.get('error', 'no code')[:100]}")
        token = await asyncio.to_thread(self._issuer.id_token, asked["code"], begun.verifier)
        identity = await asyncio.to_thread(self._issuer.identity, token, begun.nonce, self._wall())
        return identity, begun.next_path


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
