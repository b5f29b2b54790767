"""Logins by OpenID Connect: the authorization code flow with PKCE (RFC 6749, 7636), and the validation of ID tokens.

An ID token must be signed by a key of the issuer, for this console, valid now, and for a login that began here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from odradek.common.errors import ConfigError, OdradekError
from odradek.common.real_https import exchange
from odradek.console.answers import LOGIN
from odradek.console.clusters import EVERYONE, GROUP
from odradek.security.sasl.config import TokenConfig
from odradek.security.sasl.exchange import AuthenticationError
from odradek.security.sasl.tokens import PublicKeys, Token, UnknownKeyError, check_claims, read_keys, signed_claims

CALLBACK = "/oidc/callback"
DISCOVERY = "/.well-known/openid-configuration"
SKEW_S = 60
MAX_NAME, MAX_GROUPS = 200, 500
_TEXTS = ("issuer", "client_id", "client_secret_file", "url", "authorities", "user_claim", "groups_claim")


class LoginError(OdradekError):
    """Why someone is not let in; one line that may be shown to them."""


class UnknownSignerError(LoginError):
    """The token may be signed by a key that the issuer has only now."""


class IssuerUnreachableError(LoginError):
    """The issuer does not respond, or has a temporary error."""


@dataclass(frozen=True, slots=True)
class OidcConfig:
    """The issuer and its claims.

    Attributes:
        url: of this console for browsers; the issuer redirects there.
        secret: of the client; "" for a public one.
        authorities: a PEM file of trusted certificates for the issuer; None for the system's.
    """

    issuer: str
    client_id: str
    url: str
    secret: str = field(default="", repr=False)
    authorities: str | None = None
    user_claim: str = "sub"
    groups_claim: str = "groups"
    scopes: Sequence[str] = ("openid", "profile")

    @property
    def redirect_uri(self) -> str:
        return self.url + CALLBACK


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a user.

    Attributes:
        subject: the unique id at the issuer (`sub`).
        ends_at_s: the expiry of the token, since 1970.
    """

    user: str
    groups: frozenset[str] = frozenset()
    subject: str = ""
    ends_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Granted:
    """The tokens for a code or a refresh token; the refresh token is "" if there is none."""

    id_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The endpoints of the issuer; `exchange` is that for tokens; the last two are "" if it has none."""

    authorization: str
    exchange: str
    keys: str
    end_session: str = ""
    revocation: str = ""


def read_oidc(path: Path) -> OidcConfig:
    """The file of --oidc. Raises ConfigError."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror or error}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: this is no TOML: {error}"]) from None
    problems = [f"{path}: unknown: {key}" for key in given if key not in (*_TEXTS, "scopes")]
    problems += [f"{path}: {key} is not a text" for key in _TEXTS if not isinstance(given.get(key, ""), str)]
    problems += [f"{path}: {key} is missing" for key in ("issuer", "client_id", "url") if not given.get(key)]
    if problems:
        raise ConfigError(problems)
    scopes = given.get("scopes", ["openid", "profile"])
    if not isinstance(scopes, list) or "openid" not in scopes or not all(isinstance(each, str) for each in scopes):
        raise ConfigError([f'{path}: scopes is a list of texts with "openid" in it'])
    for key in ("issuer", "url"):
        _check_address(path, key, given[key])
    texts = {key: given[key] for key in ("issuer", "client_id", "user_claim", "groups_claim") if key in given}
    authorities = _authorities(path, given)
    return OidcConfig(
        **texts, url=given["url"].rstrip("/"), secret=_secret(path, given), authorities=authorities, scopes=scopes
    )


def _check_address(path: Path, key: str, text: str) -> None:
    try:
        parts = urlsplit(text)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        has_host = False
    if not has_host or parts.query or parts.fragment or "@" in parts.netloc or not _is_guarded(key, parts):
        raise ConfigError([f"{path}: {key} is an address with https://, not {text[:100]!r}"])
    if key == "url" and parts.path not in ("", "/"):
        raise ConfigError([f"{path}: url has no path behind its host, for the console is served below none"])


def _is_guarded(key: str, parts: SplitResult) -> bool:
    """By TLS, or because nothing of it leaves this machine."""
    is_local = key == "url" and parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")
    return parts.scheme == "https" or is_local


def _authorities(path: Path, given: Mapping[str, Any]) -> str | None:
    name = given.get("authorities")
    if not name:
        return None
    found = str(path.parent / name)
    try:
        ssl.create_default_context(cafile=found)
    except ssl.SSLError:
        raise ConfigError([f"{path}: authorities {name}: it holds no certificates (PEM)"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: authorities {name}: {error.strerror or error}"]) from None
    return found


def _secret(path: Path, given: Mapping[str, Any]) -> str:
    name = given.get("client_secret_file")
    if not name:
        return ""
    try:
        return str((path.parent / name).read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: client_secret_file {name}: {getattr(error, 'strerror', None) or error}"]) from None


def read_endpoints(data: bytes, config: OidcConfig) -> Endpoints:
    """The description of the issuer. Raises LoginError."""
    try:
        found = json.loads(data)
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        authorization, token, keys = (str(found[name]) for name in names)
        issuer = found["issuer"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise LoginError("the issuer does not describe itself as OpenID Connect says") from None
    if issuer != config.issuer:
        raise LoginError("the issuer calls itself by another name than the console's file does")
    end_session = str(found.get("end_session_endpoint") or "")
    revocation = str(found.get("revocation_endpoint") or "")
    if not all(
        each.startswith("https://") for each in (authorization, token, keys, *filter(None, (end_session, revocation)))
    ):
        raise LoginError("the issuer names addresses without https://")
    return Endpoints(authorization, token, keys, end_session, revocation)


def authorization_url(endpoints: Endpoints, config: OidcConfig, state: str, nonce: str, verifier: str) -> str:
    """The address to which a browser is redirected for the login."""
    digest = hashlib.sha256(verifier.encode()).digest()
    asked = {
        "response_type": "code",
        "client_id": config.client_id,
        "redirect_uri": config.redirect_uri,
        "scope": " ".join(config.scopes),
        "state": state,
        "nonce": nonce,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    return _with_query(endpoints.authorization, asked)


def end_session_form(config: OidcConfig, id_token: str) -> dict[str, str]:
    """The fields of the form that logs a browser out of the issuer, too; every issuer takes it by POST.

    In an address the token would be kept by the browser's history and the logs of servers and proxies.

    Source: OpenID Connect RP-Initiated Logout 1.0, 2.
    """
    return {
        "id_token_hint": id_token,
        "client_id": config.client_id,
        "post_logout_redirect_uri": config.url + LOGIN,
    }


def _with_query(address: str, asked: Mapping[str, str]) -> str:
    return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(asked)}"


class IssuerClient:
    """Asks the issuer; blocks, for seconds at most. Its description is kept, and its keys until one is unknown."""

    def __init__(self, config: OidcConfig) -> None:
        self._config = config
        self._endpoints: Endpoints | None = None
        self._keys = PublicKeys()

    def endpoints(self) -> Endpoints:
        """Raises LoginError."""
        if self._endpoints is None:
            described = self._request(self._config.issuer.rstrip("/") + DISCOVERY)
            self._endpoints = read_endpoints(described, self._config)
        return self._endpoints

    def tokens_for(self, code: str, verifier: str) -> Granted:
        """Exchange a code for tokens. Raises LoginError."""
        return self._granted(
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": self._config.redirect_uri,
                "code_verifier": verifier,
            }
        )

    def renewed(self, refresh_token: str) -> Granted:
        """Refresh tokens (OpenID Connect Core, 12). Raises LoginError."""
        granted = self._granted({"grant_type": "refresh_token", "refresh_token": refresh_token})
        return Granted(granted.id_token, granted.refresh_token or refresh_token)

    def revoke(self, refresh_token: str) -> None:
        """Have a refresh token end, where the issuer has a place for that (RFC 7009). Raises LoginError."""
        where = self.endpoints().revocation
        if where:
            self._posted(where, {"token": refresh_token, "token_type_hint": "refresh_token"})

    def _posted(self, where: str, form: dict[str, str]) -> bytes:
        """The answer to a form of this client."""
        config = self._config
        headers = {"Accept": "application/json"}
        if config.secret:
            pair = f"{quote(config.client_id, safe='')}:{quote(config.secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form["client_id"] = config.client_id
        return self._request(where, urlencode(form).encode(), headers)

    def _granted(self, form: dict[str, str]) -> Granted:
        answer = self._posted(self.endpoints().exchange, form)
        try:
            found = json.loads(answer)
            return Granted(str(found["id_token"]), str(found.get("refresh_token") or ""))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise LoginError("the issuer gave no ID token") from None

    def identity(self, token: str, nonce: str, now_s: float, *, is_renewed: bool = False) -> Identity:
        """The identity in a token; an unknown key id triggers a refresh of the keys. Raises LoginError."""
        if self._keys.keys:
            try:
                return check_id_token(token, self._keys, self._config, nonce, now_s, is_renewed=is_renewed)
            except UnknownSignerError:
                pass  # not by `asked_for_unknown`: logins on other threads change that
        try:
            self._keys.replace(read_keys(self._request(self.endpoints().keys)))
        except ValueError as error:
            raise LoginError(f"the keys of the issuer cannot be used: {error}") from None
        return check_id_token(token, self._keys, self._config, nonce, now_s, is_renewed=is_renewed)

    def _request(self, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        request = urllib.request.Request(url, data, dict(headers or {}))  # noqa: S310 - https, as was checked
        try:
            return exchange(request, ssl.create_default_context(cafile=self._config.authorities))
        except urllib.error.HTTPError as error:
            is_busy = error.code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.code == HTTPStatus.TOO_MANY_REQUESTS
            with error:
                kind = IssuerUnreachableError if is_busy else LoginError
                raise kind(f"the issuer answers with status {error.code}") from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise IssuerUnreachableError(f"the issuer cannot be asked: {reason}") from None


def check_id_token(
    text: str, keys: PublicKeys, config: OidcConfig, nonce: str, now_s: float, *, is_renewed: bool = False
) -> Identity:
    """The identity in a valid ID token (OpenID Connect Core, 3.1.3.7). Raises LoginError.

    Args:
        is_renewed: it is of a refresh, and needs no nonce of the login (12.2 there).
    """
    must = TokenConfig(issuer=config.issuer, audience=(config.client_id,), skew_s=SKEW_S)
    try:
        claims = signed_claims(text, keys)
        token = check_claims(claims, must, int(now_s * 1000))
    except UnknownKeyError as error:
        raise UnknownSignerError(str(error)) from None
    except AuthenticationError as error:
        raise LoginError(str(error)) from None
    audience = claims.get("aud")
    if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != config.client_id:
        raise LoginError("the token was issued to another program")
    is_named = "nonce" in claims or not is_renewed
    if is_named and not hmac.compare_digest(str(claims.get("nonce")).encode(), nonce.encode()):
        raise LoginError("the token is not for the login that was begun here")
    return _identity(claims, config, token)


def _identity(claims: Mapping[str, Any], config: OidcConfig, token: Token) -> Identity:
    user = claims.get(config.user_claim)
    if not isinstance(user, str) or not 0 < len(user) <= MAX_NAME or not user.isprintable():
        raise LoginError(f"the token has no claim {config.user_claim} that names the user")
    if user == EVERYONE or user.startswith(GROUP):
        raise LoginError("this name is none for a user")
    given = claims.get(config.groups_claim, [])
    groups = given if isinstance(given, list) else [given]
    named = frozenset(each for each in groups[:MAX_GROUPS] if isinstance(each, str))
    return Identity(user, named, token.name, token.expires_at_ms / 1000)
