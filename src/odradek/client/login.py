"""What a client asks a listener with SASL, one request after the other, and what it makes of the answers.

The owner of a connection carries requests and responses, blocking or not: this file knows neither sockets nor a loop.
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

# A request with the type of its answer is yielded; the answer is sent.
Login: TypeAlias = Generator[tuple[Message, type[Any]], Any, None]


class RefusedLoginError(OdradekError):
    """The broker does not let us in as who we are, or is not the one that it claims to be: no other try helps."""


class MissingTokenError(RefusedLoginError):
    """There is no token to log in with, for now."""


def login(who: Credentials, address: str) -> Login:
    """Say who we are, by a mechanism that the listener offers; `address` is for what is said where that fails.

    Raises:
        RefusedLoginError: the listener has not this mechanism, or refuses us, or does not know the password itself.
    """
    offered = yield SaslHandshakeRequest(mechanism=who.mechanism), SaslHandshakeResponse
    if offered.error_code != ErrorCode.NONE:
        if not offered.mechanisms:
            raise RefusedLoginError(f"{address} offers no SASL; does security.protocol say what this listener speaks?")
        offers = ", ".join(offered.mechanisms)
        raise RefusedLoginError(
            f"{address} offers {offers} for SASL, not {who.mechanism}; set sasl.mechanism to what it offers"
        )
    speaking = sasl_exchange(who, address.rpartition(":")[0])
    words = _said(who, speaking, None, address)
    while words is not None:
        answer = yield SaslAuthenticateRequest(auth_bytes=words), SaslAuthenticateResponse
        if answer.error_code != ErrorCode.NONE:
            why = (answer.error_message or "no reason is given").rstrip(".")
            raise RefusedLoginError(
                f"{address} refused {who.username}: {why}; mend name or password, or renew the token"
            )
        words = _said(who, speaking, bytes(answer.auth_bytes), address)


def go_on(asking: Login, answer: Any) -> tuple[Message, type[Any]] | None:
    """What is asked next, once the answer to what was asked last is here (None at first); None where all is done.

    It may block, or compute for long, for a mechanism of OFF_THE_LOOP. Raises as `login`.
    """
    try:
        return asking.send(answer)
    except StopIteration:
        return None


def _said(who: Credentials, speaking: Dialogue, heard: bytes | None, address: str) -> bytes | None:
    """What we say next; None where all is said. Raises RefusedLoginError."""
    try:
        return next(speaking) if heard is None else speaking.send(heard)
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
