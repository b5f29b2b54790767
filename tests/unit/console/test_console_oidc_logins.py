"""Logins that were begun: the cookie that a browser keeps, and its verification."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.console.oidc import Granted, IssuerUnreachableError, LoginError, OidcConfig
from odradek.console.oidc_logins import LASTS_S, Begun, OidcLogins
from odradek.console.sessions import Grant

CONFIG = OidcConfig("https://127.0.0.1:1", "console", "https://console.example.org")
BEGUN = Begun("the state", "the nonce", "the verifier", "/c/one", 1000.0)
ASKED = {"state": "the state", "code": "x"}


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_login_is_read_by_the_console_alone() -> None:
    logins = OidcLogins(CONFIG, Clock())
    cookie = logins.sealed(BEGUN)
    assert logins.returned(ASKED, cookie) == BEGUN
    assert b"verifier" not in bytes.fromhex(cookie)
    assert logins.sealed(BEGUN) != cookie
    last = "0" if cookie[-1] != "0" else "1"
    for other in (None, "", "x", "00", cookie[:-1] + last, cookie[2:], OidcLogins(CONFIG, Clock()).sealed(BEGUN)):
        with pytest.raises(LoginError, match="not begun in this browser"):
            logins.returned(ASKED, other)


def test_a_login_is_for_one_answer_in_time() -> None:
    clock = Clock()
    logins = OidcLogins(CONFIG, clock)
    cookie = logins.sealed(BEGUN)
    for asked, line in (
        ({"code": "x"}, "another login"),
        ({**ASKED, "state": "the state\udcff"}, "another login"),
        ({**ASKED, "iss": "https://evil.example"}, "another issuer"),
        ({"state": "the state", "error": "denied"}, "the issuer refused: denied"),
    ):
        with pytest.raises(LoginError, match=line):
            logins.returned(asked, cookie)
    clock.now_s += LASTS_S
    with pytest.raises(LoginError, match="took too long"):
        logins.returned(ASKED, cookie)


async def test_a_new_refresh_token_is_kept_though_the_keys_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Issuer:
        def renewed(self, refresh_token: str) -> Granted:
            return Granted("a.b.c", f"after {refresh_token}")

        def identity(self, *_: Any, **__: Any) -> None:
            raise IssuerUnreachableError("the keys")

    logins = OidcLogins(CONFIG, Clock())
    monkeypatch.setattr(logins, "_issuer", Issuer())
    grant = Grant("a.b.c", "first", "n", "1", 0.0)
    for known in ("after first", "after after first"):
        with pytest.raises(IssuerUnreachableError):
            await logins.renewed(grant)
        assert grant.refresh_token == known
