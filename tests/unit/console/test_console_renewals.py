"""Tokens that expire: the time of their renewal, and sessions whose issuer refuses it or does not answer."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from odradek.common.log_lines import LineFormatter
from odradek.console.oidc import Granted, Identity, IssuerUnreachableError, LoginError, OidcConfig
from odradek.console.oidc_logins import OidcLogins
from odradek.console.renewals import AHEAD_S, ASKED_AT_ONCE, BORNE_S, RETRY_S, Renewals
from odradek.console.sessions import ISSUER_ENDED, Grant, Session, Sessions
from tests.support.waiting import PATIENCE_S

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
    await asyncio.gather(*(renewals.await_renewal(given) for _ in range(times)))
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
    renewals.check(one)
    assert not renewals.is_due(one), "it is being asked for"
    await answered(renewals)
    assert one.grant is not None
    # The new one ends soon, too.
    one.grant.ends_s = ENDS_S
    for after_s, is_due in ((0.0, False), (RETRY_S - 1, False), (RETRY_S, True)):
        clock.now_s = ENDS_S - AHEAD_S + after_s
        assert renewals.is_due(one) is is_due
    one.end()
    assert not renewals.is_due(one)


async def answered(renewals: Renewals) -> None:
    await asyncio.gather(*renewals._running.values())


def test_a_token_is_asked_for_a_minute_before_it_ends_itself() -> None:
    clock = Clock()
    logins = OidcLogins(OidcConfig("https://127.0.0.1:1", "console", "https://c.d"), clock, clock)
    one = session(logins._grant(Granted("a.b.c", "r"), Identity("alice", ends_at_s=ENDS_S), "n"))
    for now_s, is_due in ((ENDS_S - 61, False), (ENDS_S - 60, True)):
        clock.now_s = now_s
        assert Renewals(logins, clock).is_due(one) is is_due


async def test_the_next_question_is_counted_from_the_end_of_the_one_before() -> None:
    clock = Clock()
    issuer = Silent()
    renewals = Renewals(cast(OidcLogins, issuer), clock)
    clock.now_s = ENDS_S - AHEAD_S
    one = session(grant())
    renewals.check(one)
    await asyncio.sleep(0)
    clock.now_s += 20
    issuer.gives_up.set()
    await answered(renewals)
    assert not renewals.is_due(one)
    clock.now_s += RETRY_S
    assert renewals.is_due(one)


async def test_requests_do_not_wait_for_an_issuer_that_is_silent() -> None:
    clock = Clock()
    issuer = Silent()
    renewals = Renewals(cast(OidcLogins, issuer), clock)
    clock.now_s = ENDS_S
    sessions = [session(grant()) for _ in range(2 * ASKED_AT_ONCE)]
    async with asyncio.timeout(PATIENCE_S):
        waiting = [asyncio.ensure_future(renewals.await_renewal(each)) for each in sessions]
        await asyncio.sleep(0)
        issuer.gives_up.set()
        await asyncio.gather(*waiting)  # also those whose turn has not come
        await answered(renewals)
        issuer.gives_up.clear()
        clock.now_s += BORNE_S - 1
        for each in sessions:
            await renewals.await_renewal(each)
            assert not each.over.is_set()
        clock.now_s += 1
        late = asyncio.ensure_future(renewals.await_renewal(sessions[0]))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not late.done(), "it was borne for long enough"
        issuer.gives_up.set()
        await late
    assert sessions[0].over.is_set()
    await answered(renewals)


class Silent:
    """Drops packets, until the one who asks gives up."""

    def __init__(self) -> None:
        self.gives_up = asyncio.Event()

    async def renewed(self, before: Grant) -> tuple[Identity, Grant]:
        await self.gives_up.wait()
        raise IssuerUnreachableError("timed out")


async def test_all_requests_of_a_session_wait_for_one_question() -> None:
    issuer = Issuer(NEXT)
    found = await settled(issuer, ENDS_S, session(grant()), times=3)
    assert issuer.asked == 1
    assert found.groups == {"dev"}
    assert found.grant is not None
    assert found.grant.ends_s == ENDS_S + 300
    assert not found.over.is_set()


async def test_a_refusal_and_another_user_end_the_session_for_its_user_to_know(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for answer, line in (
        (LoginError("the issuer answers with status 400"), 'reason="the issuer answers with status 400"'),
        (ValueError("what is this"), "what is this"),
        (Identity("bob", frozenset(), "1", 0.0), 'reason="the issuer names another user"'),
    ):
        caplog.clear()
        found = await settled(Issuer(answer), ENDS_S, session(grant("secret")))
        assert found.over.is_set()
        assert found.why == ISSUER_ENDED
        assert found.groups == {"ops"}, "those of another user are not its own"
        said = "".join(LineFormatter().format(each) for each in caplog.records)
        assert line in said
        assert "secret" not in said


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


def test_tokens_of_an_issuer_are_not_printed() -> None:
    assert "a.b.c" not in repr(session(grant("secret")))
    assert "secret" not in repr(session(grant("secret")))
