"""The computations of both sides of a SCRAM login, and of credentials (RFC 5802, RFC 7677).

A broker stores the salt, the iterations and two keys of a user, from which the password cannot be derived. Only the
creator of the keys of a password (the client, or the creator of a credential) computes the iterations.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field

MIN_ITERATIONS = 4096  # fewer would make a stolen credential, or our proof, too easy to guess the password from
MAX_ITERATIONS = 16384  # Kafka's; each login of the user costs so much
DEFAULT_ITERATIONS = 4096  # Kafka's
SALT_BYTES = 26  # as long as those that Kafka's tools draw


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """One of the two hashes.

    Attributes:
        number: in requests and records.
        algorithm: the hash, as hashlib names it.
    """

    name: str
    number: int
    algorithm: str
    key_bytes: int


SCRAM_SHA_256 = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SCRAM_SHA_512 = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)
SCRAM_MECHANISMS = {each.name: each for each in (SCRAM_SHA_256, SCRAM_SHA_512)}
SCRAM_BY_NUMBER = {each.number: each for each in SCRAM_MECHANISMS.values()}


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """The stored keys of a password, besides salt and iterations."""

    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """The password, hashed; takes milliseconds."""
    return hashlib.pbkdf2_hmac(mechanism.algorithm, password, salt, iterations)


def keys_of(mechanism: ScramMechanism, salted: bytes) -> ScramKeys:
    """The keys of a salted password."""
    client_key = client_key_of(mechanism, salted)
    return ScramKeys(
        hashlib.new(mechanism.algorithm, client_key).digest(),
        hmac.digest(salted, b"Server Key", mechanism.algorithm),
    )


def client_key_of(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """The key by which a client proves that it knows the password."""
    return hmac.digest(salted, b"Client Key", mechanism.algorithm)


def xor(one: bytes, other: bytes) -> bytes:
    """Bit by bit; both are of one length."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def encode64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode64(text: str) -> bytes:
    """Raises ValueError for anything but base64."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
