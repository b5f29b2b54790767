"""The server's half of SASL.

Each mechanism is a generator, as on the client's side: messages of the client are sent in, responses are yielded, and
the last response is returned with the user name. It raises `AuthenticationError` without details: an unknown user and a
wrong password take the same steps, and have the same response.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from odradek.common.errors import OdradekError


class AuthenticationError(OdradekError):
    """The login failed. The text is sent to the client and logged: it has nothing that the client sent.

    Attributes:
        reason: more text for the log, also without data of the client; "" if there is none.
    """

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """An authenticated client.

    Attributes:
        name: of the user.
        final_token: the last message for the client.
        expires_at_ms: wall-clock time at which its credentials expire; None if they do not.
        by_token: whether it was a delegation token.
    """

    name: str
    final_token: bytes = field(default=b"", repr=False)
    expires_at_ms: int | None = None
    by_token: bool = False


# The first value that is yielded is empty: it is there to be sent the client's first message.
Exchange: TypeAlias = Generator[bytes, bytes, LoggedIn]

PLAIN_FAILED = "Authentication failed: Invalid username or password"


def plain(passwords: Mapping[str, str]) -> Exchange:
    """PLAIN (RFC 4616): name and password, compared with those of the listener's JAAS configuration.

    Args:
        passwords: by user.
    """
    message = yield b""
    parts = message.split(b"\0")
    if len(parts) != 3:
        raise AuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    try:
        acts_as, name, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise AuthenticationError("Invalid SASL/PLAIN response: it is no UTF-8") from None
    if not name or not password:
        missing = "username" if not name else "password"
        raise AuthenticationError(f"Authentication failed: {missing} not specified")
    expected = passwords.get(name)
    # Hashes of equal length are compared, so that the time of the comparison reveals nothing.
    same = hmac.compare_digest(_digest(password), _digest("" if expected is None else expected))
    if not same or expected is None:
        raise AuthenticationError(PLAIN_FAILED)
    if acts_as not in ("", name):
        raise AuthenticationError(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
    return LoggedIn(name)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
