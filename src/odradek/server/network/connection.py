"""One client connection: bytes to frames, frames to requests in their turn, answers back to the peer.

Order: a request is begun when the one before it has been decided (`requests`).

Back-pressure: we stop reading while requests wait to be begun or answers wait to be sent, and while a frame waits for
memory (`request_memory`), so that a peer that does not read or floods us costs a bounded amount of it. Fairness: after
REQUESTS_PER_TURN requests (METERED_REQUESTS_PER_TURN of a client with a request_percentage), TURN_MS, or
READ_TURN_BYTES read without a pause, the other connections of the loop have their turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from odradek.common.errors import ProtocolError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Buffer
from odradek.common.real_threads import off_loop
from odradek.security.acl.authorizer import KeptPermissions
from odradek.server.context import ANONYMOUS
from odradek.server.network.frame_budget import FrameBudget
from odradek.server.network.login_gate import Answer, LoginGate
from odradek.server.network.request_reader import RequestReader
from odradek.server.network.requests import Requests
from odradek.server.network.response_order import ResponseSlot
from odradek.server.network.response_writer import ResponseWriter, SocketWriter, TransportWriter

if TYPE_CHECKING:
    from odradek.security.sasl.exchange import AuthenticationError, LoggedIn
    from odradek.security.tls.listener import ListenerTls
    from odradek.server.context import RequestContext
    from odradek.server.network.dispatch import Dispatcher
    from odradek.server.network.listeners import ListenerSpec
    from odradek.server.network.request_quotas import Payer

REQUESTS_PER_TURN = 64
# Long turns save system calls, and others wait for them. A client whose time is limited has no claim to the saving: it
# is there for the others, whose 99th percentile would be a whole turn.
METERED_REQUESTS_PER_TURN = 4
# Some requests cost a thousand times what others do: a turn that has taken so long ends before the next one.
TURN_MS = 10
READ_TURN_BYTES = 512 * 1024
# Answers that wait for the peer; above it, no further request is begun.
MAX_UNSENT_BYTES = 256 * 1024
# Requests of one connection whose answers are waited for at the same time. librdkafka sends up to a million in theory,
# Java 5; beyond this the rest stays in the socket.
MAX_OVERLAPPING = 256
_log = get_logger("server.network.connection")


class Connection(asyncio.BufferedProtocol):
    """The server's end of one connection."""

    __slots__ = (
        "_budget",
        "_dispatcher",
        "_has_login_budget",
        "_inbound",
        "_is_ending",
        "_outbound",
        "_pending",
        "_read_bytes",
        "_reading",
        "_scheduled",
        "_sent_bytes_seen",
        "_tls",
        "_transport",
        "_unmute_timer",
        "clock",
        "gate",
        "is_admitted",
        "is_closing",
        "last_active_ms",
        "listener",
        "local_address",
        "number",
        "on_lost",
        "payer",
        "peer_host",
        "peer_port",
        "permissions",
        "principal",
        "quotas",
        "requests",
        "software",
        "turn_began_ns",
        "turn_ms",
        "unpaid_ns",
        "waiting_since_ns",
    )

    def __init__(self, dispatcher: Dispatcher, listener: ListenerSpec, tls: ListenerTls | None = None) -> None:
        self._dispatcher = dispatcher
        self.clock, self.quotas = dispatcher.services.clock, dispatcher.quotas
        self.number = dispatcher.number_connection()
        self.listener = listener
        self.principal = ANONYMOUS
        self.permissions = KeptPermissions()
        # The client whose quotas count the requests; when the loop began to work for this connection, or a response
        # paid; and the time of earlier turns for which no response has paid.
        self.payer: Payer | None = None
        self.turn_ms = self.turn_began_ns = self.unpaid_ns = 0
        self._tls = tls
        self.software = ""
        self.on_lost: Callable[[], None] | None = None
        self.peer_host = ""
        self.peer_port = 0
        self.local_address: tuple[str, int] = ("", 0)
        self.last_active_ms = 0
        sasl = listener.sasl
        # None if the listener has no SASL: then all requests are served, and each costs one check of this.
        self.gate = None if sasl is None else LoginGate(sasl, self.clock.monotonic_ms())
        self._inbound = RequestReader(dispatcher.scratch, dispatcher.config.max_request_bytes, dispatcher.buffer_pool)
        if sasl is not None:
            self._inbound.limit(sasl.config.max_receive_bytes, "sasl.server.max.receive.size")
        self._budget = FrameBudget(dispatcher.memory if sasl is None else dispatcher.login_memory)
        self._has_login_budget = sasl is not None
        self._pending: deque[Buffer] = deque()
        # If requests are timed: since when those of an earlier turn wait to be begun; 0 while none does.
        self.waiting_since_ns = 0
        self.requests = Requests(self, dispatcher)
        self._scheduled = False
        self._reading = True
        self._read_bytes = 0
        self._sent_bytes_seen = 0
        # Whether it has entered, and has not left.
        self.is_admitted = False
        self.is_closing = self._is_ending = False
        # Ends the time for which the client must wait that has used more than its quota.
        self._unmute_timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._outbound: ResponseWriter | None = None

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked with isinstance: uvloop's transports are no subclasses of asyncio's.
        self._transport = transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        local = transport.get_extra_info("sockname") or ("", 0)
        self.peer_host, self.peer_port = peer[0], peer[1]
        self.local_address = (local[0], local[1])
        self.last_active_ms = self.clock.monotonic_ms()
        if self._tls is not None:
            self.is_admitted = True  # which the handshake had
            self._admit(transport)
            return
        refusal = self._dispatcher.connections.connection_quotas.acquire_place(self.listener, self)
        if refusal:
            self._dispatcher.connections.refused_count += 1
            self._refuse(transport, refusal)
        elif not self.is_admitted:
            asyncio.get_running_loop().call_soon(self._wait_unread)

    def _wait_unread(self) -> None:
        """Read nothing until there is a place, which may have come by now."""
        if not self.is_admitted:
            self._set_reading(False)

    def place_granted(self) -> bool:
        """Admit the connection, which may be closing by now; returns whether it uses the place."""
        transport, connections = self._transport, self._dispatcher.connections
        if self.is_closing or transport is None:
            return False
        if connections.delay_if_throttled(self.listener, self.peer_host, transport, self.clock.monotonic_ms()):
            self.is_closing = True
            return False
        self.is_admitted = True
        self._admit(transport)
        self.advance()
        return True

    def _release_place(self) -> None:
        connection_quotas = self._dispatcher.connections.connection_quotas
        if self.is_admitted:
            self.is_admitted = False
            connection_quotas.release_place(self.listener)
        else:
            connection_quotas.cancel_wait(self.listener, self)

    def _admit(self, transport: asyncio.Transport) -> None:
        sock = transport.get_extra_info("socket")
        connections = self._dispatcher.connections
        refusal = connections.admit(self, self.peer_host, -1 if sock is None else sock.fileno())
        if refusal is not None:
            self._refuse(transport, refusal)
            return
        if self._tls is not None and not self._authenticate_certificate(self._tls, transport):
            return
        if sock is not None:
            self._dispatcher.tune_socket(sock)
        if sock is None or self._tls is not None:
            self._outbound = TransportWriter(transport, self.advance)
        else:
            below = connections.descriptors.clients_below
            self._outbound = SocketWriter(transport, self.advance, sock.fileno(), own_below=below)
        self._outbound.timer = self.quotas.timer

    def _refuse(self, transport: asyncio.Transport, refusal: str) -> None:
        _log.warning("connection refused", alike=refusal, peer=self.peer, reason=refusal)
        self.is_closing = True
        transport.abort()

    def _authenticate_certificate(self, tls: ListenerTls, transport: asyncio.Transport) -> bool:
        """Take the principal from the client's certificate; a name without a principal ends the connection."""
        try:
            principal = tls.principal_of(transport.get_extra_info("ssl_object").getpeercert(binary_form=True))
        except ValueError as error:
            self.close_because(str(error))
            return False
        self.principal = principal or ANONYMOUS
        return True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbound.buffer(short=self._budget.is_short)

    def buffer_updated(self, nbytes: int) -> None:
        full = self._inbound.filled_buffer(nbytes)
        try:
            frames = self._inbound.received(nbytes, self._reserve)
        except ProtocolError as error:
            self.close_because(str(error))
            return
        # Of any bytes, not of whole frames: a large request over a slow link is not idle.
        self.last_active_ms = self.clock.monotonic_ms()
        if frames:
            self._budget.frames_received()
            self._pending.extend(frames)
        self._process_received(nbytes, full, bool(frames))
        if self._pending or self._inbound.wanted_bytes:
            self._budget.read_ahead(nbytes)

    def _process_received(self, nbytes: int, full: bool, has_frames: bool) -> None:
        """Process the received bytes, now or, if this connection has had its share, after the others."""
        if full:
            # libuv reads on within one event while reads come back full: give way to the others in between.
            self._read_bytes += nbytes
            if self._read_bytes >= READ_TURN_BYTES:
                self._read_bytes = 0
                self._schedule()
                self._set_reading(False)
                return
        else:
            self._read_bytes = 0
        if has_frames and not self._scheduled:
            self.advance()
        elif self._inbound.wanted_bytes:
            self._read_on()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._tls is not None:
            self._log_flood(exc)
        self.is_closing = True
        self._pending.clear()
        self._inbound.discard()
        self._budget.close(self, self.peer_host)
        self.requests.cancel_pending()
        self.quotas.connection_lost(self)
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        if self._outbound is not None:
            self._outbound.close()
        # Transport and connection know each other: TLS would keep its buffers until Python's collector comes by.
        self._transport = self._outbound = None
        self._dispatcher.connections.remove(self, self.peer_host)
        self._release_place()
        if self.on_lost is not None:
            self.on_lost()

    def _log_flood(self, error: Exception | None) -> None:
        from odradek.common.real_tls import TlsFloodError

        if isinstance(error, TlsFloodError):
            self.close_because(str(error))

    def pause_writing(self) -> None:
        if isinstance(self._outbound, TransportWriter):
            self._outbound.pause()

    def resume_writing(self) -> None:
        if isinstance(self._outbound, TransportWriter):
            self._outbound.resume()

    # Queried by others

    @property
    def newest_number(self) -> int:
        """The number of the connection that was made last."""
        return self._dispatcher.newest_connection

    @property
    def peer(self) -> str:
        """Address and port of the client."""
        return f"{self.peer_host}:{self.peer_port}"

    @property
    def is_silent(self) -> bool:
        """Whether no response leaves."""
        return self.listener.scope in self._dispatcher.silent_scopes

    @property
    def busy(self) -> bool:
        """Whether a request is under way or an answer not sent."""
        requests = self.requests
        return bool(requests.is_exclusive or requests.responses or self._pending or self._unsent_bytes)

    def idle_since_ms(self, now_ms: int) -> int:
        """Monotonic ms of the last byte that the peer sent or took; `now_ms` while it waits for us or sends a frame.

        `slowness` limits how long a frame may take, and one that waits for memory waits for us. Bytes taken are noticed
        from one call to the next, so that sending need not look at the clock. A peer that does not read its answers is
        idle, whatever else it has asked for: it would keep the files open that it is to read.
        """
        outbound = self._outbound
        if outbound is not None and outbound.sent_bytes != self._sent_bytes_seen:
            self._sent_bytes_seen = outbound.sent_bytes
            self.last_active_ms = now_ms
        waits_for_us = self.busy and not self._unsent_bytes and self._unmute_timer is None
        sends = self._inbound.under_way_bytes > 0 and not self._unsent_bytes
        return now_ms if waits_for_us or sends else self.last_active_ms

    @property
    def _unsent_bytes(self) -> int:
        return self._outbound.pending_bytes if self._outbound is not None else 0

    def close_because(self, reason: str) -> None:
        """End the connection for something that the peer did; one log line."""
        if not self.is_closing:
            listener = self.listener.name
            _log.warning("connection closed", alike=listener + reason, peer=self.peer, listener=listener, reason=reason)
        self.close()

    def close_after_responses(self, reason: str = "") -> None:
        """Begin no request any more, and end the connection once its answers are sent; one log line with a reason."""
        if reason and not self._is_ending:
            listener = self.listener.name
            _log.warning("connection closed", alike=listener + reason, peer=self.peer, listener=listener, reason=reason)
        self._is_ending = True

    def close(self) -> None:
        """Close the connection at once, without a response or a line in the log."""
        self.is_closing = True
        if self._transport is not None:
            self._transport.abort()

    # The way of a request

    def resume(self) -> None:
        """Begin requests that have waited."""
        if self._pending or self._inbound.wanted_bytes:
            self._schedule()

    def mute(self, throttle_ms: int) -> None:
        """Begin no request for that time; requests under way are answered, and received bytes stay in the socket."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + throttle_ms / 1000
        if self.is_closing or (self._unmute_timer is not None and self._unmute_timer.when() >= ends_s):
            return
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        self._unmute_timer = loop.call_at(ends_s, self._on_unmute)

    def _on_unmute(self) -> None:
        self._unmute_timer = None
        self.resume()

    def memory_granted(self, size_bytes: int) -> None:
        """The frame that waited may be received."""
        self._budget.granted(size_bytes)
        if not self.is_closing:
            self._inbound.resume()
            self._read_on()

    def slowness(self, now_ms: int) -> str:
        """Why the current frame or the login is too slow; "" if it is not. Called about once a second."""
        gate = self.gate
        if gate is not None and not gate.is_open:
            if self.listener.opens_with not in self._dispatcher.open_scopes:
                gate.restart_timeout(now_ms)
            elif slow := gate.slowness(now_ms):
                return slow
        return self._budget.slowness(
            now_ms,
            coming_bytes=self._inbound.under_way_bytes if self._reading else 0,
            last_active_ms=self.last_active_ms,
            idle_ms=self._dispatcher.config.idle_ms,
        )

    def _reserve(self, size_bytes: int) -> bool:
        """Whether there is memory for a frame, and its request could be begun; otherwise it waits."""
        outbound = self._outbound
        if self._pending or outbound is None or not self._may_begin(outbound):
            return False
        if self._has_login_budget and self.gate is not None and self.gate.is_open:
            self._has_login_budget = False
            self._budget = self._budget.moved_to(self._dispatcher.memory, self, self.peer_host)
        return self._budget.reserve(self, self.peer_host, size_bytes)

    def _read_on(self) -> None:
        """Read on unless something waits for its turn, for memory, or to be sent."""
        inbound, outbound = self._inbound, self._outbound
        if inbound.wanted_bytes and self._reserve(inbound.wanted_bytes):
            inbound.resume()
        waits = bool(self._pending) or inbound.wanted_bytes > 0
        if not waits:
            self._budget.caught_up()
        self._set_reading(not waits and outbound is not None and outbound.pending_bytes < MAX_UNSENT_BYTES)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._scheduled_turn)

    def _scheduled_turn(self) -> None:
        self._scheduled = False
        self.advance()

    def advance(self) -> None:
        """Begin what may be begun, send what is answered, and decide whether to read on."""
        outbound = self._outbound
        if self.is_closing or outbound is None:
            return
        if not (self._pending or outbound.pending_bytes or self._is_ending):
            self.waiting_since_ns = 0
            self._read_on()  # the last byte of an answer is sent: that is no work for the client to pay for
            return
        self.turn_ms = self.clock.monotonic_ms()
        quotas, is_timed = self.quotas, self.quotas.is_timed
        if is_timed:
            timer = quotas.timer  # `quotas.timer()` would look for a method first, which takes as long as the call
            self.turn_began_ns = timer()
        self._begin_and_send(outbound)
        if not self._pending:
            self.waiting_since_ns = 0
        elif self.requests.is_timed and not self.waiting_since_ns:
            self.waiting_since_ns = quotas.timer()
        if self._is_ending and not self.requests.responses and not outbound.pending_bytes:
            self.is_closing = True
            assert self._transport is not None
            self._transport.close()
        else:
            self._read_on()
        if is_timed:
            self.unpaid_ns += timer() - self.turn_began_ns

    def _begin_and_send(self, outbound: ResponseWriter) -> None:
        payer, pending = self.payer, self._pending
        # A payer is not renewed once the last quota is removed: its account means nothing then.
        is_metered = self.quotas.is_timed and payer is not None and payer.time is not None
        left = METERED_REQUESTS_PER_TURN if is_metered else REQUESTS_PER_TURN
        while True:
            while pending and left and self._may_begin(outbound):
                self._begin_request(pending.popleft())
                left -= 1
                if pending and self.clock.monotonic_ms() >= self.turn_ms + TURN_MS:
                    left = 0
            if outbound.pending_bytes:
                outbound.flush()
            if not pending or not self._may_begin(outbound):
                break
            if not left:
                self._schedule()
                break

    def _may_begin(self, outbound: ResponseWriter) -> bool:
        requests = self.requests
        return (
            self.listener.opens_with in self._dispatcher.open_scopes
            and not requests.is_exclusive
            # A frame that has its memory does not keep it until a quota's wait is over: it prolongs the wait instead.
            and (self._unmute_timer is None or self._budget.reserved_bytes > 0)
            and not self.is_closing
            and not self._is_ending
            and outbound.pending_bytes < MAX_UNSENT_BYTES
            and len(requests.responses) < MAX_OVERLAPPING
        )

    def _set_reading(self, reading: bool) -> None:
        if reading != self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _begin_request(self, frame: Buffer) -> None:
        """Begin a request; memory that it had reserved is free when its handler needs the request no more."""
        budget = self._budget
        if not budget.reserved_bytes:
            self.requests.begin(frame)
            return
        reserved_bytes = budget.transfer()
        task = self.requests.begin(frame)
        if task is None:
            budget.release(reserved_bytes)
        else:
            task.add_done_callback(lambda _: budget.release(reserved_bytes))

    def response_queued(self, *, others_wait: bool) -> None:
        """An answer that was waited for is queued: send it now, or where others may follow, at the end of this turn."""
        if others_wait or self._scheduled:
            self._schedule()
        else:
            self.advance()

    def evaluate(self, gate: LoginGate, message: bytes) -> Answer:
        """Take a message of a login; the client is known once it is done."""
        return self._apply_login_result(gate, gate.step(message))

    async def evaluate_off_loop(self, gate: LoginGate, message: bytes) -> Answer:
        """Do the same as `evaluate`, for a mechanism that blocks."""
        return self._apply_login_result(gate, await off_loop(partial(gate.step, message)))

    def _apply_login_result(self, gate: LoginGate, outcome: bytes | LoggedIn | AuthenticationError) -> Answer:
        answer = gate.apply_result(outcome, self.peer, self.clock.monotonic_ms(), self.clock.now_ms())
        if gate.is_open:
            self.principal = f"User:{gate.user}"
            self.permissions.clear()
            if self.payer is not None:
                self.payer.invalidate()
            self._inbound.limit(self._dispatcher.config.max_request_bytes)
        return answer

    def send(self, slot: ResponseSlot | None, chunks: list[Any], context: RequestContext | None = None) -> None:
        """Hand an answer to the peer once those before it are; with the request's context it may be timed."""
        assert self._outbound is not None
        times = None if context is None else context.times
        if context is not None and times is not None:
            timer = self.quotas.timer
            times.ready_ns, times.throttle_ms = timer(), context.throttle_ms
        self.requests.responses.add(slot, chunks, self._outbound, times)
