"""The requests of a SASL login, in order, and the handling of their responses.

The owner of a connection sends the requests, with or without an event loop; this module does no I/O.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

from odradek.client.sasl import Credentials, Dialogue, SaslSettingError, ServerAuthenticationError, sasl_exchange
from odradek.common.errors import ErrorCode, OdradekError
from odradek.common.real_kerberos import KerberosError, MissingKerberosError
from odradek.protocol.declare import Message
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.protocol.messages.sasl_handshake_response import SaslHandshakeResponse

# Yields a request with the type of its response; the response is sent to the generator.
Login: TypeAlias = Generator[tuple[Message, type[Any]], Any, None]


class RefusedLoginError(OdradekError):
    """The broker refused the login, or could not prove its identity: a retry does not help."""


class MissingTokenError(RefusedLoginError):
    """There is no token to log in with at present."""


def login(who: Credentials, address: str) -> Login:
    """Log in with the mechanism of `who`; `address` is for error messages.

    Raises:
        RefusedLoginError: the listener does not offer the mechanism, refuses the login, or does not know the password.
    """
    offered = yield SaslHandshakeRequest(mechanism=who.mechanism), SaslHandshakeResponse
    if offered.error_code != ErrorCode.NONE:
        if not offered.mechanisms:
            raise RefusedLoginError(f"{address} has no SASL: check security.protocol")
        offers = ", ".join(offered.mechanisms)
        raise RefusedLoginError(
            f"{address} offers {offers} for SASL, not {who.mechanism}: set sasl.mechanism to one of them"
        )
    exchange = sasl_exchange(who, address.rpartition(":")[0])
    message = _next_message(who, exchange, None, address)
    while message is not None:
        answer = yield SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse
        if answer.error_code != ErrorCode.NONE:
            why = (answer.error_message or "no reason is given").rstrip(".")
            raise RefusedLoginError(
                f"{address} refused {who.username}: {why}; correct the name or password, or renew the token"
            )
        message = _next_message(who, exchange, bytes(answer.auth_bytes), address)


def advance_login(asking: Login, answer: Any) -> tuple[Message, type[Any]] | None:
    """Pass a response (None at first) to a login; returns the next request, or None when the login is done.

    This may block for mechanisms of OFF_THE_LOOP. Raises as `login`.
    """
    try:
        return asking.send(answer)
    except StopIteration:
        return None


def _next_message(who: Credentials, exchange: Dialogue, response: bytes | None, address: str) -> bytes | None:
    """The next message of the mechanism; None when there is none. Raises RefusedLoginError."""
    try:
        return next(exchange) if response is None else exchange.send(response)
    except StopIteration:
        return None
    except SaslSettingError as error:
        raise MissingTokenError(f"{address}: {error}") from None
    except (ServerAuthenticationError, MissingKerberosError) as error:
        raise RefusedLoginError(f"{address}: {error}") from None
    except KerberosError as error:
        service = "" if who.kerberos is None else who.kerberos.service
        host = address.rpartition(":")[0]
        raise RefusedLoginError(
            f"{address}: Kerberos gives {who.username} no ticket for {service}@{host}: {error}; look at klist and kvno"
        ) from None
