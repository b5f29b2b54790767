"""Tokens for OAUTHBEARER: out of a file, or from an issuer by the grant of client credentials (KIP-768, RFC 6749 4.4).

An issuer is asked again when four fifths of a token's life are over, as Kafka's clients do by default
(`sasl.login.refresh.window.factor`); a file is read each time.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from odradek.client.sasl import ENDPOINT_KEY, SaslSettingError, jaas_options, read_token
from odradek.common.real_https import exchange
from odradek.security.tls.config import TlsConfig, TlsSettingError
from odradek.security.tls.contexts import client_context

REFRESH_AFTER = 0.8
# An issuer that does not say how long a token lives, or says what cannot be, is asked again after a minute.
UNKNOWN_LIFETIME_S = 60.0
LONGEST_LIFETIME_S = 86_400.0 * 365
# Names in the order in which they count: KIP-1139's, librdkafka's, and the options of a JAAS entry.
_ID = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
_SECRET = ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret")


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and when on this process' monotonic clock another one is due."""

    text: str = field(repr=False)
    refresh_at_s: float


@dataclass(frozen=True, slots=True)
class _Grant:
    """What is asked of whom."""

    url: str
    client_id: str
    secret: str = field(repr=False)
    scope: str
    authorities: tuple[str | None, str | None, str] = field(repr=False)  # a file, its password, its type


_granted: dict[_Grant, Token] = {}
_asking: dict[_Grant, threading.Lock] = {}


def current_token(settings: Mapping[str, str]) -> str:
    """A token that is good for a while. Blocks while an issuer answers, for seconds at most.

    Args:
        settings: by the names of Kafka's Java clients or of librdkafka. The client's id, secret and scope may stand
            in the JAAS entry (`clientId`, `clientSecret`, `scope`), as may `ssl.truststore.*` for the issuer's own
            certificate, which is `https.ca.location` by librdkafka's names.
    Raises:
        SaslSettingError: a setting is missing, or the issuer gives no token; never with the secret in it.
    """
    if not settings.get(ENDPOINT_KEY, "").startswith(("https:", "http:")):
        return read_token(settings)
    grant = _grant_of(settings)
    # One asks for all who want the same token; a slow issuer keeps none waiting who ask another one.
    with _asking.setdefault(grant, threading.Lock()):
        known = _granted.get(grant)
        if known is None or known.refresh_at_s < time.monotonic():
            known = _granted[grant] = _ask(grant)
    return known.text


def _grant_of(settings: Mapping[str, str]) -> _Grant:
    options = jaas_options(settings)

    def first(names: tuple[str, ...], option: str) -> str:
        return next((settings[name] for name in names if settings.get(name)), options.get(option, ""))

    client_id, secret = first(_ID, "clientid"), first(_SECRET, "clientsecret")
    if not client_id or not secret:
        raise SaslSettingError(f"{_ID[0]} and {_SECRET[0]} must be set, or clientId and clientSecret in the JAAS entry")
    file = settings.get("https.ca.location", options.get("ssl.truststore.location"))
    return _Grant(
        settings[ENDPOINT_KEY],
        client_id,
        secret,
        first(("sasl.oauthbearer.scope",), "scope"),
        (file, options.get("ssl.truststore.password"), options.get("ssl.truststore.type", "")),
    )


def _ask(grant: _Grant) -> Token:
    form = {"grant_type": "client_credentials"} | ({"scope": grant.scope} if grant.scope else {})
    pair = f"{urllib.parse.quote_plus(grant.client_id)}:{urllib.parse.quote_plus(grant.secret)}"
    request = urllib.request.Request(  # noqa: S310 - `current_token` takes http and https alone
        grant.url,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}", "Accept": "application/json"},
    )
    try:
        found = json.loads(exchange(request, _context(grant.authorities)))
        text, lifetime_s = str(found["access_token"]), float(found.get("expires_in", UNKNOWN_LIFETIME_S))
    except urllib.error.HTTPError as error:
        with error:
            raise SaslSettingError(f"{ENDPOINT_KEY}: {grant.url} answered {error.code} {error.reason}") from None
    except (OSError, HTTPException) as error:
        raise SaslSettingError(f"{ENDPOINT_KEY}: {grant.url} gives no token: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SaslSettingError(f"{ENDPOINT_KEY}: {grant.url} answered without an access_token in JSON") from None
    # NaN is what no comparison holds for.
    lives_s = lifetime_s if 0 < lifetime_s < LONGEST_LIFETIME_S else UNKNOWN_LIFETIME_S
    return Token(text, time.monotonic() + REFRESH_AFTER * lives_s)


def _context(authorities: tuple[str | None, str | None, str]) -> ssl.SSLContext:
    location, password, kind = authorities
    config = TlsConfig(
        keystore_type="", truststore_type=kind, truststore_location=location, truststore_password=password
    )
    try:
        return client_context(config, Path.read_bytes).context
    except TlsSettingError as error:
        raise SaslSettingError(f"{ENDPOINT_KEY}: {error}") from None
