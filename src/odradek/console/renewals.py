"""Sessions whose tokens end: the issuer is asked for another one, and whether the user is still who they were.

One question for a session at a time. An issuer that says no ends the session; one that does not answer is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.common.log_lines import get_logger
from odradek.console.oidc import IssuerUnreachableError, LoginError
from odradek.console.oidc_logins import OidcLogins
from odradek.console.sessions import ISSUER_ENDED, Session

# Before a token ends it is asked for another one.
AHEAD_S = 60.0
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

    def look(self, session: Session) -> None:
        """Ask for another token where the session's ends soon; a page that is open does so again and again."""
        self._begun(session)

    async def settle(self, session: Session) -> None:
        """The same, and wait for the answer where the token has ended: a request is not served on an old word."""
        task = self._begun(session)
        if task is not None and session.grant is not None and self._clock() >= session.grant.ends_s:
            await asyncio.shield(task)

    def is_due(self, session: Session) -> bool:
        """Whether another token is to be asked for now."""
        grant, now = session.grant, self._clock()
        return (
            grant is not None
            and bool(grant.refresh_token)
            and not session.over.is_set()
            and now >= grant.ends_s - AHEAD_S
            and now >= grant.tried_s + RETRY_S
        )

    def _begun(self, session: Session) -> asyncio.Task[None] | None:
        task = self._running.get(id(session))
        if task is None and self.is_due(session):
            assert session.grant is not None
            session.grant.tried_s = self._clock()
            task = self._running[id(session)] = asyncio.create_task(self._renew(session))
            task.add_done_callback(lambda _: self._running.pop(id(session), None))
        return task

    async def _renew(self, session: Session) -> None:
        """Never raises: those who wait look at the session."""
        grant = session.grant
        assert grant is not None
        try:
            async with self._turns:
                identity, session.grant = await self._oidc.renewed(grant)
        except IssuerUnreachableError as error:
            if self._clock() >= grant.ends_s + BORNE_S:
                session.end(ISSUER_ENDED)
            _log.warning("the issuer of logins cannot be asked", user=session.user, reason=str(error))
        except LoginError:
            session.end(ISSUER_ENDED)
        except Exception as error:
            session.end(ISSUER_ENDED)
            _log.bug("a token could not be renewed", error)
        else:
            if identity.user != session.user:
                session.end(ISSUER_ENDED)
            session.groups = identity.groups
