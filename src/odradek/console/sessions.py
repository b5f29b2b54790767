"""Sessions of logged-in users, and the limit of wrong passwords. In memory: a restart ends all sessions."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

LASTS_S = 12 * 3600.0
IDLE_S = 2 * 3600.0
MAX_SESSIONS = 10_000
ISSUER_ENDED = "The issuer's word on who you are has ended: log in again."
# So many wrong passwords for one name, or from one address, within this time; then the answer is to wait.
FAILURES, FAILURES_WITHIN_S = 5, 60.0
MAX_COUNTED = 10_000


@dataclass(slots=True)
class Grant:
    """The tokens of a login. They stay in this process, except the ID token, which a logout returns to the issuer.

    Attributes:
        refresh_token: "" if there is none: the session then ends with the token.
        subject: the id of the user at the issuer.
        ends_s: the expiry of the token, by the clock of sessions; tried_s: the end of the last attempt to renew it.
    """

    id_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    nonce: str = field(repr=False)
    subject: str
    ends_s: float
    tried_s: float = float("-inf")


@dataclass(slots=True)
class Session:
    """One browser of one user; "" is the user of a console without logins. `over` is set once.

    `groups` are those of the issuer; `why` is a text for the user, if the session ended by other causes than logout or
    age.
    """

    user: str
    began_s: float
    used_s: float
    groups: frozenset[str] = frozenset()
    grant: Grant | None = None
    why: str = ""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, why: str = "") -> None:
        """End it for ever."""
        if not self.over.is_set():
            self.why = why
            self.over.set()


class Sessions:
    """The sessions by the hash of their cookies, so that the memory contains no valid cookie."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._found: dict[str, Session] = {}

    def begin(self, user: str, groups: frozenset[str] = frozenset(), grant: Grant | None = None) -> str:
        """Begin a session; returns the cookie's value."""
        self._evict()
        token = secrets.token_urlsafe(32)
        now = self.clock()
        self._found[_hashed(token)] = Session(user, now, now, groups, grant)
        return token

    def find(self, token: str | None, *, by_user: bool = True) -> Session | None:
        """The session of a cookie, which is extended by actions of the user; None if it is over."""
        key = _hashed(token) if token else ""
        found = self._found.get(key)
        if found is None or not self.is_live(found):
            return None
        # The least recently used sessions are evicted first.
        self._found[key] = self._found.pop(key)
        if by_user:
            self.use(found)
        return found

    def use(self, session: Session) -> None:
        """A session is used, by a request or on a page that is open."""
        session.used_s = self.clock()

    def is_live(self, session: Session) -> bool:
        """Whether a session is valid, for open pages."""
        now = self.clock()
        grant = session.grant
        if now - session.began_s >= LASTS_S or now - session.used_s >= IDLE_S:
            session.end()
        elif grant is not None and not grant.refresh_token and now >= grant.ends_s:
            session.end(ISSUER_ENDED)
        return not session.over.is_set()

    def why_over(self, token: str | None) -> str:
        """The text for the user about the end of a session; else ""."""
        found = self._found.get(_hashed(token)) if token else None
        return found.why if found is not None and not self.is_live(found) else ""

    def end(self, token: str | None) -> Session | None:
        """End a session, and return it; its pages that are open end too."""
        found = self._found.pop(_hashed(token), None) if token else None
        if found is not None:
            found.end()
        return found

    def _evict(self) -> None:
        for key in [key for key, session in self._found.items() if not self.is_live(session)]:
            del self._found[key]
        while len(self._found) >= MAX_SESSIONS:
            self._found.pop(next(iter(self._found))).end()


class Attempts:
    """Counts wrong passwords by name and by address."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: dict[str, list[float]] = {}

    def must_wait(self, *keys: str) -> bool:
        """Whether one of these failed too often lately."""
        since = self._clock() - FAILURES_WITHIN_S
        return any(sum(at > since for at in self._failed.get(key, ())) >= FAILURES for key in keys)

    def failed(self, *keys: str) -> None:
        """A password was wrong."""
        now = self._clock()
        for key in keys:
            recent = [at for at in self._failed.pop(key, []) if at > now - FAILURES_WITHIN_S]
            self._failed[key] = [*recent[1 - FAILURES :], now]
        while len(self._failed) > MAX_COUNTED:
            self._failed.pop(next(iter(self._failed)))


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
