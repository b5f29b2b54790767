"""The client side of SASL: PLAIN (RFC 4616), SCRAM (RFC 5802, RFC 7677), OAUTHBEARER (RFC 7628) and GSSAPI (RFC 4752).

Each mechanism is a generator: it yields a message, and gets the broker's response. The owner of a connection sends the
messages; this module does no I/O but for Kerberos and tokens.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import TypeAlias

from odradek.common.errors import OdradekError
from odradek.common.real_kerberos import (
    DEFAULT_SERVICE,
    Context,
    KerberosError,
    KerberosLogin,
    MissingKerberosError,
    initiate,
    load,
)
from odradek.common.scram import (
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramMechanism,
    client_key_of,
    decode64,
    encode64,
    keys_of,
    salted_password,
    xor,
)

Dialogue: TypeAlias = Generator[bytes, bytes, None]

MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER", "GSSAPI")
# Mechanisms whose steps block or compute for long: with an event loop, they run in a thread.
OFF_THE_LOOP = frozenset({"GSSAPI", "OAUTHBEARER", *SCRAM_MECHANISMS})
ENDPOINT_KEY = "sasl.oauthbearer.token.endpoint.url"
_FILE = "file://"
# Kafka's brokers have at most 16,384; a malicious broker could send a huge number.
MOST_ITERATIONS = 100_000
NONCE_BYTES = 24
# Hashing takes milliseconds, and nodes connect often with the same password.
_salted_password = lru_cache(maxsize=8)(salted_password)
# A token (RFC 6750). A setting may name any file; one with other content is not sent to a broker.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
# An option of a JAAS entry; the value is quoted, or a word.
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;'"]+)""")


class SaslSettingError(OdradekError):
    """Invalid settings; the text begins with the setting's name."""


class ServerAuthenticationError(OdradekError):
    """The broker does not prove that it knows the password, or its message is malformed."""


@dataclass(frozen=True)
class Credentials:
    """The identity with which to log in to a listener with SASL.

    Attributes:
        mechanism: one of MECHANISMS.
        random: the source of nonces; it must be unpredictable.
        password: with OAUTHBEARER, the token.
        by_token: whether name and password are those of a delegation token.
        kerberos: with GSSAPI, the source of tickets.
        token: with OAUTHBEARER, returns the token of each login in place of `password`; it may block, and raises
            SaslSettingError.
        is_node: whether it is a node of the cluster, which retries after a refused token.
    """

    mechanism: str
    username: str
    password: str = field(repr=False)
    random: Random = field(repr=False, compare=False)
    by_token: bool = False
    kerberos: KerberosLogin | None = None
    token: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    is_node: bool = False


def has_sasl(settings: Mapping[str, str]) -> bool:
    """Whether the security protocol has SASL; without it the other settings of SASL have no effect."""
    return settings.get("security.protocol", "PLAINTEXT").upper().startswith("SASL")


def credentials_from(
    settings: Mapping[str, str], random: Random, *, token: Callable[[Mapping[str, str]], str] | None = None
) -> Credentials | None:
    """Read the `sasl.*` settings of Kafka's Java client or librdkafka; None if the security protocol has no SASL.

    Args:
        token: returns a token of OAUTHBEARER; by default `read_token`.
    Raises:
        SaslSettingError: the mechanism is not supported, or name and password are missing.
    """
    if not has_sasl(settings):
        return None
    mechanism = settings.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise SaslSettingError(f"sasl.mechanism={mechanism} is not supported; {', '.join(MECHANISMS)} are")
    if mechanism == "OAUTHBEARER":
        given = partial(token or read_token, dict(settings))
        given()  # fail at once if there is no token; each login gets a new one
        return Credentials(mechanism, "the owner of the token", "", random, token=given)
    if mechanism == "GSSAPI":
        return _by_ticket(ticket_from(settings), random)
    found = jaas_options(settings)
    username = settings.get("sasl.username", found.get("username", ""))
    password = settings.get("sasl.password", found.get("password", ""))
    if not username or not password:
        raise SaslSettingError(
            "sasl.jaas.config must hold username and password, as in: "
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";'
        )
    return Credentials(mechanism, username, password, random, found.get("tokenauth", "").lower() == "true")


def _by_ticket(ticket: KerberosLogin, random: Random) -> Credentials:
    try:
        load()
    except MissingKerberosError as error:
        raise SaslSettingError(f"sasl.mechanism=GSSAPI: {error}") from None
    return Credentials("GSSAPI", ticket.principal or "the owner of the ticket", "", random, kerberos=ticket)


def jaas_options(settings: Mapping[str, str]) -> dict[str, str]:
    """The options of the entry in `sasl.jaas.config`, with lower-case names."""
    entry = settings.get("sasl.jaas.config", "")
    return {name.lower(): _unquoted(value) for name, value in _JAAS_OPTION.findall(entry)}


def ticket_from(settings: Mapping[str, str]) -> KerberosLogin:
    """The source of tickets for GSSAPI: a keytab, or the ticket cache of kinit.

    Raises:
        SaslSettingError: the settings are those of another mechanism.
    """
    entry = settings.get("sasl.jaas.config", "")
    if entry and ".Krb5LoginModule " not in entry:
        raise SaslSettingError(
            "sasl.mechanism is GSSAPI, but sasl.jaas.config has another login module: set sasl.mechanism"
        )
    found = jaas_options(settings)
    return KerberosLogin(
        settings.get("sasl.kerberos.service.name", found.get("servicename", DEFAULT_SERVICE)),
        settings.get("sasl.kerberos.principal", found.get("principal", "")),
        settings.get("sasl.kerberos.keytab", found.get("keytab", "")),
        found.get("ticketcache", ""),
    )


def read_token(settings: Mapping[str, str]) -> str:
    """The token of OAUTHBEARER, from a file that another process renews (KIP-768).

    Raises:
        SaslSettingError: no file is configured, or it cannot be read, or holds no token; never with its content.
    """
    url = settings.get(ENDPOINT_KEY, "")
    if not url.startswith(_FILE):
        raise SaslSettingError(f"{ENDPOINT_KEY} must name the file with the token: file:///path")
    try:
        found = Path(url.removeprefix(_FILE)).read_bytes().decode("latin-1").strip()
    except OSError as error:
        raise SaslSettingError(f"{ENDPOINT_KEY}: the file with the token cannot be read: {error}") from None
    if not _TOKEN.fullmatch(found):
        raise SaslSettingError(f"{ENDPOINT_KEY}: {url} holds no token")
    return found


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] in "'\"" else value


def sasl_exchange(who: Credentials, host: str = "") -> Dialogue:
    """The client's messages, in order, to a broker on `host`.

    The generator raises ServerAuthenticationError; with GSSAPI also KerberosError and MissingKerberosError.
    """
    if who.kerberos is not None:
        return _gssapi(who.kerberos, host)
    if who.mechanism == "PLAIN":
        return _plain(who.username, who.password)
    if who.mechanism == "OAUTHBEARER":
        return _oauthbearer(who.token or (lambda: who.password))
    nonce = encode64(who.random.randbytes(NONCE_BYTES))
    extension = ",tokenauth=true" if who.by_token else ""
    return _scram(SCRAM_MECHANISMS[who.mechanism], who.username, who.password, nonce, extension)


def _plain(username: str, password: str) -> Dialogue:
    yield f"\0{username}\0{password}".encode()


def _oauthbearer(token: Callable[[], str]) -> Dialogue:
    refused = yield f"n,,\1auth=Bearer {token()}\1\1".encode()
    if refused:
        yield b"\1"  # the broker then responds that the login failed


def _gssapi(ticket: KerberosLogin, host: str) -> Dialogue:
    context = initiate(ticket, host)
    answer = yield context.step(None)
    while not context.complete:
        answer = yield context.step(answer)
    yield _without_layer(context, answer)


def _without_layer(context: Context, offer: bytes) -> bytes:
    """The response to the broker's security layers: none of them, and the principal of the ticket."""
    try:
        layers = context.unwrap(offer)
    except KerberosError:
        raise ServerAuthenticationError("the broker does not have the key of its service") from None
    if len(layers) != 4 or not layers[0] & 1:
        raise ServerAuthenticationError("the broker requires a security layer, which Kafka's protocol does not have")
    return context.wrap(bytes((1, 0, 0, 0)))


def _scram(mechanism: ScramMechanism, username: str, password: str, nonce: str, extension: str = "") -> Dialogue:
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}{extension}"
    challenge = yield f"n,,{first}".encode()
    fields = _fields(challenge)
    try:
        theirs, salt, iterations = fields["r"], decode64(fields["s"]), int(fields["i"])
    except (KeyError, ValueError):
        raise ServerAuthenticationError("the broker's SCRAM challenge is malformed") from None
    if not theirs.startswith(nonce) or len(theirs) == len(nonce) or iterations < MIN_ITERATIONS:
        raise ServerAuthenticationError("the broker's SCRAM challenge has another nonce, or too few iterations")
    if iterations > MOST_ITERATIONS:
        raise ServerAuthenticationError(f"the broker's SCRAM challenge has more than {MOST_ITERATIONS} iterations")
    salted = _salted_password(mechanism, password.encode(), salt, iterations)
    keys = keys_of(mechanism, salted)
    bare = f"c=biws,r={theirs}"
    signed = f"{first},{challenge.decode()},{bare}".encode()
    signature = hmac.digest(keys.stored_key, signed, mechanism.algorithm)
    proof = xor(client_key_of(mechanism, salted), signature)
    verdict = yield f"{bare},p={encode64(proof)}".encode()
    expected = encode64(hmac.digest(keys.server_key, signed, mechanism.algorithm))
    if not hmac.compare_digest(_fields(verdict).get("v", "").encode(), expected.encode()):
        raise ServerAuthenticationError("the broker does not know the password: its identity is not proved")


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ServerAuthenticationError("the broker's SCRAM message is malformed") from None
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}
