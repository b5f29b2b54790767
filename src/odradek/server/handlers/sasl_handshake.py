"""SaslHandshake: key 17, versions 0-1. Selects the SASL mechanism of a client (KIP-43).

Behaviour: the response to an unknown mechanism has those of the listener, and the connection is closed. On a listener
without SASL the error is ILLEGAL_SASL_STATE. Versions: after 0 the messages of the mechanism are bare frames, after 1
they are in SaslAuthenticate (KIP-152). It also begins a re-authentication (KIP-368).
"""

from __future__ import annotations

from odradek.common.errors import ErrorCode
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from odradek.server.context import RequestContext


def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Begin a login."""
    connection = context.connection
    gate = connection.gate
    if gate is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    code = gate.begin(request.mechanism, context.api_version, context.broker.clock.monotonic_ms())
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        connection.close_after_responses(f"the client asks for a SASL mechanism that {gate.listener.name} has not")
    return SaslHandshakeResponse(error_code=code, mechanisms=list(gate.listener.mechanisms))
