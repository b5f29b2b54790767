"""Tokens for OAUTHBEARER: from a file or from an issuer, by client credentials (KIP-768) or an assertion (KIP-1139).

`sasl.login.*` define the time of a renewal, and the retries if the issuer fails; a file is read each time. A thread
renews tokens, so that only the first login waits; it stops if no login uses tokens any more. If the issuer returns no
new token, the present one is used until it expires, as in Kafka's clients.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from typing import Any, TypeVar

from odradek.client.sasl import ENDPOINT_KEY, SaslSettingError, jaas_options, read_token
from odradek.common.log_lines import get_logger
from odradek.common.real_https import TIMEOUT_S, Patience, exchange
from odradek.security.client.assertions import Assertion, assertion_of, known_names
from odradek.security.client.documents import issuer_context
from odradek.security.sasl.config import AssertionConfig, OwnTokenConfig
from odradek.security.tls.config import TlsSettingError
from odradek.settings.broker import build_from
from odradek.settings.jaas import tls_options
from odradek.settings.table import Scope, setting

# The lifetime of a token if the issuer returns none, or an invalid one.
UNKNOWN_LIFETIME_S = 60.0
LONGEST_LIFETIME_S = 86_400.0 * 365
# After a failure no request is sent for this time, with or without a valid token: each connection needs a token.
_REFRESH_PAUSE_S = _REFUSED_PAUSE_S = 10.0
_TROUBLE_PAUSE_S = 1.0
_REFUSED = frozenset({400, 401})
_TOKEN = re.compile("[!-~]+")
# The statuses that are retried: the issuer has an error, or is overloaded. Others would be the same again.
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})
# Names of librdkafka, which count behind Kafka's, and before the options of a JAAS entry.
_ID, _SECRET = "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"
_CREDENTIALS = "sasl.oauthbearer.client.credentials"

# Only for clients: whether id and secret are encoded as in RFC 6749 2.3.1. Kafka's clients do not do this by default.
_URLENCODE_KEY = "sasl.oauthbearer.header.urlencode"
_RETRIEVER_KEY = "sasl.oauthbearer.jwt.retriever.class"
_BEARER = "JwtBearerJwtRetriever"
# Classes of Kafka's, each with the beginnings of addresses that it takes.
_WEB, _FILES = ("https:", "http:"), ("file:",)
_RETRIEVERS = {
    "DefaultJwtRetriever": (*_WEB, *_FILES),
    "FileJwtRetriever": _FILES,
    "ClientCredentialsJwtRetriever": _WEB,
    _BEARER: _WEB,
}

T = TypeVar("T")
_log = get_logger("security.tokens")


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and when on this process' monotonic clock another one is due, and this one ends."""

    text: str = field(repr=False)
    refresh_at_s: float
    expires_at_s: float


class _TroubleError(SaslSettingError):
    """The issuer cannot be reached, or has trouble of its own: another try may succeed."""


class _RefusedError(SaslSettingError):
    """The issuer refuses this id and secret."""


@dataclass(frozen=True, slots=True)
class _Grant:
    """A request for a token, and its issuer."""

    url: str
    client_id: str
    secret: str = field(repr=False)
    scope: str
    tls: tuple[tuple[str, str], ...] = field(repr=False)  # settings of the connection to the issuer
    assertion: Assertion | None = None
    is_encoded: bool = False  # whether the header has id and secret as a form would


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why there was no token, which holds for a while."""

    text: str
    ends_at_s: float


_granted: dict[_Grant, Token] = {}
_failed: dict[_Grant, _Failure] = {}
_asking: dict[_Grant, threading.Lock] = {}
# The number of consecutive renewed tokens that were not used, and the login that uses the next one.
_unused: dict[_Grant, int] = {}
_renewals: dict[_Grant, threading.Timer] = {}
_starting = threading.Lock()
# A session ends with its token, so a long connection uses each token, or every other one.
_MOST_UNUSED = 2


def _begin_in_a_fork() -> None:
    """A forked process keeps the tokens, and neither the threads of its parent nor the locks that those held."""
    global _starting
    _starting = threading.Lock()
    _asking.clear()
    _renewals.clear()


os.register_at_fork(after_in_child=_begin_in_a_fork)


def current_token(settings: Mapping[str, str]) -> str:
    """A token that is still valid for some time. Blocks for a request if there is none, for seconds at most.

    Args:
        settings: by the names of Kafka's Java clients or of librdkafka. The client's id, secret and scope may be
            in the JAAS entry (`clientId`, `clientSecret`, `scope`), and also `ssl.*` for the connection to the issuer;
            librdkafka's name of the trusted certificates is `https.ca.location`. See `assertions` for clients that
            sign.
    Raises:
        SaslSettingError: a setting is missing, or the issuer returns no token; the text never has the secret.
    """
    settings = known_names(settings)
    config = _built(OwnTokenConfig, settings)
    if not settings.get(ENDPOINT_KEY, "").startswith(_WEB):
        _retriever_of(config)
        return read_token(settings)
    grant = _grant_of(settings, config)
    # One request for all logins with the same token; logins with another issuer, or with a token, do not wait.
    lock = _lock_of(grant)
    _unused[grant] = 0
    known = _unexpired(grant)
    if known is None:
        with lock:
            known = _unexpired(grant) or _first(grant, config)
    _renew_in_time(grant, config, known)
    return known.text


def _lock_of(grant: _Grant) -> threading.Lock:
    return _asking.setdefault(grant, threading.Lock())


def _renew_in_time(grant: _Grant, config: OwnTokenConfig, known: Token) -> None:
    """Start a thread that renews the token in time, unless one runs already."""
    with _starting:
        waiting = _renewals.get(grant)
        if waiting is None or not waiting.is_alive():
            _start_renewal(grant, config, known)


def _start_renewal(grant: _Grant, config: OwnTokenConfig, known: Token) -> None:
    wait_s = max(0.0, known.refresh_at_s - time.monotonic())
    timer = _renewals[grant] = threading.Timer(wait_s, _renew, (grant, config))
    timer.daemon = True
    timer.start()


def _renew(grant: _Grant, config: OwnTokenConfig) -> None:
    with _lock_of(grant):
        known = _unexpired(grant)
        if known is not None and _unused[grant] < _MOST_UNUSED:
            old, known = known, _next_of(grant, config, known)
            _granted[grant] = known
            _unused[grant] += known.expires_at_s != old.expires_at_s  # where the issuer gave none, none was left unused
        else:
            known = None
    with _starting:
        del _renewals[grant]
        if known is not None:
            _start_renewal(grant, config, known)


def end_renewals() -> None:
    """Stop renewals until a login needs a token again."""
    while _renewals:
        with _starting:
            waiting = tuple(_renewals.items())
            for _, timer in waiting:
                timer.cancel()
        for _, timer in waiting:
            timer.join()
        with _starting:
            for grant, timer in waiting:
                if _renewals.get(grant) is timer:  # else the next one waits already
                    del _renewals[grant]


def check_token_settings(settings: Mapping[str, str]) -> None:
    """Check the settings for tokens.

    Raises:
        SaslSettingError: no source of tokens, no client id and secret, or an assertion that cannot be created.
    """
    settings = known_names(settings)
    config = _built(OwnTokenConfig, settings)
    url = settings.get(ENDPOINT_KEY, "")
    if not url.startswith((*_WEB, "file://")):
        raise SaslSettingError(f"{ENDPOINT_KEY} must name the issuer of tokens (https://…) or a file (file:///path)")
    if not url.startswith(_WEB):
        _retriever_of(config)
    elif (assertion := _grant_of(settings, config).assertion) is not None:
        assertion.text()


def _retriever_of(config: OwnTokenConfig) -> str:
    """The name of the class without its package. Raises SaslSettingError if it does not exist, or takes no such URL."""
    name = config.retriever.rpartition(".")[2]
    if name not in _RETRIEVERS:
        raise SaslSettingError(f"{_RETRIEVER_KEY}: there is no {name} here; there are {', '.join(_RETRIEVERS)}")
    if config.endpoint_url and not config.endpoint_url.startswith(_RETRIEVERS[name]):
        kind = " or ".join(f"{each}//…" for each in _RETRIEVERS[name])
        raise SaslSettingError(f"{ENDPOINT_KEY}: must be {kind} for {name}")
    return name


def _built(kind: type[T], settings: Mapping[str, str]) -> T:
    values = {}
    for key, text in settings.items():
        row = setting(Scope.BROKER, key) if key.startswith("sasl.") else None
        if row is not None:
            try:
                values[key] = row.parse(text)
            except ValueError as error:
                raise SaslSettingError(f"{key}: {error}") from None
    return build_from(kind, values, settings)


def _grant_of(settings: Mapping[str, str], config: OwnTokenConfig) -> _Grant:
    options = jaas_options(settings)
    client_id = config.client_id or settings.get(_ID) or options.get("clientid", "")
    secret = config.client_secret or settings.get(_SECRET) or options.get("clientsecret", "")
    is_grant = _retriever_of(config) == _BEARER
    assertion = assertion_of(_built(AssertionConfig, settings), is_grant=is_grant)
    if assertion is None and (not client_id or not secret):
        raise SaslSettingError(
            f"{_CREDENTIALS}.client.id and {_CREDENTIALS}.client.secret must be set, or clientId and clientSecret"
            " in the JAAS entry"
        )
    tls = tls_options(options)
    if (file := settings.get("https.ca.location")) is not None:
        tls = {name: text for name, text in tls.items() if not name.startswith("ssl.truststore.")}
        tls["ssl.ca.location"] = file
    return _Grant(
        config.endpoint_url or "",
        client_id,
        secret,
        config.scope or options.get("scope", ""),
        tuple(sorted(tls.items())),
        assertion,
        settings.get(_URLENCODE_KEY, "false").strip().lower() == "true",
    )


def _unexpired(grant: _Grant) -> Token | None:
    known = _granted.get(grant)
    return known if known is not None and time.monotonic() < known.expires_at_s else None


def _first(grant: _Grant, config: OwnTokenConfig) -> Token:
    """Request the first token. Soon after a failure callers get the same error, without a request to the issuer."""
    failure = _failed.get(grant)
    if failure is not None and time.monotonic() < failure.ends_at_s:
        raise SaslSettingError(failure.text)
    try:
        token = _granted[grant] = _request_with_retries(grant, config)
    except SaslSettingError as error:
        pause_s = _REFUSED_PAUSE_S if isinstance(error, _RefusedError) else _TROUBLE_PAUSE_S
        _failed[grant] = _Failure(str(error), time.monotonic() + pause_s)
        raise
    return token


def _next_of(grant: _Grant, config: OwnTokenConfig, known: Token) -> Token:
    """Request the next token once; if the issuer returns none, return the present one, and retry later."""
    try:
        return _request_token(grant, config)
    except SaslSettingError as error:
        now_s = time.monotonic()
        left_s = round(known.expires_at_s - now_s)
        _log.warning("no other token; the one at hand is used until it ends", error=error, left_s=left_s)
        return replace(known, refresh_at_s=now_s + _REFRESH_PAUSE_S)


def _request_with_retries(grant: _Grant, config: OwnTokenConfig) -> Token:
    """Request a token; retry with growing pauses while the issuer is unreachable or fails, as Kafka's clients do."""
    ends_s = time.monotonic() + config.backoff_max_ms / 1000
    pause_s = config.backoff_ms / 1000
    while True:
        try:
            return _request_token(grant, config)
        except _TroubleError as error:
            left_s = ends_s - time.monotonic()
            if left_s <= 0 or pause_s <= 0:
                raise SaslSettingError(str(error)) from None
            time.sleep(min(pause_s, left_s))
            pause_s *= 2


def _request_token(grant: _Grant, config: OwnTokenConfig) -> Token:
    connect_ms, read_ms = config.connect_timeout_ms, config.read_timeout_ms
    patience = Patience(
        TIMEOUT_S if connect_ms is None else connect_ms / 1000, TIMEOUT_S if read_ms is None else read_ms / 1000
    )
    request = _request_of(grant)
    try:
        text, lifetime_s = _read(json.loads(exchange(request, _context(dict(grant.tls)), patience)))
    except urllib.error.HTTPError as error:
        with error:
            kind = _kind_of(error.code)
            raise kind(f"{ENDPOINT_KEY}: {grant.url} answered {error.code} {error.reason}") from None
    except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
        is_final = isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError)
        kind = SaslSettingError if is_final else _TroubleError
        raise kind(f"{ENDPOINT_KEY}: {grant.url} gives no token: {error}") from None
    except (OSError, HTTPException) as error:
        raise SaslSettingError(f"{ENDPOINT_KEY}: {grant.url} gives no token: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise SaslSettingError(f"{ENDPOINT_KEY}: {grant.url} answered without an access_token in JSON") from None
    # No comparison with NaN is true.
    lives_s = lifetime_s if 0 < lifetime_s < LONGEST_LIFETIME_S else UNKNOWN_LIFETIME_S
    now_s = time.monotonic()
    return Token(text, now_s + _renew_after_s(lives_s, config), now_s + lives_s)


def _request_of(grant: _Grant) -> urllib.request.Request:
    """Raises SaslSettingError if an assertion cannot be created."""
    headers = {"Accept": "application/json"}
    if grant.assertion is not None:
        form = grant.assertion.form(grant.client_id)
    else:
        form = {"grant_type": "client_credentials"}
        words = (grant.client_id, grant.secret)
        pair = ":".join(urllib.parse.quote_plus(word) if grant.is_encoded else word for word in words)
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    if grant.scope:
        form["scope"] = grant.scope
    data = urllib.parse.urlencode(form).encode()
    return urllib.request.Request(grant.url, data, headers)  # noqa: S310 - `current_token` takes http and https alone


def _kind_of(status: int) -> type[SaslSettingError]:
    if status in _RETRIED:
        return _TroubleError
    return _RefusedError if status in _REFUSED else SaslSettingError


def _read(answer: Any) -> tuple[str, float]:
    """The token in an answer, which is ASCII without blanks or control characters (RFC 6750 2.1), and for how long it
    lives."""
    text = answer["access_token"]
    if not isinstance(text, str) or not _TOKEN.fullmatch(text):
        raise ValueError(text)
    return text, float(answer.get("expires_in", UNKNOWN_LIFETIME_S))


def _renew_after_s(lives_s: float, config: OwnTokenConfig) -> float:
    """The time after which to renew a token, with jitter, so that not all clients send requests at once."""
    after_s = lives_s * (config.refresh_factor + config.refresh_jitter * random.random())
    if lives_s < config.refresh_min_period_s + config.refresh_buffer_s:
        return min(after_s, lives_s)
    return max(min(after_s, lives_s - config.refresh_buffer_s), config.refresh_min_period_s)


def _context(options: Mapping[str, str]) -> ssl.SSLContext:
    try:
        return issuer_context(options)
    except TlsSettingError as error:
        raise SaslSettingError(f"{ENDPOINT_KEY}: {error}") from None
