"""Accepts connections on a listener with TLS: a `Connection` is created after the handshake.

A peer that does not finish its handshake costs a socket for HANDSHAKE_TIMEOUT_S. If more than MAX_HANDSHAKES are in
progress, the oldest is ended, as an honest handshake takes milliseconds.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from odradek.common.log_lines import get_logger
from odradek.common.real_tls import start_tls

if TYPE_CHECKING:
    from odradek.security.tls.listener import ListenerTls
    from odradek.server.network.connection import Connection
    from odradek.server.network.dispatch import Dispatcher
    from odradek.server.network.listeners import ListenerSpec

HANDSHAKE_TIMEOUT_S = 10.0
MAX_HANDSHAKES = 512
_log = get_logger("server.network.tls_acceptor")

# OpenSSL's reasons, as an operator needs them.
_REASONS = {
    "HTTP_REQUEST": "the peer speaks HTTP",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS; does its security.protocol say SSL?",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate, and ssl.client.auth=required",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is refused",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of this node's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses this node's certificate; does it name the host?",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses this node's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client says that this node's certificate has expired",
    "UNSUPPORTED_PROTOCOL": "the client has no version of TLS that ssl.enabled.protocols allows",
    "NO_SHARED_CIPHER": "the client has no cipher suite that ssl.cipher.suites allows",
}


class Handshakes:
    """The handshakes in progress on a node, oldest first."""

    def __init__(self) -> None:
        self._acceptors: dict[TlsAcceptor, None] = {}
        self.failed_count = 0

    def __len__(self) -> int:
        return len(self._acceptors)

    def begin(self, acceptor: TlsAcceptor) -> None:
        """Count a handshake; if there are too many, end the oldest."""
        self._acceptors[acceptor] = None
        if len(self._acceptors) > MAX_HANDSHAKES:
            next(iter(self._acceptors)).evict()

    def end(self, acceptor: TlsAcceptor) -> None:
        self._acceptors.pop(acceptor, None)

    def end_all(self, listener: ListenerSpec) -> None:
        """End the handshakes of a listener that was removed."""
        for each in [each for each in self._acceptors if each.listener is listener]:
            each.evict("the listener was removed")


class _EarlyData(asyncio.Protocol):
    """Keeps the bytes that follow the handshake until the `Connection` exists, a turn of the loop later."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True


class TlsAcceptor(asyncio.Protocol):
    """One accepted socket until its handshake has ended."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        listener: ListenerSpec,
        tls: ListenerTls,
        make_connection: Callable[[], Connection],
    ) -> None:
        self._dispatcher = dispatcher
        self.listener = listener
        self._tls = tls
        self._make_connection = make_connection
        self._transport: asyncio.Transport | None = None
        self._peer: tuple[str, int] = ("", 0)
        self._is_evicted = self._has_begun = False
        self._hello = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # A transport that has ended does not know its peer any more.
        peer = transport.get_extra_info("peername") or ("", 0)
        self._peer = (peer[0], peer[1])
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= self._dispatcher.connections.descriptors.clients_below:
            self._transport.abort()
            return
        refusal = self._dispatcher.connections.connection_quotas.acquire_place(self.listener, self)
        if refusal:
            name = self.listener.name
            _log.warning("connection refused", alike=name, peer=self._address, listener=name, reason=refusal)
            self._dispatcher.connections.refused_count += 1
            self._transport.abort()
        elif not self._has_begun:
            asyncio.get_running_loop().call_soon(self._transport.pause_reading)

    def place_granted(self) -> bool:
        """Begin the handshake, as there is a place for the connection; whether it takes the place."""
        transport = self._transport
        assert transport is not None
        self._has_begun = True
        now_ms = self._dispatcher.services.clock.monotonic_ms()
        connections = self._dispatcher.connections
        if transport.is_closing() or connections.delay_if_throttled(self.listener, self._peer[0], transport, now_ms):
            return False
        self._dispatcher.handshakes.begin(self)
        self._dispatcher.start_task(self._shake_hands(transport))
        return True

    def data_received(self, data: bytes) -> None:
        # uvloop reads although connection_made pauses it, so the peer's hello may arrive before the handshake begins.
        self._hello += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._dispatcher.handshakes.end(self)
        self._dispatcher.connections.connection_quotas.cancel_wait(self.listener, self)

    def close(self) -> None:
        """End the connection, which waits for a place."""
        if self._transport is not None:
            self._transport.abort()

    def evict(self, reason: str = "too many handshakes are under way") -> None:
        """End this handshake, by default to make room for a newer one."""
        self._is_evicted = True
        self._dispatcher.handshakes.end(self)
        if self._transport is not None:
            self._failed(self._transport, reason)

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        early = _EarlyData()
        secured = None
        try:
            secured = await self._secured(transport, early)
        finally:
            self._dispatcher.handshakes.end(self)
            if secured is None:
                self._dispatcher.connections.connection_quotas.release_place(self.listener)
                transport.abort()
        if secured is None:
            return
        connection = self._make_connection()
        secured.set_protocol(connection)
        connection.connection_made(secured)
        if early.data and not connection.is_closing:
            feed(connection, bytes(early.data))

    async def _secured(self, transport: asyncio.Transport, early: _EarlyData) -> asyncio.Transport | None:
        """The transport after the handshake; None if the handshake failed."""
        handshake = asyncio.get_running_loop().create_task(
            start_tls(
                transport,
                early,
                self._tls.context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=1.0,
            )
        )
        try:
            await self._pass_on_hello(transport)
            secured = await handshake
        except (TimeoutError, OSError, ssl.SSLError) as error:
            if not self._is_evicted:
                self._failed(transport, _reason(error))
            return None
        finally:
            handshake.cancel()  # where this node stops amid it
            del handshake  # its error would know this frame, and this frame it: TLS would keep its buffers
        return None if early.ended or self._is_evicted else secured

    async def _pass_on_hello(self, transport: asyncio.Transport) -> None:
        """Pass the bytes to the handshake that the peer sent before it began.

        In one turn of the loop the transport gets its new protocol, in the next this is connected; the bytes follow in
        the same turn, before others can be read.
        """
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        protocol = cast("asyncio.BufferedProtocol", transport.get_protocol())
        if self._hello and not transport.is_closing():
            feed(protocol, bytes(self._hello))
        self._hello.clear()

    def _failed(self, transport: asyncio.Transport, reason: str) -> None:
        transport.abort()
        self._dispatcher.handshakes.failed_count += 1
        name = self._tls.name
        _log.warning("TLS handshake failed", alike=name + reason, peer=self._address, listener=name, reason=reason)

    @property
    def _address(self) -> str:
        return f"{self._peer[0]}:{self._peer[1]}"


def feed(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Pass bytes to a protocol as if they were read from its socket."""
    while data:
        buffer = memoryview(protocol.get_buffer(len(data)))
        piece = data[: len(buffer)]
        buffer[: len(piece)] = piece
        protocol.buffer_updated(len(piece))
        data = data[len(piece) :]


def _reason(error: Any) -> str:
    """Why a handshake failed, in one line."""
    code = getattr(error, "reason", None)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{_REASONS['CERTIFICATE_VERIFY_FAILED']}: {error.verify_message}"
    if isinstance(code, str):
        return _REASONS.get(code, code.lower().replace("_", " "))
    if isinstance(error, asyncio.TimeoutError | ConnectionAbortedError):
        return f"the peer did not finish it within {HANDSHAKE_TIMEOUT_S:g} s"
    return "the peer ended the connection"
