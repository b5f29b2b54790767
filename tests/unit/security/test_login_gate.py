"""One connection's login: the requests that are served in each state, expired sessions, and re-authentication."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.security.sasl.config import SaslConfig
from odradek.security.sasl.exchange import Exchange, LoggedIn, plain
from odradek.security.sasl.listener import ListenerSasl
from odradek.server.network.login_gate import LOGIN_TIMEOUT_MS, Answer, LoginGate

EARLY = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}
ALICE, BOB = b"\0alice\0secret", b"\0bob\0other"
WALL_MS = 10**12


def token(ends_ms: int) -> Exchange:
    """A mechanism that believes all, for a time."""
    yield b""
    return LoggedIn("alice", expires_at_ms=WALL_MS + ends_ms)


def gate(ends_ms: int = 50, *, max_reauth_ms: int = 0, **config: Any) -> LoginGate:
    mechanisms = {"PLAIN": lambda: plain({"alice": "secret", "bob": "other"}), "TOKEN": lambda: token(ends_ms)}
    limits = dict.fromkeys(mechanisms, max_reauth_ms)
    return LoginGate(ListenerSasl("EXTERNAL", SaslConfig(**config), mechanisms, max_reauth_ms=limits), now_ms=0)


def hear(gate: LoginGate, message: bytes, now_ms: int = 0) -> Answer:
    return gate.evaluate(message, "peer", now_ms, WALL_MS)


def log_in(gate: LoginGate, message: bytes = ALICE, now_ms: int = 0, mechanism: str = "PLAIN") -> Answer:
    assert gate.begin(mechanism, 1, now_ms) == ErrorCode.NONE
    return hear(gate, message, now_ms)


def served(gate: LoginGate, now_ms: int = 0) -> set[int]:
    return {key for key in ApiKey if not gate.refusal(key, now_ms)}


def test_requests_served_at_each_step_of_a_login() -> None:
    login = gate()
    assert served(login) == EARLY
    assert login.begin("PLAIN", 1, 0) == ErrorCode.NONE
    assert served(login) == {ApiKey.SASL_AUTHENTICATE}
    assert hear(login, ALICE) == Answer()
    assert (login.user, login.is_open, served(login)) == ("alice", True, set(ApiKey))


@pytest.mark.parametrize("message", [BOB + b"wrong", b"\0alice\0", b"x" * 101])
def test_after_a_failure_nothing_is_served(message: bytes) -> None:
    login = gate(max_receive_bytes=100)
    assert log_in(login, message).code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (login.user, served(login)) == ("", set())
    assert login.listener.counts_of("PLAIN").failed == 1


def test_an_unknown_mechanism_ends_it() -> None:
    login = gate()
    assert login.begin("GSSAPI", 1, 0) == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert served(login) == set()


def test_a_session_ends_where_the_client_does_not_log_in_again() -> None:
    login = gate(max_reauth_ms=1000)
    assert log_in(login).session_ms == 1000
    assert served(login, 999) == set(ApiKey)
    assert served(login, 1000) == {ApiKey.SASL_HANDSHAKE}
    assert login.listener.sessions_expired == len(ApiKey) - 1


@pytest.mark.parametrize(
    ("token_ms", "setting_ms", "session_ms"), [(50, 0, 50), (50, 20, 20), (20, 50, 20), (-5, 0, 1)]
)
def test_a_session_ends_with_what_ends_first(token_ms: int, setting_ms: int, session_ms: int) -> None:
    assert log_in(gate(token_ms, max_reauth_ms=setting_ms), b"", mechanism="TOKEN").session_ms == session_ms


def test_the_same_user_logs_in_again() -> None:
    login = gate(max_reauth_ms=1000)
    log_in(login)
    assert login.begin("PLAIN", 1, 900) == ErrorCode.NONE
    assert served(login, 900) == {ApiKey.SASL_AUTHENTICATE}
    assert hear(login, ALICE, 900).session_ms == 1000
    assert served(login, 1899) == set(ApiKey)
    assert login.listener.counts_of("PLAIN").reauthentications == 1
    # A login may not begin at once: it costs more than other requests.
    assert login.begin("PLAIN", 1, 1000) == ErrorCode.ILLEGAL_SASL_STATE
    assert login.is_open


def test_another_user_or_mechanism_does_not_take_over_a_connection() -> None:
    login = gate()
    log_in(login)
    assert log_in(login, BOB).code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (login.is_open, served(login)) == (False, set())
    assert login.listener.counts_of("PLAIN").reauthentications_failed == 1
    login = gate()
    log_in(login)
    assert login.begin("TOKEN", 1, 0) == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_a_client_that_does_not_log_in_is_noticed() -> None:
    login = gate()
    assert login.slowness(LOGIN_TIMEOUT_MS - 1) == ""
    assert "did not log in" in login.slowness(LOGIN_TIMEOUT_MS)
    login.restart_timeout(1000)
    assert login.slowness(LOGIN_TIMEOUT_MS) == ""
    log_in(login)
    assert login.slowness(10**9) == ""
