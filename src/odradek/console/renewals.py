"""Sessions whose tokens end: the issuer is asked for another one, and whether the user is still who they were.

One question for a session at a time. An issuer that says no ends the session; one that does not answer is asked again,
and sessions go on meanwhile for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.common.log_lines import get_logger
from odradek.console.oidc import SKEW_S, IssuerUnreachableError, LoginError
from odradek.console.oidc_logins import OidcLogins
from odradek.console.sessions import ISSUER_ENDED, Grant, Session

# Before a token ends it is asked for another one: a grant ends later than its token, by what clocks may differ.
AHEAD_S = SKEW_S + 60.0
# From the end of one question to the next one: a question to an issuer that drops packets takes longer than that.
RETRY_S = 15.0
# A session outlives its token by so much where the issuer does not answer.
BORNE_S = 600.0
# Each waits for the issuer on a thread.
ASKED_AT_ONCE = 4
_log = get_logger("console")


class Renewals:
    """Renews what an issuer says of the users of one console."""

    def __init__(self, oidc: OidcLogins, clock: Callable[[], float]) -> None:
        self._oidc = oidc
        self._clock = clock
        self._turns = asyncio.Semaphore(ASKED_AT_ONCE)
        self._running: dict[int, asyncio.Task[None]] = {}
        # Set while the issuer did not answer the last question that ended.
        self._away = asyncio.Event()

    def look(self, session: Session) -> None:
        """Ask for another token where the session's ends soon; a page that is open does so again and again."""
        self._begun(session)

    async def settle(self, session: Session) -> None:
        """The same, and wait for the answer where the token has ended: a request is not served on an old word.

        Where the issuer does not answer anyone, the old word is borne for a while, without waiting.
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
        """Whether another token is to be asked for now."""
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
        """Never raises: those who wait look at the session."""
        grant = session.grant
        assert grant is not None
        try:
            async with self._turns:
                await self._ask(session, grant)
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
            # Of the grant that is there now: the next question comes no sooner for a token that ends soon, too.
            (session.grant or grant).tried_s = self._clock()

    async def _ask(self, session: Session, grant: Grant) -> None:
        identity, renewed = await self._oidc.renewed(grant)
        self._away.clear()
        if identity.user != session.user:
            self._end(session, "the issuer names another user")
            return
        session.grant, session.groups = renewed, identity.groups

    def _end(self, session: Session, reason: str) -> None:
        session.end(ISSUER_ENDED)
        _log.warning("the issuer of logins ended a session", user=session.user, reason=reason)
