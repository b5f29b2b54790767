"""Requests before a login, and the rules of permissions: no input lets an unknown user in."""

from __future__ import annotations

import base64
import functools
import json
from random import Random

from odradek.common.errors import ConfigError
from odradek.common.scram import SCRAM_SHA_256, encode64, keys_of, salted_password
from odradek.metadata.model import ScramCredential
from odradek.security.sasl.config import TokenConfig
from odradek.security.sasl.exchange import AuthenticationError, Exchange, plain
from odradek.security.sasl.oauthbearer import oauthbearer
from odradek.security.sasl.scram import ScramUsers, scram
from odradek.security.sasl.tokens import PublicKeys, check_token, check_unsigned, read_keys
from odradek.server.startup.first_users import first_users
from odradek.settings.jaas import parse_jaas
from tests.fuzz.engine import Target

NOW_MS = 1_800_000_000_000
SECRET = "a password that no input has by chance"
SETTINGS = TokenConfig(issuer="i", audience=("a",))
PLAIN, SCRAM, BEARER, TOKEN, UNSIGNED, JAAS, KEYS, FIRST = range(8)


@functools.cache
def _credentials() -> dict[tuple[str, int], ScramCredential]:
    keys = keys_of(SCRAM_SHA_256, salted_password(SCRAM_SHA_256, SECRET.encode(), b"salt", 4096))
    return {("alice", 1): ScramCredential(b"salt", keys.stored_key, keys.server_key, 4096)}


@functools.cache
def _document() -> bytes:
    from joserfc.jwk import ECKey

    key = ECKey.generate_key("P-256", {"kid": "k"})
    return json.dumps({"keys": [key.as_dict(private=False)]}).encode()


def _part(value: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def _token(rng: Random, algorithm: str) -> bytes:
    now = NOW_MS // 1000
    claims = {
        "sub": "x",
        "iss": rng.choice("ib"),
        "aud": rng.choice("ab"),
        "iat": now,
        "exp": now + rng.randrange(-9, 9),
    }
    signature = b"" if algorithm == "none" else base64.urlsafe_b64encode(rng.randbytes(64)).rstrip(b"=")
    return b".".join((_part({"alg": algorithm, "kid": "k"}), _part(claims), signature))


def generate_login(rng: Random) -> bytes:
    """A byte that says who reads it, then the text; two messages are parted by a line's end."""
    kind = rng.randrange(8)
    proof = encode64(rng.randbytes(32)).encode()
    texts = {
        PLAIN: b"\0alice\0" + rng.randbytes(rng.randrange(9)),
        SCRAM: b"n,,n=alice,r=abc\nc=biws,r=abcserver,p=" + proof,
        BEARER: b"n,,\1auth=Bearer " + _token(rng, "ES256") + b"\1\1",
        TOKEN: _token(rng, rng.choice(("ES256", "none", "HS256", "RS256"))),
        UNSIGNED: _token(rng, "none"),
        JAAS: b"com.example.Module required username=\"a\" user_b='c';",
        KEYS: _document(),
        FIRST: b'SCRAM-SHA-256=[name="a",salt=' + encode64(b"salt").encode() + b",saltedpassword=" + proof + b"]",
    }
    return bytes((kind,)) + texts[kind]


def run_login(data: bytes) -> None:
    if not data:
        return
    kind, text = data[0] % 8, data[1:]
    if kind in (PLAIN, SCRAM, BEARER):
        _refuses(_exchange(kind), text)
    elif kind == TOKEN:
        _believes_nothing(text.decode("utf-8", "replace"))
    else:
        _reads(kind, text)


def _exchange(kind: int) -> Exchange:
    if kind == PLAIN:
        return plain({"alice": SECRET})
    if kind == SCRAM:
        return scram(ScramUsers(SCRAM_SHA_256, b"secret"), _credentials(), "server")
    return oauthbearer(lambda token: check_token(token, PublicKeys(read_keys(_document())), SETTINGS, NOW_MS))


def _refuses(exchange: Exchange, text: bytes) -> None:
    next(exchange)
    try:
        for message in text.split(b"\n", 1):
            exchange.send(message)
    except AuthenticationError as error:
        assert SECRET not in str(error)
    except StopIteration as end:
        raise AssertionError(f"it is let in as {end.value.name}") from None


def _believes_nothing(text: str) -> None:
    try:
        check_token(text, PublicKeys(read_keys(_document())), SETTINGS, NOW_MS)
    except AuthenticationError:
        return
    raise AssertionError("a token is believed that no one signed")


def _reads(kind: int, data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        if kind == UNSIGNED:
            assert check_unsigned(text, SETTINGS, NOW_MS).name.strip()
        elif kind == JAAS:
            assert parse_jaas(text).module
        elif kind == KEYS:
            assert read_keys(data)
        elif "password=" not in text.replace("saltedpassword=", ""):  # to hash one takes milliseconds
            assert first_users([text], Random(1))
    except (AuthenticationError, ConfigError, ValueError) as error:
        assert str(error)


WORDS = (
    b",",
    b"=2C",
    b"n,,",
    b"a=alice,",
    b"m=",
    b"\0",
    b"\1",
    b"tokenauth=true",
    b".",
    b'{"alg":"none"}',
    b'"',
    b"[[[",
)
TARGETS = (Target("logins", generate_login, run_login, WORDS),)
