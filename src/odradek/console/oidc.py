"""Logins by OpenID Connect: the authorization code with PKCE (RFC 6749, 7636), and who an ID token says a user is.

What is believed is what a key of the issuer signed, for this console, now, for the login that was begun here.
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
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from odradek.common.errors import ConfigError, OdradekError
from odradek.common.real_https import exchange
from odradek.console.clusters import EVERYONE, GROUP
from odradek.security.sasl.exchange import AuthenticationError
from odradek.security.sasl.tokens import MAX_TOKEN_BYTES, PublicKeys, read_claims, read_keys, refuse_headers

CALLBACK = "/oidc/callback"
DISCOVERY = "/.well-known/openid-configuration"
SKEW_S = 60.0
MAX_NAME, MAX_GROUPS = 200, 500
_TEXTS = ("issuer", "client_id", "client_secret_file", "url", "authorities", "user_claim", "groups_claim")


class LoginError(OdradekError):
    """Why someone is not let in; one line that may be shown to them."""


@dataclass(frozen=True, slots=True)
class OidcConfig:
    """Which issuer is asked, and what its claims are.

    Attributes:
        url: of this console, as browsers have it; the issuer sends them back there.
        secret: of the client; "" for a public one.
        authorities: file with the certificates by which the issuer is trusted (PEM); None for the system's.
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
    """Who logged in."""

    user: str
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the issuer is asked what; `exchange` gives tokens for codes."""

    authorization: str
    exchange: str
    keys: str


def read_oidc(path: Path) -> OidcConfig:
    """The file of --oidc. Raises ConfigError."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror or error}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: this is no TOML: {error}"]) from None
    problems = [f"{path}: unknown: {key}" for key in given if key not in (*_TEXTS, "scopes")]
    problems += [f"{path}: {key} is no text" for key in _TEXTS if not isinstance(given.get(key, ""), str)]
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
    """What the issuer says of itself. Raises LoginError."""
    try:
        found = json.loads(data)
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        authorization, token, keys = (str(found[name]) for name in names)
        issuer = found["issuer"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise LoginError("the issuer does not describe itself as OpenID Connect says") from None
    if issuer != config.issuer:
        raise LoginError("the issuer calls itself by another name than the console's file does")
    if not all(each.startswith("https://") for each in (authorization, token, keys)):
        raise LoginError("the issuer names addresses without https://")
    return Endpoints(authorization, token, keys)


def authorization_url(endpoints: Endpoints, config: OidcConfig, state: str, nonce: str, verifier: str) -> str:
    """Where a browser is sent to log in."""
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
    separator = "&" if urlsplit(endpoints.authorization).query else "?"
    return f"{endpoints.authorization}{separator}{urlencode(asked)}"


class IssuerClient:
    """Asks the issuer; blocks, for seconds at most. Its description is kept, and its keys until one is unknown."""

    def __init__(self, config: OidcConfig) -> None:
        self._config = config
        self._endpoints: Endpoints | None = None
        self._keys = PublicKeys()

    def endpoints(self) -> Endpoints:
        """Raises LoginError."""
        if self._endpoints is None:
            described = self._ask(self._config.issuer.rstrip("/") + DISCOVERY)
            self._endpoints = read_endpoints(described, self._config)
        return self._endpoints

    def id_token(self, code: str, verifier: str) -> str:
        """The ID token of a code. Raises LoginError."""
        config = self._config
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": config.redirect_uri,
            "code_verifier": verifier,
        }
        headers = {"Accept": "application/json"}
        if config.secret:
            pair = f"{quote(config.client_id, safe='')}:{quote(config.secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form["client_id"] = config.client_id
        answer = self._ask(self.endpoints().exchange, urlencode(form).encode(), headers)
        try:
            token = json.loads(answer)["id_token"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise LoginError("the issuer gave no ID token") from None
        return str(token)

    def identity(self, token: str, nonce: str, now_s: float) -> Identity:
        """Who a token speaks of; the keys are read again where it names one that is not known. Raises LoginError."""
        if self._keys.keys:
            try:
                return check_id_token(token, self._keys, self._config, nonce, now_s)
            except LoginError:
                if not self._keys.asked_for_unknown:
                    raise
        try:
            self._keys.replace(read_keys(self._ask(self.endpoints().keys)))
        except ValueError as error:
            raise LoginError(f"the keys of the issuer cannot be used: {error}") from None
        return check_id_token(token, self._keys, self._config, nonce, now_s)

    def _ask(self, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        request = urllib.request.Request(url, data, dict(headers or {}))  # noqa: S310 - https, as was checked
        try:
            return exchange(request, ssl.create_default_context(cafile=self._config.authorities))
        except urllib.error.HTTPError as error:
            with error:
                raise LoginError(f"the issuer answers with status {error.code}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise LoginError(f"the issuer cannot be asked: {getattr(error, 'reason', None) or error}") from None


def check_id_token(text: str, keys: PublicKeys, config: OidcConfig, nonce: str, now_s: float) -> Identity:
    """Who an ID token speaks of, where it is to be believed (OpenID Connect Core, 3.1.3.7). Raises LoginError."""
    try:
        claims = _signed_claims(text, keys)
    except AuthenticationError as error:
        raise LoginError(str(error)) from None
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if claims.get("iss") != config.issuer or config.client_id not in audiences:
        raise LoginError("the token is not of this issuer for this console")
    if len(audiences) > 1 and claims.get("azp") != config.client_id:
        raise LoginError("the token was issued to another program")
    ends_s, issued_s = claims.get("exp"), claims.get("iat")
    if not _is_time(ends_s) or not _is_time(issued_s) or now_s >= ends_s + SKEW_S or issued_s > now_s + SKEW_S:
        raise LoginError("the token has expired, or does not hold yet; look at the clocks of both machines")
    if not hmac.compare_digest(str(claims.get("nonce")).encode(), nonce.encode()):
        raise LoginError("the token is not for the login that was begun here")
    return _identity(claims, config)


def _signed_claims(text: str, keys: PublicKeys) -> dict[str, Any]:
    from joserfc import jws
    from joserfc.errors import JoseError

    if len(text) > MAX_TOKEN_BYTES:
        raise AuthenticationError("the token is too long")
    try:
        headers = jws.extract_compact(text.encode()).headers()
        refuse_headers(headers)
        key = keys.find(headers.get("kid"))
        payload = jws.deserialize_compact(text, key, algorithms=[str(headers["alg"])]).payload
    except (ValueError, TypeError, KeyError, RecursionError, JoseError):
        raise AuthenticationError("the token is not signed by a key of the issuer") from None
    return read_claims(payload)


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _identity(claims: Mapping[str, Any], config: OidcConfig) -> Identity:
    user = claims.get(config.user_claim)
    if not isinstance(user, str) or not 0 < len(user) <= MAX_NAME or not user.isprintable():
        raise LoginError(f"the token has no claim {config.user_claim} that names the user")
    if user == EVERYONE or user.startswith(GROUP):
        raise LoginError("this name is none for a user")
    given = claims.get(config.groups_claim, [])
    groups = given if isinstance(given, list) else [given]
    return Identity(user, frozenset(each for each in groups[:MAX_GROUPS] if isinstance(each, str)))
