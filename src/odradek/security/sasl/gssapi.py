"""The server's half of GSSAPI (RFC 4752): the client presents a ticket, and both agree on no security layer.

As in Kafka, TLS protects the connection instead. Each step may block, and runs off the event loop.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.common.real_kerberos import Context, KerberosError
from odradek.security.sasl.exchange import AuthenticationError, Exchange, LoggedIn
from odradek.security.sasl.kerberos_names import KerberosNames, NoMatchingRuleError

GSSAPI = "GSSAPI"
NO_LAYER = 1
# Tickets of Active Directory for users of very many groups are as long; more is no client's, and would be decoded.
MAX_MESSAGE_BYTES = 65_536
# The layers that we offer, and the largest message with one of them: there are none.
_OFFER = bytes((NO_LAYER, 0, 0, 0))
FAILED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"


def gssapi(begin: Callable[[], Context], names: KerberosNames) -> Exchange:
    """Accept a ticket, and agree on no security layer.

    Args:
        begin: creates a context of the service.
        names: maps principals to users.
    """
    message = yield b""
    try:
        context = begin()
        answer = context.step(_bounded(message))
        while answer or not context.complete:
            message = yield answer
            if context.complete:
                if message:
                    raise _failed("a message came where none is due")
                break
            answer = context.step(_bounded(message))
        choice = context.unwrap(_bounded((yield context.wrap(_OFFER))))
        if len(choice) < 4 or choice[0] != NO_LAYER:
            raise _failed("the client wants a security layer, and none is offered")
        # An authorization id may follow. As in Kafka it is ignored: the ticket decides.
        return LoggedIn(names.name_of(context.initiator))
    except KerberosError as error:
        raise _failed(error.reason) from None
    except NoMatchingRuleError as error:
        raise _failed(str(error)) from None


def _bounded(message: bytes) -> bytes:
    if len(message) > MAX_MESSAGE_BYTES:
        raise _failed(f"a message is longer than {MAX_MESSAGE_BYTES} bytes")
    return message


def _failed(reason: str) -> AuthenticationError:
    return AuthenticationError(FAILED, reason)
