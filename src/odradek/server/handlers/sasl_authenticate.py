"""SaslAuthenticate: key 36, versions 0-2. One message of a login, and the response (KIP-152).

Behaviour: the response to a failed login is sent after `connection.failed.authentication.delay.ms`, and the connection
is closed. The response does not reveal whether the user exists. Versions: 1 the time after which the client must log in
again (KIP-368), 2 flexible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ErrorCode
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from odradek.server.context import RequestContext

if TYPE_CHECKING:
    from odradek.server.network.login_gate import Answer, LoginGate


def handle(
    context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Coroutine[Any, Any, SaslAuthenticateResponse]:
    """Continue the login of this connection."""
    gate = context.connection.gate
    if gate is None or not gate.expects_token:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    if gate.blocks:
        return _evaluate(context, gate, bytes(request.auth_bytes))
    answer = context.connection.evaluate(gate, bytes(request.auth_bytes))
    if answer.code != ErrorCode.NONE:
        return _later(context, gate, answer)
    return _response(answer)


async def _evaluate(context: RequestContext, gate: LoginGate, message: bytes) -> SaslAuthenticateResponse:
    answer = await context.connection.evaluate_off_loop(gate, message)
    if answer.code == ErrorCode.NONE:
        return _response(answer)
    return await _later(context, gate, answer)


def _response(answer: Answer) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_message=None, auth_bytes=answer.token, session_lifetime_ms=answer.session_ms)


async def _later(context: RequestContext, gate: LoginGate, answer: Answer) -> SaslAuthenticateResponse:
    await asyncio.sleep(gate.listener.config.failure_delay_ms / 1000)
    context.connection.close_after_responses()
    return SaslAuthenticateResponse(error_code=answer.code, error_message=answer.text)
