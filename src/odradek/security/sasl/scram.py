"""The server's half of SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677), as in Kafka's brokers.

An unknown user gets a challenge too: its salt is derived from the name and a shared secret of the nodes, so that it is
the same each time and at each broker. It has the length and iterations of most users.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Callable, Mapping

from odradek.common.scram import (
    DEFAULT_ITERATIONS,
    SALT_BYTES,
    ScramMechanism,
    decode64,
    encode64,
    xor,
)
from odradek.metadata.model import ScramCredential
from odradek.security.sasl.exchange import AuthenticationError, Exchange, LoggedIn

NONCE_BYTES = 24
# The limit of a client's first message beyond name and nonce. The message is hashed, and no client sends more.
MAX_MESSAGE_BYTES = 4096
_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_EXTENSIONS = r"(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*)"
_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<acts_as>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>[!-+\--~]+){_EXTENSIONS})"
)
_FINAL = re.compile(
    rf"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+){_EXTENSIONS}),p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class ScramUsers:
    """Credentials of users, and challenges for unknown users.

    Args:
        secret: a shared secret of the nodes, if there is one.
    """

    def __init__(self, mechanism: ScramMechanism, secret: bytes) -> None:
        self.mechanism = mechanism
        self._secret = secret
        self._seen: Mapping[tuple[str, int], ScramCredential] | None = None
        self._key = b""
        self._salt_bytes, self._iterations = SALT_BYTES, DEFAULT_ITERATIONS

    def challenge(
        self, credentials: Mapping[tuple[str, int], ScramCredential], name: str
    ) -> tuple[ScramCredential, bool]:
        """The credential to check a user against, and whether there is such a user.

        Args:
            credentials: of all users; a mapping that is replaced, not changed.
        """
        if credentials is not self._seen:
            self._refresh(credentials)
        # Made for those that exist as well: it takes the same time.
        other = self._decoy(name)
        found = credentials.get((name, self.mechanism.number))
        return (other, False) if found is None else (found, True)

    def _refresh(self, credentials: Mapping[tuple[str, int], ScramCredential]) -> None:
        own = [each for (_, number), each in credentials.items() if number == self.mechanism.number]
        shapes = Counter((len(each.salt), each.iterations) for each in own)
        if shapes:
            self._salt_bytes, self._iterations = min(shapes, key=lambda shape: (-shapes[shape], shape))
        # No client can know a user's server key, and all nodes know the same.
        first = credentials[min(credentials)].server_key if credentials else b""
        self._key = hmac.digest(self._secret, b"unknown users" + first, "sha256")
        self._seen = credentials

    def _decoy(self, name: str) -> ScramCredential:
        seed = f"{self.mechanism.name}:{name}".encode()
        blocks = (
            hmac.digest(self._key, bytes([block]) + seed, "sha512") for block in range(1 + self._salt_bytes // 64)
        )
        key = bytes(self.mechanism.key_bytes)
        return ScramCredential(b"".join(blocks)[: self._salt_bytes], key, key, self._iterations)


FindToken = Callable[[str, ScramMechanism], "tuple[str, int, ScramCredential] | None"]


def no_tokens(token_id: str, mechanism: ScramMechanism) -> None:
    """Find no credential: the node has no delegation tokens."""


def scram(
    users: ScramUsers,
    credentials: Mapping[tuple[str, int], ScramCredential],
    nonce: str,
    find_token: FindToken = no_tokens,
) -> Exchange:
    """Request a proof that the client knows the password, and prove that we know the user.

    Args:
        nonce: ours; it must be unpredictable.
        find_token: owner, end and credential of a delegation token, by its id.
    """
    mechanism = users.mechanism
    first = _match(_FIRST, (yield b""))
    name = first["name"].replace("=2C", ",").replace("=3D", "=")
    by_token = _extensions(first["extensions"]).get("tokenauth", "").lower() == "true"
    credential, exists = users.challenge(credentials, name)
    owner, expires_at_ms = name, None
    if by_token:
        found = find_token(name, mechanism)
        exists = found is not None
        if found is not None:
            owner, expires_at_ms, credential = found
    whole_nonce = first["nonce"] + nonce
    challenge = f"r={whole_nonce},s={encode64(credential.salt)},i={credential.iterations}"
    final = _match(_FINAL, (yield challenge.encode()))
    if final["nonce"] != whole_nonce or final["binding"] != encode64(first["header"].encode()):
        raise AuthenticationError(_failed(mechanism))
    signed = f"{first['bare']},{challenge},{final['bare']}".encode()
    proved = _is_proof(mechanism, credential, signed, final["proof"])
    acts_as = (first["acts_as"] or first["name"]) == first["name"]
    if not (proved and exists and acts_as):
        raise AuthenticationError(_failed(mechanism))
    signature = hmac.digest(credential.server_key, signed, mechanism.algorithm)
    return LoggedIn(owner, f"v={encode64(signature)}".encode(), expires_at_ms, by_token)


def _is_proof(mechanism: ScramMechanism, credential: ScramCredential, signed: bytes, proof: str) -> bool:
    signature = hmac.digest(credential.stored_key, signed, mechanism.algorithm)
    try:
        client_key = xor(signature, decode64(proof))
    except ValueError:
        return False
    return hmac.compare_digest(hashlib.new(mechanism.algorithm, client_key).digest(), credential.stored_key)


def _match(pattern: re.Pattern[str], message: bytes) -> re.Match[str]:
    """Raises AuthenticationError if the message is invalid."""
    try:
        found = pattern.fullmatch(message.decode()) if len(message) <= MAX_MESSAGE_BYTES else None
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise AuthenticationError("Invalid SCRAM message format")
    return found


def _extensions(text: str) -> dict[str, str]:
    pairs = (each.partition("=") for each in text.split(",") if each)
    return {name: value for name, _, value in pairs}


def _failed(mechanism: ScramMechanism) -> str:
    return (
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism.name}"
    )
