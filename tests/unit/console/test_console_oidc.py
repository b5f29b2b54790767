"""ID tokens that are believed, and those that are not; the file that names the issuer."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from odradek.common.errors import ConfigError
from odradek.console.answers import logged_out_page
from odradek.console.clusters import ClusterConfig, Right
from odradek.console.oidc import (
    Endpoints,
    Identity,
    IssuerClient,
    LoginError,
    OidcConfig,
    check_id_token,
    end_session_form,
    read_endpoints,
    read_oidc,
)
from odradek.security.sasl.tokens import PublicKeys

NOW_S = 1_000_000
ISSUER = "https://id.example.org"
CONFIG = OidcConfig(ISSUER, "console", "https://console.example.org", user_claim="preferred_username")


@pytest.fixture(scope="module")
def key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "ours"})


def claims_of(**changes: Any) -> dict[str, Any]:
    usual = {
        "iss": ISSUER,
        "aud": "console",
        "iat": NOW_S - 10,
        "exp": NOW_S + 300,
        "nonce": "n",
        "sub": "1",
        "preferred_username": "alice",
        "groups": ["ops", 7, "dev"],
    }
    return {name: value for name, value in (usual | changes).items() if value is not None}


def checked(key: RSAKey, claims: dict[str, Any], signer: Any = None, **header: Any) -> Identity:
    token = jwt.encode({"alg": "RS256", "kid": "ours", **header}, claims, signer or key, algorithms=["RS256", "HS256"])
    return check_id_token(token, PublicKeys((key,)), CONFIG, "n", NOW_S)


def test_a_token_of_the_issuer_names_a_user_and_groups(key: RSAKey) -> None:
    assert checked(key, claims_of()) == Identity("alice", frozenset({"ops", "dev"}), "1", NOW_S + 300)
    assert checked(key, claims_of(groups="ops")).groups == {"ops"}
    assert checked(key, claims_of(groups=None)).groups == frozenset()
    assert checked(key, claims_of(aud=["other", "console"], azp="console")).user == "alice"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"iss": "https://other.example.org"}, "of another issuer"),
        ({"aud": "other"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": ["console", "other"]}, "another program"),
        ({"exp": NOW_S - 61}, "has expired"),
        ({"exp": None}, "lacks exp or iat"),
        ({"exp": True}, "exp is not a time"),
        ({"iat": NOW_S + 61}, "is not valid yet"),
        ({"nbf": NOW_S + 61}, "is not valid yet"),
        ({"sub": None}, "names no user"),
        ({"nonce": "other"}, "not for the login"),
        ({"nonce": None}, "not for the login"),
        ({"preferred_username": None}, "no claim preferred_username"),
        ({"preferred_username": 7}, "no claim preferred_username"),
        ({"preferred_username": "a\nb"}, "no claim preferred_username"),
        ({"preferred_username": "*"}, "none for a user"),
        ({"preferred_username": "group:ops"}, "none for a user"),
    ],
)
def test_other_tokens_are_refused(key: RSAKey, changes: dict[str, Any], line: str) -> None:
    with pytest.raises(LoginError, match=line):
        checked(key, claims_of(**changes))


def test_a_renewed_token_names_the_nonce_of_the_login_or_none(key: RSAKey) -> None:
    for nonce, line in ((None, ""), ("n", ""), ("other", "not for the login")):
        text = jwt.encode({"alg": "RS256", "kid": "ours"}, claims_of(nonce=nonce), key)
        with pytest.raises(LoginError, match=line) if line else contextlib.nullcontext():
            check_id_token(text, PublicKeys((key,)), CONFIG, "n", NOW_S, is_renewed=True)


def test_a_logout_goes_to_the_issuer_with_its_token() -> None:
    fields = end_session_form(CONFIG, 'a.b.c"><script>')
    assert fields == {
        "id_token_hint": 'a.b.c"><script>',
        "client_id": "console",
        "post_logout_redirect_uri": "https://console.example.org/login",
    }
    page = logged_out_page("https://id.example.org/logout?realm=work&x=1", fields, ISSUER)
    assert '<form method="post" action="https://id.example.org/logout?realm=work&amp;x=1">' in page
    assert 'name="id_token_hint" value="a.b.c&quot;&gt;&lt;script&gt;"' in page


def test_other_signatures_are_refused(key: RSAKey) -> None:
    with pytest.raises(LoginError, match="no known key signed it"):
        checked(key, claims_of(), RSAKey.generate_key(2048, {"kid": "ours"}))
    with pytest.raises(LoginError, match="names an unknown key"):
        checked(key, claims_of(), kid="other")
    with pytest.raises(LoginError, match="algorithm"):
        checked(key, claims_of(), OctKey.import_key("a secret of some length for this"), alg="HS256")
    for text in ("", "a.b.c", "x" * 100_000, "\udcff"):
        with pytest.raises(LoginError):
            check_id_token(text, PublicKeys((key,)), CONFIG, "n", NOW_S)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"issuer": "https://id.example.org"}',
        b'{"issuer":"x","authorization_endpoint":"https://a","token_endpoint":"https://a","jwks_uri":"https://a"}',
        b'{"issuer":"https://id.example.org",'
        b'"authorization_endpoint":"https://a","token_endpoint":"http://a","jwks_uri":"https://a"}',
        b'{"issuer":"https://id.example.org","end_session_endpoint":"http://a",'
        b'"authorization_endpoint":"https://a","token_endpoint":"https://a","jwks_uri":"https://a"}',
        b'{"issuer":"https://id.example.org","revocation_endpoint":"http://a",'
        b'"authorization_endpoint":"https://a","token_endpoint":"https://a","jwks_uri":"https://a"}',
    ],
)
def test_an_issuer_that_describes_itself_otherwise_is_refused(data: bytes) -> None:
    with pytest.raises(LoginError):
        read_endpoints(data, CONFIG)


def test_groups_have_rights_by_cluster() -> None:
    rights = {Right.SEE: frozenset({"*"}), Right.READ: frozenset({"group:ops", "bob"}), Right.CHANGE: frozenset()}
    config = ClusterConfig("orders", "b:1", rights=rights)
    assert config.allows("alice", Right.READ, {"ops"})
    assert config.allows("bob", Right.READ)
    assert not config.allows("alice", Right.READ, {"dev"})
    assert not config.allows("ops", Right.READ)
    assert not config.allows("alice", Right.CHANGE, {"ops"})


def test_the_file_names_issuer_client_and_console(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hidden\n")
    path = tmp_path / "oidc.toml"
    whole = f'issuer = "{ISSUER}"\nclient_id = "console"\nurl = "https://console.example.org/"\n'
    path.write_text(whole + 'client_secret_file = "secret"\ngroups_claim = "roles"\n')
    config = read_oidc(path)
    assert (config.secret, config.groups_claim, config.user_claim) == ("hidden", "roles", "sub")
    assert config.redirect_uri == "https://console.example.org/oidc/callback"
    assert "hidden" not in repr(config)
    for text, line in (
        ("", "issuer is missing"),
        (whole + "x = 1", "unknown: x"),
        (whole.replace('"console"', "7"), "client_id is not a text"),
        (whole.replace(ISSUER, "http://id.example.org"), "issuer is an address with https://"),
        (whole + 'scopes = ["email"]', 'with "openid" in it'),
        (whole + 'client_secret_file = "gone"', "client_secret_file gone: No such file"),
        ("issuer =", "this is no TOML"),
        (whole + 'authorities = "gone"', "authorities gone: No such file"),
        (whole + 'authorities = "secret"', "authorities secret: it holds no certificates"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=line):
            read_oidc(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_oidc(tmp_path / "none")


@pytest.mark.parametrize(
    ("key", "text", "line"),
    [
        ("url", "https://[x", "url is an address with https://"),
        ("issuer", "https://[x", "issuer is an address with https://"),
        ("url", "https://c.d:abc", "url is an address with https://"),
        ("url", "https://c.d:0", "url is an address with https://"),
        ("url", "https://user@c.d", "url is an address with https://"),
        ("url", "http://c.d", "url is an address with https://"),
        ("url", "https://c.d/prefix", "url has no path behind its host"),
    ],
)
def test_an_address_that_cannot_be_served_gets_a_line(tmp_path: Path, key: str, text: str, line: str) -> None:
    given = {"issuer": ISSUER, "client_id": "console", "url": "https://c.d", key: text}
    path = tmp_path / "oidc.toml"
    path.write_text("".join(f'{name} = "{value}"\n' for name, value in given.items()))
    with pytest.raises(ConfigError, match=line):
        read_oidc(path)


def test_keys_are_read_again_though_another_login_did_so_meanwhile(
    key: RSAKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads share the keys: which of them is unknown to a token, its own check says."""

    class Shared(PublicKeys):
        def find(self, key_id: str | None) -> Any:
            try:
                return PublicKeys.find(self, key_id)
            finally:
                self.replace(self.keys)  # by another thread

    token = jwt.encode({"alg": "RS256", "kid": "ours"}, claims_of(), key)
    client = IssuerClient(CONFIG)
    client._endpoints = Endpoints("https://a", "https://t", "https://k")
    client._keys = Shared((RSAKey.generate_key(2048, {"kid": "old"}),))
    asked: list[str] = []

    def ask(url: str) -> bytes:
        asked.append(url)
        return json.dumps({"keys": [key.as_dict(private=False)]}).encode()

    monkeypatch.setattr(client, "_request", ask)
    assert client.identity(token, "n", NOW_S).user == "alice"
    client._keys.asked_for_unknown = True  # by another thread
    with pytest.raises(LoginError, match="has expired"):
        client.identity(token, "n", NOW_S + 1000)
    assert asked == ["https://k"]


def test_a_refresh_token_is_revoked_where_the_issuer_can(monkeypatch: pytest.MonkeyPatch) -> None:
    client = IssuerClient(CONFIG)
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(client, "_request", lambda *given: asked.append(given))
    for revocation in ("", "https://r"):
        client._endpoints = Endpoints("https://a", "https://t", "https://k", revocation=revocation)
        client.revoke("old")
    ((url, form, _),) = asked
    assert (url, form) == ("https://r", b"token=old&token_type_hint=refresh_token&client_id=console")
