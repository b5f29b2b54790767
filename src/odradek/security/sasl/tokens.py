"""Validates OAUTHBEARER tokens, which are signed claims (RFC 7519).

A token must be signed by a configured key with an allowed algorithm, for this audience, and valid now. A token that
names the place of its key (`jku`, `jwk`, `x5u`) is refused, since its sender would choose the key.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.security.sasl.config import TokenConfig
from odradek.security.sasl.exchange import AuthenticationError

# All are asymmetric: with HMAC, a client that knows the public keys could use one as the secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
MAX_TOKEN_BYTES = 32 * 1024
_KEYS_IN_TOKENS = ("jku", "jwk", "x5u")
_UNKNOWN_KEY = "the token names an unknown key"
# Later times (after the year 9999) are invalid.
_LATEST_S = 253_402_300_799


@dataclass(frozen=True, slots=True)
class Token:
    """The content of a valid token."""

    name: str
    expires_at_ms: int
    scopes: tuple[str, ...] = ()


class UnknownKeyError(AuthenticationError):
    """A token names a key that the issuer had not published when the keys were read last."""


class MissingScopeError(AuthenticationError):
    """A token lacks a scope that the listener requires."""


@dataclass(slots=True)
class PublicKeys:
    """The keys of the issuer, as they were read last.

    Attributes:
        asked_for_unknown: a token has named a key that is not among them, since they were read.
    """

    keys: tuple[Any, ...] = ()
    asked_for_unknown: bool = field(default=False)

    def replace(self, keys: tuple[Any, ...]) -> None:
        """Use other keys from now on."""
        self.keys = keys
        self.asked_for_unknown = False

    def find(self, key_id: str | None) -> Any:
        """The key with this id; for a token that names none, the only key.

        Raises:
            UnknownKeyError: there is no such key, or several keys have the id.
        """
        if key_id is None and len(self.keys) == 1:
            return self.keys[0]
        found = [key for key in self.keys if key_id is not None and key.kid == key_id]
        if len(found) != 1:
            self.asked_for_unknown = True
            raise UnknownKeyError(_UNKNOWN_KEY)
        return found[0]


@dataclass(frozen=True, slots=True)
class TokenChecks:
    """The checks of the tokens of one listener.

    Attributes:
        tls: `ssl.*` of the JAAS entry for the endpoint of the keys; empty for the system's trusted certificates.
        unsigned: whether unsigned tokens are accepted: Kafka's validator for development.
        scopes: the required scopes.
    """

    listener: str
    settings: TokenConfig
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    unsigned: bool = False
    scopes: tuple[str, ...] = ()
    keys: PublicKeys = field(default_factory=PublicKeys)

    def check(self, text: str, now_ms: int) -> Token:
        """Check as `check_token` or `check_unsigned` does; raises MissingScopeError, too."""
        if self.unsigned:
            token = check_unsigned(text, self.settings, now_ms)
        else:
            token = check_token(text, self.keys, self.settings, now_ms)
        if not set(self.scopes) <= set(token.scopes):
            raise MissingScopeError(f"the token lacks one of the required scopes: {' '.join(self.scopes)}")
        return token


def read_keys(data: bytes) -> tuple[Any, ...]:
    """The public keys for signatures in a JWKS document.

    Raises:
        ValueError: it is no such document, or has no usable key.
    """
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    kinds: dict[Any, Any] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
    try:
        entries = json.loads(data)["keys"]
        usable = [each for each in entries if each.get("kty") in kinds and each.get("use", "sig") == "sig"]
        keys = tuple(kinds[each["kty"]].import_key(each) for each in usable)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, JoseError):
        raise ValueError("it is no JWKS document") from None
    if not keys:
        raise ValueError("it has no public key that signs")
    return keys


def check_token(text: str, keys: PublicKeys, settings: TokenConfig, now_ms: int) -> Token:
    """The content of a token, if it is valid.

    Raises:
        AuthenticationError: it is invalid; the text has nothing of it.
    """
    return check_claims(signed_claims(text, keys), settings, now_ms)


def signed_claims(text: str, keys: PublicKeys) -> dict[str, Any]:
    """The claims of a token with a valid signature; `check_claims` checks audience and time.

    Raises:
        AuthenticationError: no key matches; the text has nothing of the token.
    """
    from joserfc import jws
    from joserfc.errors import JoseError

    if len(text) > MAX_TOKEN_BYTES:
        raise AuthenticationError("the token is too long")
    try:
        headers = jws.extract_compact(text.encode()).headers()
        _refuse_headers(headers)
        key = keys.find(headers.get("kid"))
        payload = jws.deserialize_compact(text, key, algorithms=[*_algorithms(key)]).payload
    except (ValueError, TypeError, KeyError, RecursionError, JoseError):
        raise AuthenticationError("the token is malformed, or no known key signed it") from None
    return _read_claims(payload)


def check_unsigned(text: str, settings: TokenConfig, now_ms: int) -> Token:
    """The content of an unsigned token. Raises AuthenticationError for a signed one too."""
    head, _, rest = text.partition(".")
    body, dot, signature = rest.partition(".")
    try:
        headers = _read_claims(_decoded(head))
        claims = _read_claims(_decoded(body))
    except ValueError:
        raise AuthenticationError("the token is malformed") from None
    if headers.get("alg") != "none" or signature or not dot or len(text) > MAX_TOKEN_BYTES:
        raise AuthenticationError("the token is signed, and no keys are known (sasl.oauthbearer.jwks.endpoint.url)")
    # Kafka's validator of such tokens does not require the time of issue either.
    return check_claims({"iat": 0, **claims}, settings, now_ms)


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _refuse_headers(headers: Mapping[str, Any]) -> None:
    """Raises AuthenticationError for an unsupported algorithm, and for a token that says where its key is."""
    if headers.get("alg") not in ALGORITHMS:
        raise AuthenticationError("the algorithm of the token's signature is not supported")
    if any(name in headers for name in _KEYS_IN_TOKENS):
        raise AuthenticationError("the token says where its key is (jku, jwk or x5u)")
    if not isinstance(headers.get("kid"), str | None):
        raise AuthenticationError(_UNKNOWN_KEY)


def _algorithms(key: Any) -> tuple[str, ...]:
    """The supported algorithms that a key allows; the library refuses those of another kind of key."""
    named = key.get("alg")
    return ALGORITHMS if named is None else tuple(each for each in ALGORITHMS if each == named)


def _read_claims(payload: bytes) -> dict[str, Any]:
    """The claims in the body of a token. Raises AuthenticationError."""
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise AuthenticationError("the token has no claims")
    return claims


def check_claims(claims: Mapping[str, Any], settings: TokenConfig, now_ms: int) -> Token:
    """The user, expiry and scopes in claims, if these are valid now, and of the required issuer and audience.

    Raises:
        AuthenticationError: they are not, or a claim is missing.
    """
    now_s, skew_s = now_ms / 1000, settings.skew_s
    ends_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
    if ends_s is None or issued_s is None:
        raise AuthenticationError("the token lacks exp or iat")
    if now_s >= ends_s + skew_s:
        raise AuthenticationError("the token has expired")
    begins_s = _time(claims, "nbf")
    if max(issued_s, issued_s if begins_s is None else begins_s) > now_s + skew_s or ends_s < issued_s:
        raise AuthenticationError("the token is not valid yet")
    if settings.issuer is not None and claims.get("iss") != settings.issuer:
        raise AuthenticationError("the token is of another issuer")
    audience = claims.get("aud")
    named = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    if settings.audience and not any(each in settings.audience for each in named):
        raise AuthenticationError("the token is for another audience")
    name = claims.get(settings.subject_claim)
    if not isinstance(name, str) or not name.strip():
        raise AuthenticationError("the token names no user")
    return Token(name, int(ends_s * 1000), _scopes(claims.get(settings.scope_claim)))


def _scopes(found: Any) -> tuple[str, ...]:
    if isinstance(found, str):
        return tuple(found.split())
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, list) else ()


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Seconds since 1970; None if the claim is missing. Raises AuthenticationError if it is invalid."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST_S:
        raise AuthenticationError(f"the token's {name} is not a time")
    return float(value)
