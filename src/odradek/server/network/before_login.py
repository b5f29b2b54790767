"""What a connection does before its client has logged in, and that no other one needs."""

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
    """Whether a request is not served now. As Kafka: one amid a login is answered, any other is not; the connection
    ends with both."""
    refusal = gate.refusal(context.api_key, context.broker.clock.monotonic_ms())
    if not refusal:
        return False
    code = ErrorCode.ILLEGAL_SASL_STATE
    answer = route.error_answer(context.api_version, code, "") if gate.is_talking else None
    if answer is None:
        connection.close_because(refusal)
        return True
    connection.end_after_answers(refusal)
    connection.send(None, encode_response(context.api_key, context.api_version, context.correlation_id, answer))
    return True


def answer_bare(
    dispatcher: Dispatcher, connection: Connection, gate: LoginGate, message: bytes
) -> asyncio.Task[Any] | None:
    """Answer a message of a login that came without a request around it, after SaslHandshake version 0."""
    if gate.blocks:
        connection.requests.is_exclusive = True
        return dispatcher.start_task(_hear(connection, gate, message))
    answer = connection.hear(gate, message)
    if answer.code == ErrorCode.NONE:
        connection.send(None, _framed(answer))
        return None
    connection.end_after_answers()
    return dispatcher.start_task(_close_later(connection, gate.listener.config.failure_delay_ms / 1000))


async def _hear(connection: Connection, gate: LoginGate, message: bytes) -> None:
    answer = await connection.hear_off_loop(gate, message)
    if connection.is_closing:
        return
    connection.requests.is_exclusive = False
    if answer.code == ErrorCode.NONE:
        connection.send(None, _framed(answer))
        connection.answer_queued(others_wait=False)
    else:
        connection.end_after_answers()
        await _close_later(connection, gate.listener.config.failure_delay_ms / 1000)


def _framed(answer: Answer) -> list[Any]:
    return [struct.pack(">i", len(answer.words)) + answer.words]


async def _close_later(connection: Connection, delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    connection.close()
