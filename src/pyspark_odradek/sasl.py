"""The client's half of SASL: what it says next, and whether the broker has proved that it knows the password too.

PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677). Each mechanism is a generator: it yields what to send and is sent what
the broker answers.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator
from typing import TypeAlias

from pyspark_odradek.errors import ClusterError

Dialogue: TypeAlias = Generator[bytes, bytes, None]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MIN_ITERATIONS = 4096  # RFC 7677; fewer would let a false broker guess the password from our proof
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def dialogue(mechanism: str, username: str, password: str) -> Dialogue:
    """What the client says, in order. The generator raises ClusterError for a broker that does not prove itself."""
    if mechanism == "PLAIN":
        return _plain(username, password)
    return _scram(_HASHES[mechanism], username, password, secrets.token_urlsafe(24))


def _plain(username: str, password: str) -> Dialogue:
    yield f"\0{username}\0{password}".encode()


def _scram(algorithm: str, username: str, password: str, nonce: str) -> Dialogue:
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    challenge = yield f"n,,{first}".encode()
    fields = _fields(challenge)
    try:
        theirs, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
    except (KeyError, ValueError):
        raise ClusterError("the broker's SCRAM challenge makes no sense") from None
    if not theirs.startswith(nonce) or len(theirs) == len(nonce) or iterations < MIN_ITERATIONS:
        raise ClusterError("the broker's SCRAM challenge does not answer ours, or is too weak")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    bare = f"c=biws,r={theirs}"
    signed = f"{first},{challenge.decode()},{bare}".encode()
    signature = hmac.digest(stored_key, signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    verdict = yield f"{bare},p={base64.b64encode(proof).decode()}".encode()
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    expected = base64.b64encode(hmac.digest(server_key, signed, algorithm)).decode()
    if not hmac.compare_digest(_fields(verdict).get("v", ""), expected):
        raise ClusterError("the broker does not know the password: it is not the one that it claims to be")


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ClusterError("the broker's SCRAM message makes no sense") from None
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}
