"""Tokens of OAUTHBEARER: which are believed, and that none is that a client could have made."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from odradek.security.sasl.config import TokenConfig
from odradek.security.sasl.exchange import AuthenticationError, LoggedIn
from odradek.security.sasl.oauthbearer import oauthbearer
from odradek.security.sasl.tokens import PublicKeys, Token, TokenChecks, check_token, read_keys

NOW_MS = 1_800_000_000_000
NOW_S = NOW_MS // 1000
OURS = RSAKey.generate_key(2048, {"kid": "ours"})
CURVE = ECKey.generate_key("P-256", {"kid": "curve"})
FOREIGN = RSAKey.generate_key(2048, {"kid": "ours"})
DOCUMENT = json.dumps({"keys": [OURS.as_dict(private=False), CURVE.as_dict(private=False)]}).encode()
SETTINGS = TokenConfig(issuer="https://issuer", audience=("odradek", "other"))
CLAIMS = {"sub": "alice", "iss": "https://issuer", "aud": "odradek", "iat": NOW_S - 10, "exp": NOW_S + 60}


def keys() -> PublicKeys:
    return PublicKeys(read_keys(DOCUMENT))


def token(key: Any = OURS, header: dict[str, Any] | None = None, **claims: Any) -> str:
    """A signed token; a claim of None is left out."""
    said = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    protected = {"alg": "ES256" if key is CURVE else "RS256", "kid": key.kid} | (header or {})
    return jwt.encode({k: v for k, v in protected.items() if v is not None}, said, key)


def check(text: str, settings: TokenConfig = SETTINGS) -> Token:
    return check_token(text, keys(), settings, NOW_MS)


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("key", [OURS, CURVE])
def test_a_token_of_the_issuer_is_believed(key: Any) -> None:
    found = check(token(key, scope="read write"))
    assert found == Token("alice", (NOW_S + 60) * 1000, ("read", "write"))


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["some", "other"]},
        {"iat": NOW_S - 99, "exp": NOW_S - 29},
        {"iat": NOW_S + 29, "exp": NOW_S + 40},
        {"nbf": NOW_S},
        {"exp": NOW_S + 0.5},
    ],
)
def test_claims_that_hold(claims: dict[str, Any]) -> None:
    assert check(token(**claims)).name == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        {"iat": NOW_S - 99, "exp": NOW_S - 31},
        {"exp": None},
        {"iat": None},
        {"iat": NOW_S + 31, "exp": NOW_S + 60},
        {"nbf": NOW_S + 31},
        {"exp": NOW_S - 11},
        {"exp": "never"},
        {"exp": 1e300},
        {"exp": -1},
        {"exp": True},
        {"iss": None},
        {"iss": "https://issuer/"},
        {"aud": None},
        {"aud": "Odradek"},
        {"aud": ["some"]},
        {"aud": {"odradek": 1}},
        {"sub": None},
        {"sub": ""},
        {"sub": " "},
        {"sub": ["alice"]},
    ],
)
def test_claims_that_do_not_hold(claims: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationError):
        check(token(**claims))


def test_other_claims_may_name_the_user_and_the_scopes() -> None:
    settings = TokenConfig(issuer="https://issuer", audience=("odradek",), subject_claim="client", scope_claim="scp")
    assert check(token(client="robot", scp=["a", "b"]), settings) == Token("robot", (NOW_S + 60) * 1000, ("a", "b"))


def test_a_token_that_no_one_signed_leads_nowhere() -> None:
    for algorithm in ("none", "None", "NONE", ""):
        for signature in ("", "AAAA"):
            with pytest.raises(AuthenticationError):
                check(f"{part({'alg': algorithm, 'kid': 'ours'})}.{part(CLAIMS)}.{signature}")


def test_our_public_key_is_no_shared_secret() -> None:
    signed = f"{part({'alg': 'HS256', 'kid': 'ours'})}.{part(CLAIMS)}"
    for secret in (OURS.as_pem(private=False), OURS.as_der(private=False)):
        signature = base64.urlsafe_b64encode(hmac.digest(secret, signed.encode(), "sha256")).rstrip(b"=").decode()
        with pytest.raises(AuthenticationError):
            check(f"{signed}.{signature}")


def test_a_key_that_is_not_known_is_asked_for() -> None:
    known = keys()
    for header in ({"kid": "new"}, {"kid": None}, {"kid": ""}):
        known.asked_for_unknown = False
        with pytest.raises(AuthenticationError, match="unknown key"):
            check_token(token(OURS, header), known, SETTINGS, NOW_MS)
        assert known.asked_for_unknown
    with pytest.raises(AuthenticationError):
        check(token(FOREIGN))
    with pytest.raises(AuthenticationError):
        check(token(OURS, {"kid": "curve"}))


@pytest.mark.parametrize("name", ["jku", "jwk", "x5u"])
def test_a_token_does_not_bring_its_key(name: str) -> None:
    for key in (FOREIGN, OURS):
        value = key.as_dict(private=False) if name == "jwk" else "https://evil/keys"
        with pytest.raises(AuthenticationError):
            check(token(key, {name: value}))


@given(text=st.text(max_size=60) | st.from_regex(r"[A-Za-z0-9_-]{0,40}\.[A-Za-z0-9_-]{0,40}\.[A-Za-z0-9_-]{0,40}"))
def test_other_tokens_are_refused(text: str) -> None:
    with pytest.raises(AuthenticationError):
        check(text)


def test_a_changed_or_huge_token_is_refused() -> None:
    head, body, signature = token().split(".")
    nested = base64.urlsafe_b64encode(b"[" * 20_000).rstrip(b"=").decode()
    for text in (
        f"{head}.{part({**CLAIMS, 'sub': 'root'})}.{signature}",
        f"{head}.{body}.{signature[::-1]}",
        f"{nested}.{body}.{signature}",
        f"{head}.{body}",
        "a" * 100_000,
    ):
        with pytest.raises(AuthenticationError):
            check(text)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"keys":[]}', b'{"keys":[{"kty":"oct","k":"AAAA"}]}', b"[" * 9999]
)
def test_a_document_without_public_keys_is_none(data: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        read_keys(data)


def begin(**names: str) -> Any:
    def known(text: str) -> Token:
        if text not in names:
            raise AuthenticationError("not believed")
        return Token(names[text], 5)

    exchange = oauthbearer(known)
    next(exchange)
    return exchange


@pytest.mark.parametrize("first", [b"n,,\1auth=Bearer abc\1\1", b"n,a=alice,\1host=x\1auth=bearer abc\1key=v\1\1"])
def test_a_client_that_shows_a_token_is_let_in(first: bytes) -> None:
    with pytest.raises(StopIteration) as end:
        begin(abc="alice").send(first)
    assert end.value.value == LoggedIn("alice", b"", 5)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,\1\1",
        b"n,,\1auth=Bearer abc\1",
        b"n,a=bob,\1auth=Bearer abc\1\1",
        b"n,,\1auth=Basic abc\1\1",
        b"n,,\1auth=Bearer abc\1auth=Bearer abc\1\1",
        b"y,,\1auth=Bearer abc\1\1",
        b"\xff",
    ],
)
def test_other_first_messages_are_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationError):
        begin(abc="alice").send(first)


def test_a_token_that_is_not_believed_is_answered_before_the_login_fails() -> None:
    exchange = begin()
    assert json.loads(exchange.send(b"n,,\1auth=Bearer abc\1\1")) == {"status": "invalid_token"}
    with pytest.raises(AuthenticationError, match="not believed"):
        exchange.send(b"\1")


def test_a_token_has_every_scope_that_is_required() -> None:
    checks = TokenChecks("EXTERNAL", SETTINGS, scopes=("read", "write"), keys=keys())
    assert checks.check(token(scope="write all read"), NOW_MS).name == "alice"
    for scope in ("read", "", "readwrite", None):
        exchange = oauthbearer(lambda text: checks.check(text, NOW_MS))
        next(exchange)
        said = exchange.send(f"n,,\1auth=Bearer {token(scope=scope)}\1\1".encode())
        assert json.loads(said) == {"status": "insufficient_scope"}
        with pytest.raises(AuthenticationError, match="lacks one of the required scopes: read write"):
            exchange.send(b"\1")
