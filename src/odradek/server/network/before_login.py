"""Requests and messages that arrive before the client of a connection has logged in."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ErrorCode
from odradek.protocol.framing import encode_response

if TYPE_CHECKING:
    from odradek.server.context import RequestContext
    from odradek.server.network.connection import Connection
    from odradek.server.network.dispatch import Dispatcher, Route
    from odradek.server.network.login_gate import Answer, LoginGate


def refuse_before_login(connection: Connection, gate: LoginGate, context: RequestContext, route: Route) -> bool:
    """Whether a request is refused, because the client has not logged in.

    As in Kafka, a request in the middle of a login is answered with an error, any other is not; the connection is
    closed in both cases.
    """
    refusal = gate.refusal(context.api_key, context.broker.clock.monotonic_ms())
    if not refusal:
        return False
    code = ErrorCode.ILLEGAL_SASL_STATE
    answer = route.error_response(context.api_version, code, "") if gate.expects_token else None
    if answer is None:
        connection.close_because(refusal)
        return True
    connection.close_after_responses(refusal)
    connection.send(None, encode_response(context.api_key, context.api_version, context.correlation_id, answer))
    return True


def respond_to_raw_token(
    dispatcher: Dispatcher, connection: Connection, gate: LoginGate, message: bytes
) -> asyncio.Task[Any] | None:
    """Answer a bare message of a login, as they are after SaslHandshake version 0."""
    if gate.blocks:
        connection.requests.is_exclusive = True
        return dispatcher.start_task(_evaluate(connection, gate, message))
    answer = connection.evaluate(gate, message)
    if answer.code == ErrorCode.NONE:
        connection.send(None, _framed(answer))
        return None
    connection.close_after_responses()
    return dispatcher.start_task(_close_later(connection, gate.listener.config.failure_delay_ms / 1000))


async def _evaluate(connection: Connection, gate: LoginGate, message: bytes) -> None:
    answer = await connection.evaluate_off_loop(gate, message)
    if connection.is_closing:
        return
    connection.requests.is_exclusive = False
    if answer.code == ErrorCode.NONE:
        connection.send(None, _framed(answer))
        connection.response_queued(others_wait=False)
    else:
        connection.close_after_responses()
        await _close_later(connection, gate.listener.config.failure_delay_ms / 1000)


def _framed(answer: Answer) -> list[Any]:
    return [struct.pack(">i", len(answer.token)) + answer.token]


async def _close_later(connection: Connection, delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    connection.close()
