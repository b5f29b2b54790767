"""Tokens for OAUTHBEARER: out of a file, or from an issuer by the grant of client credentials (KIP-768, RFC 6749 4.4).

When another token is due, and for how long an issuer is asked again that has trouble, is said by `sasl.login.*`; a file
is read each time.
"""

from __future__ import annotations

import base64
import json
import random
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
from odradek.common.real_https import TIMEOUT_S, Patience, exchange
from odradek.security.sasl.config import OwnTokenConfig
from odradek.security.tls.config import TlsConfig, TlsSettingError
from odradek.security.tls.contexts import client_context
from odradek.settings.broker import build_from
from odradek.settings.table import Scope, setting

# An issuer that does not say how long a token lives, or says what cannot be, is asked again after a minute.
UNKNOWN_LIFETIME_S = 60.0
LONGEST_LIFETIME_S = 86_400.0 * 365
# What an issuer says that has trouble, or too much to do; else another try would get the same answer.
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})
# Names of librdkafka, which count behind Kafka's, and before the options of a JAAS entry.
_ID, _SECRET = "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"
_CREDENTIALS = "sasl.oauthbearer.client.credentials"


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and when on this process' monotonic clock another one is due."""

    text: str = field(repr=False)
    refresh_at_s: float


class _TroubleError(SaslSettingError):
    """The issuer cannot be reached, or has trouble of its own: another try may succeed."""


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
    config = _config_of(settings)
    grant = _grant_of(settings, config)
    # One asks for all who want the same token; a slow issuer keeps none waiting who ask another one.
    with _asking.setdefault(grant, threading.Lock()):
        known = _granted.get(grant)
        if known is None or known.refresh_at_s < time.monotonic():
            known = _granted[grant] = _ask_until_answered(grant, config)
    return known.text


def check_token_settings(settings: Mapping[str, str]) -> None:
    """Whether a token could be asked for by these settings.

    Raises:
        SaslSettingError: no place is named from where tokens come, or no client's id and secret.
    """
    url = settings.get(ENDPOINT_KEY, "")
    if url.startswith(("https:", "http:")):
        _grant_of(settings, _config_of(settings))
    elif not url.startswith("file://"):
        raise SaslSettingError(f"{ENDPOINT_KEY} must name the issuer of tokens (https://…) or a file (file:///path)")


def _config_of(settings: Mapping[str, str]) -> OwnTokenConfig:
    values = {}
    for key, text in settings.items():
        row = setting(Scope.BROKER, key) if key.startswith("sasl.") else None
        if row is not None:
            try:
                values[key] = row.parse(text)
            except ValueError as error:
                raise SaslSettingError(f"{key}: {error}") from None
    return build_from(OwnTokenConfig, values, settings)


def _grant_of(settings: Mapping[str, str], config: OwnTokenConfig) -> _Grant:
    options = jaas_options(settings)
    client_id = config.client_id or settings.get(_ID) or options.get("clientid", "")
    secret = config.client_secret or settings.get(_SECRET) or options.get("clientsecret", "")
    if not client_id or not secret:
        raise SaslSettingError(
            f"{_CREDENTIALS}.client.id and {_CREDENTIALS}.client.secret must be set, or clientId and clientSecret"
            " in the JAAS entry"
        )
    file = settings.get("https.ca.location", options.get("ssl.truststore.location"))
    return _Grant(
        config.endpoint_url or "",
        client_id,
        secret,
        config.scope or options.get("scope", ""),
        (file, options.get("ssl.truststore.password"), options.get("ssl.truststore.type", "")),
    )


def _ask_until_answered(grant: _Grant, config: OwnTokenConfig) -> Token:
    """Ask, and again after growing pauses while the issuer cannot be reached or has trouble, as Kafka's clients do."""
    ends_s = time.monotonic() + config.backoff_max_ms / 1000
    pause_s = config.backoff_ms / 1000
    while True:
        try:
            return _ask(grant, config)
        except _TroubleError as error:
            left_s = ends_s - time.monotonic()
            if left_s <= 0 or pause_s <= 0:
                raise SaslSettingError(str(error)) from None
            time.sleep(min(pause_s, left_s))
            pause_s *= 2


def _ask(grant: _Grant, config: OwnTokenConfig) -> Token:
    connect_ms, read_ms = config.connect_timeout_ms, config.read_timeout_ms
    patience = Patience(
        TIMEOUT_S if connect_ms is None else connect_ms / 1000, TIMEOUT_S if read_ms is None else read_ms / 1000
    )
    form = {"grant_type": "client_credentials"} | ({"scope": grant.scope} if grant.scope else {})
    pair = f"{urllib.parse.quote_plus(grant.client_id)}:{urllib.parse.quote_plus(grant.secret)}"
    request = urllib.request.Request(  # noqa: S310 - `current_token` takes http and https alone
        grant.url,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}", "Accept": "application/json"},
    )
    try:
        found = json.loads(exchange(request, _context(grant.authorities), patience))
        text, lifetime_s = str(found["access_token"]), float(found.get("expires_in", UNKNOWN_LIFETIME_S))
    except urllib.error.HTTPError as error:
        with error:
            kind = _TroubleError if error.code in _RETRIED else SaslSettingError
            raise kind(f"{ENDPOINT_KEY}: {grant.url} answered {error.code} {error.reason}") from None
    except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
        is_final = isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError)
        kind = SaslSettingError if is_final else _TroubleError
        raise kind(f"{ENDPOINT_KEY}: {grant.url} gives no token: {error}") from None
    except (OSError, HTTPException) as error:
        raise SaslSettingError(f"{ENDPOINT_KEY}: {grant.url} gives no token: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SaslSettingError(f"{ENDPOINT_KEY}: {grant.url} answered without an access_token in JSON") from None
    # NaN is what no comparison holds for.
    lives_s = lifetime_s if 0 < lifetime_s < LONGEST_LIFETIME_S else UNKNOWN_LIFETIME_S
    return Token(text, time.monotonic() + _kept_s(lives_s, config))


def _kept_s(lives_s: float, config: OwnTokenConfig) -> float:
    """For how long a token is used that lives so long; by chance, so that not all clients ask at one time."""
    kept_s = lives_s * (config.refresh_factor + config.refresh_jitter * random.random())
    if lives_s < config.refresh_min_period_s + config.refresh_buffer_s:
        return kept_s
    return max(min(kept_s, lives_s - config.refresh_buffer_s), config.refresh_min_period_s)


def _context(authorities: tuple[str | None, str | None, str]) -> ssl.SSLContext:
    location, password, kind = authorities
    config = TlsConfig(
        keystore_type="", truststore_type=kind, truststore_location=location, truststore_password=password
    )
    try:
        return client_context(config, Path.read_bytes).context
    except TlsSettingError as error:
        raise SaslSettingError(f"{ENDPOINT_KEY}: {error}") from None
