"""Tokens that end: when another one is asked for, and what becomes of a session whose issuer says no, or nothing."""

from __future__ import annotations

import asyncio
from typing import cast

from odradek.console.oidc import Identity, IssuerUnreachableError, LoginError
from odradek.console.oidc_logins import OidcLogins
from odradek.console.renewals import AHEAD_S, BORNE_S, RETRY_S, Renewals
from odradek.console.sessions import ISSUER_ENDED, Grant, Session, Sessions

ENDS_S = 1000.0
NEXT = Identity("alice", frozenset({"dev"}), "1", 0.0)


class Issuer:
    """Answers what a test has set."""

    def __init__(self, answer: Identity | Exception) -> None:
        self.answer = answer
        self.asked = 0

    async def renewed(self, before: Grant) -> tuple[Identity, Grant]:
        self.asked += 1
        for _ in range(10):
            await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer, grant(ends_s=ENDS_S + 300)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def grant(refresh_token: str = "r", ends_s: float = ENDS_S) -> Grant:
    return Grant("a.b.c", refresh_token, "n", "1", ends_s)


def session(given: Grant | None) -> Session:
    return Session("alice", 0.0, 0.0, frozenset({"ops"}), given)


async def settled(issuer: Issuer, now_s: float, given: Session, times: int = 1) -> Session:
    clock = Clock()
    clock.now_s = now_s
    renewals = Renewals(cast(OidcLogins, issuer), clock)
    await asyncio.gather(*(renewals.settle(given) for _ in range(times)))
    return given


async def test_a_token_is_asked_for_shortly_before_the_old_one_ends() -> None:
    clock = Clock()
    renewals = Renewals(cast(OidcLogins, Issuer(NEXT)), clock)
    one = session(grant())
    for now_s, is_due in ((ENDS_S - AHEAD_S - 1, False), (ENDS_S - AHEAD_S, True)):
        clock.now_s = now_s
        assert renewals.is_due(one) is is_due
        assert not renewals.is_due(session(grant(refresh_token="")))
        assert not renewals.is_due(session(None))
    renewals.look(one)
    assert not renewals.is_due(one), "it was just asked for"
    assert one.grant is not None
    one.grant.ends_s, clock.now_s = ENDS_S, ENDS_S - AHEAD_S + RETRY_S
    assert renewals.is_due(one)
    one.end()
    assert not renewals.is_due(one)


async def test_all_requests_of_a_session_wait_for_one_question() -> None:
    issuer = Issuer(NEXT)
    found = await settled(issuer, ENDS_S, session(grant()), times=3)
    assert issuer.asked == 1
    assert found.groups == {"dev"}
    assert found.grant is not None
    assert found.grant.ends_s == ENDS_S + 300
    assert not found.over.is_set()


async def test_a_refusal_and_another_user_end_the_session_for_its_user_to_know() -> None:
    for answer in (LoginError("no"), ValueError("what is this"), Identity("bob", frozenset(), "1", 0.0)):
        found = await settled(Issuer(answer), ENDS_S, session(grant()))
        assert found.over.is_set()
        assert found.why == ISSUER_ENDED


async def test_an_issuer_that_does_not_answer_is_borne_for_a_while() -> None:
    for late_s, is_over in ((BORNE_S - 1, False), (BORNE_S, True)):
        found = await settled(Issuer(IssuerUnreachableError("away")), ENDS_S + late_s, session(grant()))
        assert found.over.is_set() is is_over
        assert found.groups == {"ops"}


def test_without_a_refresh_token_the_session_ends_with_the_token() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    token = sessions.begin("alice", grant=grant(refresh_token=""))
    renewed = sessions.begin("alice", grant=grant())
    clock.now_s = ENDS_S - 1
    assert sessions.find(token) is not None
    assert sessions.why_over(token) == ""
    clock.now_s = ENDS_S
    assert sessions.find(token) is None
    assert sessions.why_over(token) == ISSUER_ENDED
    assert sessions.find(renewed) is not None
    found = sessions.end(renewed)
    assert found is not None
    assert found.why == sessions.why_over(renewed) == ""


def test_what_an_issuer_gave_is_not_printed() -> None:
    assert "a.b.c" not in repr(session(grant("secret")))
    assert "secret" not in repr(session(grant("secret")))
