"""OAUTHBEARER (RFC 7628, KIP-255): a client authenticates with a token.

The response to an invalid token has the reason as JSON; the client then sends one byte, and the login fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from odradek.security.sasl.exchange import AuthenticationError, Exchange, LoggedIn
from odradek.security.sasl.tokens import MissingScopeError, Token

_NAME = r"(?:[^=,\0\x01]|=2C|=3D)+"
_PAIRS = r"(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)*)"
_FIRST = re.compile(rf"n,(?:a=(?P<acts_as>{_NAME}))?,\x01{_PAIRS}\x01")
_BEARER = re.compile(r"bearer +(?P<token>[A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
_REFUSED = b'{"status":"invalid_token"}'
_MISSING_SCOPE = b'{"status":"insufficient_scope"}'


def oauthbearer(check: Callable[[str], Token]) -> Exchange:
    """Validate a token.

    Args:
        check: returns the user of a token; raises AuthenticationError if it is invalid.
    """
    message = yield b""
    try:
        found = _FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise AuthenticationError("Invalid OAUTHBEARER client first message")
    pairs = [each.partition("=") for each in found["pairs"].split("\x01") if each]
    values = [value for name, _, value in pairs if name == "auth"]
    bearer = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
    if bearer is None:
        raise AuthenticationError("Invalid OAUTHBEARER client first message: it has no bearer token")
    try:
        token = check(bearer["token"])
    except AuthenticationError as error:
        yield _MISSING_SCOPE if isinstance(error, MissingScopeError) else _REFUSED
        raise AuthenticationError(str(error)) from None
    acts_as = found["acts_as"]
    if acts_as is not None and acts_as.replace("=2C", ",").replace("=3D", "=") != token.name:
        raise AuthenticationError(
            "Authentication failed: Client requested an authorization id that is different from the token's"
        )
    return LoggedIn(token.name, expires_at_ms=token.expires_at_ms)
