"""The requests of one connection: they are decoded, handled, and answered in the order in which they came.

A handler that is a plain function decides at once. It returns its response, or a `PendingResponse` if it waits for an
acknowledgement or new data; the connection may begin the next request meanwhile. While a handler that is a coroutine
runs, the connection begins no other request, as a muted channel in Kafka; a coroutine may return a `PendingResponse`,
too. `Connection` decides when to begin the next.
"""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ApiError, ProtocolError
from odradek.common.ports import Buffer
from odradek.common.steps import next_step
from odradek.protocol.codec import decode_in_steps, decode_prefix
from odradek.protocol.declare import Message
from odradek.protocol.framing import decode_request_header, encode_response
from odradek.server.context import RequestContext
from odradek.server.network.before_login import refuse_before_login, respond_to_raw_token
from odradek.server.network.handler_task import run_and_respond
from odradek.server.network.long_messages import IN_STEPS_BYTES, decode_and_handle
from odradek.server.network.request_failures import close_unencodable, failure_response, refused_version
from odradek.server.network.request_quotas import FETCH, LEAST_PAID_NS
from odradek.server.network.request_times import begin_timing
from odradek.server.network.response_order import ResponseOrder, ResponseSlot
from odradek.server.pending_response import PendingResponse

if TYPE_CHECKING:
    from odradek.server.network.connection import Connection
    from odradek.server.network.dispatch import Dispatcher, Route

_FIXED_HEADER = struct.Struct(">hhih")


class Requests:
    """Decodes the frames of one connection, calls their handlers and queues the responses.

    Attributes:
        is_timed: whether request times are measured; of frequent requests, a sample.
        is_exclusive: a coroutine handler or a long decoding runs, and the connection begins no other request.
        responses: the responses that are pending, and the finished ones behind them.
    """

    __slots__ = ("_connection", "_dispatcher", "_pending", "is_exclusive", "is_timed", "responses")

    def __init__(self, connection: Connection, dispatcher: Dispatcher) -> None:
        self._connection = connection
        self._dispatcher = dispatcher
        self._pending: dict[PendingResponse, None] = {}
        self.is_timed = dispatcher.is_timed
        self.is_exclusive = False
        self.responses = ResponseOrder()

    def cancel_pending(self) -> None:
        """Cancel the pending responses: the peer has disconnected."""
        for pending in self._pending:
            pending.cancel()
        self._pending.clear()

    def begin(self, frame: Buffer) -> asyncio.Future[Any] | None:
        """Decode one request and call its handler; returns the task of a handler that is a coroutine, else None."""
        gate = self._connection.gate
        if gate is not None and gate.uses_raw_tokens and gate.expects_token:
            return respond_to_raw_token(self._dispatcher, self._connection, gate, bytes(frame))
        try:
            context, route, body_offset = self._read_header(frame)
            if self.is_timed:
                if route.times.untimed:
                    route.times.untimed -= 1
                else:
                    context.times = begin_timing(context, route.times, len(frame))
            if not route.versions.first <= context.api_version <= route.versions.last:
                answer = refused_version(self._dispatcher, context, route)
                if answer is not None:
                    self._send_response(None, context, route, answer)
                return None
            if gate is not None and refuse_before_login(self._connection, gate, context, route):
                return None
            # Bytes behind the request are ignored, as in Kafka: librdkafka 2.16 sends some behind Metadata 13.
            if len(frame) < IN_STEPS_BYTES:
                request, _ = decode_prefix(route.request, frame, context.api_version, body_offset)
            else:
                steps = decode_in_steps(route.request, frame, context.api_version, body_offset)
                decoded = next_step(steps)
                if decoded is None:
                    self.is_exclusive = True
                    return self._dispatcher.start_task(
                        decode_and_handle(self._connection, context, route, steps, len(frame))
                    )
                request = decoded[0]
        except ProtocolError as error:
            self._connection.close_because(str(error))
            return None
        return self.handle(context, route, request, len(frame))

    def handle(
        self, context: RequestContext, route: Route, request: Any, frame_bytes: int
    ) -> asyncio.Future[Any] | None:
        """Call the handler; returns its task where it is a coroutine, else None."""
        route.request_count += 1
        route.request_bytes += frame_bytes
        quotas = self._dispatcher.quotas
        if quotas.is_on:
            payer = context.connection.payer
            if payer is None or payer.version != quotas.version or payer.client_id != context.client_id:
                payer = quotas.find_payer(context.connection, context.client_id)
            context.payer = payer
            if context.api_key != FETCH:  # which pays with its response; that of a follower takes the payer away
                quotas.begin(context, payer, request, frame_bytes)
        handle = route.handle
        try:
            outcome = handle(context, request)
        except Exception as error:
            outcome = failure_response(context, route, error)
        if outcome is None or isinstance(outcome, Message):
            self._send_response(None, context, route, outcome)
            return None
        if context.times is not None:
            context.times.decided_ns = quotas.timer()
        if quotas.is_timed:
            outcome = quotas.until_answered(context, outcome)
        return self._await(context, route, outcome)

    def _read_header(self, frame: Buffer) -> tuple[RequestContext, Route, int]:
        """Decode the request header; the int is the position in the frame at which the body begins.

        Raises:
            ProtocolError: the frame has no header, or this listener does not serve the API.
        """
        if len(frame) < _FIXED_HEADER.size:
            raise ProtocolError(f"a request of {len(frame)} bytes has no header")
        key, version, correlation_id, client_id_bytes = _FIXED_HEADER.unpack_from(frame)
        route = self._dispatcher.routes[self._connection.listener.scope].get(key)
        if route is None:
            raise ProtocolError(
                f"API key {key} version {version} is not served on listener {self._connection.listener.name}"
            )
        end = _FIXED_HEADER.size + max(client_id_bytes, 0)
        is_flexible = version >= route.flexible_since
        # A flexible header ends with its tagged fields, of which there are almost never any: their count is 0.
        if client_id_bytes >= -1 and end + is_flexible <= len(frame) and not (is_flexible and frame[end]):
            client_id = str(frame[_FIXED_HEADER.size : end], "utf-8", "replace")
            end += is_flexible
        else:
            header, end = decode_request_header(frame)
            client_id = header.client_id or ""
        context = RequestContext(self._dispatcher.services, self._connection, key, version, correlation_id, client_id)
        return context, route, end

    def _await(self, context: RequestContext, route: Route, outcome: Any) -> asyncio.Future[Any] | None:
        """Reserve the place of a pending response; returns the task of a coroutine, None for a `PendingResponse`."""
        slot = self.responses.place()
        if isinstance(outcome, PendingResponse):
            self.wait_for(slot, context, route, outcome)
            return None
        self.is_exclusive = not route.overlapping
        work = run_and_respond(self._connection, self._dispatcher, slot, context, route, outcome)
        return self._dispatcher.start_task(work)

    def wait_for(self, slot: ResponseSlot, context: RequestContext, route: Route, pending: PendingResponse) -> None:
        """Send a pending response in its place when it ends; cancel it if the connection is closing."""
        if self._connection.is_closing:
            pending.cancel()
            return
        self._pending[pending] = None
        pending.when_ended(partial(self._pending_ended, slot, context, route))

    def _pending_ended(
        self, slot: ResponseSlot, context: RequestContext, route: Route, pending: PendingResponse
    ) -> None:
        self._pending.pop(pending, None)  # it is not there if the peer has disconnected since `complete_soon`
        error = pending.error
        response = pending.response if error is None else failure_response(context, route, error)
        self.respond_later(slot, context, route, response)

    def respond_later(
        self, slot: ResponseSlot, context: RequestContext, route: Route, response: Message | None
    ) -> None:
        """Send the response of a request that has waited, outside of the connection's turn."""
        if self._connection.is_closing:
            return
        if context.payer is None:
            self._send_response(slot, context, route, response)
        else:
            with self._connection.quotas.working_for(self._connection):
                self._send_response(slot, context, route, response)
        # Other requests may end in this iteration of the loop: one write sends all their responses.
        self._connection.response_queued(others_wait=bool(self._pending))

    def _send_response(
        self, slot: ResponseSlot | None, context: RequestContext, route: Route, response: Message | None
    ) -> None:
        """Queue a response in its place; `response` is None where the client expects none (acks=0)."""
        if self._dispatcher.silent_scopes and self._connection.is_silent:
            return
        payer = context.payer
        if payer is not None:
            account = payer.time
            is_due = account is not None and (context.connection.unpaid_ns >= LEAST_PAID_NS or account.tokens <= 0.0)
            if is_due or context.throttle_ms or context.api_key > FETCH:
                self._dispatcher.quotas.answered(context, payer, response)
        chunks: list[Any] = []
        if response is not None:
            try:
                chunks = encode_response(context.api_key, context.api_version, context.correlation_id, response)
            except (ValueError, ApiError) as error:
                close_unencodable(context, route, error)
                return
        self._connection.send(slot, chunks, context)
