"""SaslHandshake: key 17, versions 0-1. A client says by which mechanism it logs in (KIP-43).

Behaviour: an unknown mechanism is answered with those of the listener, and the connection ends. Where the listener has
no SASL it is ILLEGAL_SASL_STATE. Versions: after 0 the messages of the mechanism come as bare frames, after 1 in
SaslAuthenticate (KIP-152). A client that is logged in begins to do so again with it (KIP-368).
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
