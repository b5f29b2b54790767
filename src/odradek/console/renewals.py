"""Renews the tokens of sessions at the issuer, and checks that the user is unchanged.

There is one request for a session at a time. A refusal of the issuer ends the session. If the issuer does not respond,
the request is retried, and the session stays valid for a limited time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.common.log_lines import get_logger
from odradek.console.oidc import SKEW_S, IssuerUnreachableError, LoginError
from odradek.console.oidc_logins import OidcLogins
from odradek.console.sessions import ISSUER_ENDED, Grant, Session

# The time before the expiry at which a token is renewed; a grant ends later than its token, by the clock tolerance.
AHEAD_S = SKEW_S + 60.0
# From the end of one question to the next one: a question to an issuer that drops packets takes longer than that.
RETRY_S = 15.0
# A session outlives its token by so much where the issuer does not answer.
BORNE_S = 600.0
# Each waits for the issuer on a thread.
ASKED_AT_ONCE = 4
_log = get_logger("console")


class Renewals:
    """Renews the tokens of the users of one console."""

    def __init__(self, oidc: OidcLogins, clock: Callable[[], float]) -> None:
        self._oidc = oidc
        self._clock = clock
        self._turns = asyncio.Semaphore(ASKED_AT_ONCE)
        self._running: dict[int, asyncio.Task[None]] = {}
        # Set while the issuer did not answer the last question that ended.
        self._away = asyncio.Event()

    def check(self, session: Session) -> None:
        """Start a renewal if the session's token expires soon; an open page calls this periodically."""
        self._begun(session)

    async def await_renewal(self, session: Session) -> None:
        """Begin a renewal, and wait for it if the token has expired, so that no request uses an expired token.

        If the issuer does not respond, the expired token is accepted for a limited time, without a wait.
        """
        task = self._begun(session)
        grant = session.grant
        if task is None or grant is None or self._clock() < grant.ends_s:
            return
        if self._clock() >= grant.ends_s + BORNE_S:
            await asyncio.shield(task)
            return
        away = asyncio.create_task(self._away.wait())
        try:
            await asyncio.wait({task, away}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            away.cancel()

    def is_due(self, session: Session) -> bool:
        """Whether the token should be renewed now."""
        grant, now = session.grant, self._clock()
        return (
            grant is not None
            and bool(grant.refresh_token)
            and not session.over.is_set()
            and id(session) not in self._running
            and now >= grant.ends_s - AHEAD_S
            and now >= grant.tried_s + RETRY_S
        )

    def _begun(self, session: Session) -> asyncio.Task[None] | None:
        task = self._running.get(id(session))
        if task is None and self.is_due(session):
            task = self._running[id(session)] = asyncio.create_task(self._renew(session))
            task.add_done_callback(lambda _: self._running.pop(id(session), None))
        return task

    async def _renew(self, session: Session) -> None:
        """Renew the token. Never raises: callers check the session."""
        grant = session.grant
        assert grant is not None
        try:
            async with self._turns:
                await self._renew_token(session, grant)
        except IssuerUnreachableError as error:
            self._away.set()
            reason = str(error)
            _log.warning("the issuer of logins cannot be asked", alike=reason, user=session.user, reason=reason)
            if self._clock() >= grant.ends_s + BORNE_S:
                self._end(session, "the issuer did not answer for too long")
        except LoginError as error:
            self._away.clear()
            self._end(session, str(error))
        except Exception as error:
            session.end(ISSUER_ENDED)
            _log.bug("a token could not be renewed", error)
        finally:
            # Of the present grant: the next attempt comes no sooner, even for a token that expires soon.
            (session.grant or grant).tried_s = self._clock()

    async def _renew_token(self, session: Session, grant: Grant) -> None:
        identity, renewed = await self._oidc.renewed(grant)
        self._away.clear()
        if identity.user != session.user:
            self._end(session, "the issuer names another user")
            return
        session.grant, session.groups = renewed, identity.groups

    def _end(self, session: Session, reason: str) -> None:
        session.end(ISSUER_ENDED)
        _log.warning("the issuer of logins ended a session", user=session.user, reason=reason)
