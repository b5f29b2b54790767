"""TLS over the running event loop: a failed handshake sends an alert, and a peer without data cannot keep TLS busy.

When OpenSSL refuses a certificate it has an alert for the peer. Python's loops close the connection without sending it,
so that the peer cannot log the reason.

OpenSSL continues within one call as long as it reads messages of TLS itself, such as key updates: 16 µs and a response
each. So received bytes are passed to it in pieces, and a connection is closed if the peer sends many pieces without
data, or gets more bytes of TLS itself than it sends data.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from typing import Any

# Usually a record of the largest size is one piece; while most bytes are data, pieces are larger.
_PIECE_BYTES = 16 * 1024 + 512
_LARGE_PIECE_BYTES = 4 * _PIECE_BYTES
_LARGE_DATA_BYTES = 8 * 1024
# The bytes that a peer may send without data, padding included: a record with one byte may have the full size.
_MOST_EMPTY_BYTES = 3 * _PIECE_BYTES
# The limit of TLS's own responses minus received data, whether the peer reads them or not. A normal peer updates keys
# after gigabytes.
_MOST_ANSWERED_BYTES = 64 * 1024


class TlsFloodError(ssl.SSLError):
    """The peer keeps TLS busy."""

    def __init__(self) -> None:
        super().__init__("the peer keeps TLS busy: it sends no data, or less than it is answered")

    def __str__(self) -> str:
        return str(self.args[0])


class _GuardedObject(ssl.SSLObject):
    """
    Attributes:
        incoming: the bytes that the loop has read; `fed` of them are passed to OpenSSL.
        left_bytes: the bytes that may be passed before data must come out.
        answered_bytes: of TLS's own responses to the peer, minus the data received since.
    """

    incoming: ssl.MemoryBIO
    fed: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    descriptor: int
    left_bytes: int
    answered_bytes: int
    piece_bytes: int

    def do_handshake(self) -> None:
        while True:
            try:
                self._shake_hands()
            except ssl.SSLWantReadError:
                if not self.incoming.pending:
                    raise
                self.fed.write(self.incoming.read(_PIECE_BYTES))
            else:
                return

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002  # ssl's name
        incoming, fed, outgoing = self.incoming, self.fed, self.outgoing
        pending_bytes = outgoing.pending
        if not fed.pending and incoming.pending:
            self._feed()
        while True:
            try:
                found = super().read(len, buffer)
            except ssl.SSLWantReadError:
                if outgoing.pending > pending_bytes:
                    self._answered(outgoing.pending - pending_bytes)
                    pending_bytes = outgoing.pending
                if not incoming.pending:
                    raise
                self._feed()
            else:
                size: Any = found if buffer is not None else found.__len__()
                if size:
                    self.left_bytes = _MOST_EMPTY_BYTES
                    if self.answered_bytes:
                        self.answered_bytes = max(0, self.answered_bytes - size)
                self.piece_bytes = _LARGE_PIECE_BYTES if size >= _LARGE_DATA_BYTES else _PIECE_BYTES
                if outgoing.pending > pending_bytes:
                    self._answered(outgoing.pending - pending_bytes)
                return found

    def pending(self) -> int:
        """The bytes that are pending behind `incoming`; the loop calls this before it reads on."""
        return super().pending() + self.fed.pending

    def unwrap(self) -> Any:
        self.fed.write(self.incoming.read())
        return super().unwrap()

    def _feed(self) -> None:
        if self.left_bytes <= 0:
            raise TlsFloodError
        self.left_bytes -= self.fed.write(self.incoming.read(self.piece_bytes))

    def _answered(self, size_bytes: int) -> None:
        self.answered_bytes += size_bytes
        if self.answered_bytes > _MOST_ANSWERED_BYTES:
            raise TlsFloodError

    def _shake_hands(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            # Now, because the loop closes the socket before the error is raised.
            with contextlib.suppress(OSError):
                os.write(self.descriptor, self.outgoing.read())
            raise


class _Handshake(ssl.SSLContext):
    """Stands for a context until the loop has begun one handshake with it: the only place that knows its socket."""

    context: ssl.SSLContext
    descriptor: int

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> ssl.SSLObject:
        fed, context = ssl.MemoryBIO(), self.context
        # Only for this call: the context belongs to the caller, which may create other objects with it.
        usual, context.sslobject_class = context.sslobject_class, _GuardedObject
        try:
            made = context.wrap_bio(fed, outgoing, *args, **options)
        finally:
            context.sslobject_class = usual
        assert isinstance(made, _GuardedObject)
        made.incoming, made.fed, made.outgoing, made.descriptor = incoming, fed, outgoing, self.descriptor
        made.left_bytes, made.answered_bytes, made.piece_bytes = _MOST_EMPTY_BYTES, 0, _PIECE_BYTES
        del self.context
        _unused.append(self)
        return made


# Creating one costs as much as part of a handshake. There are as many as handshakes ever began in one turn of the loop.
_unused: list[_Handshake] = []


async def start_tls(
    transport: asyncio.Transport, protocol: asyncio.BaseProtocol, context: ssl.SSLContext, **options: Any
) -> asyncio.Transport | None:
    """The loop's `start_tls`; None where the connection ended amid the handshake."""
    # A closed transport has no socket.
    sock = None if transport.is_closing() else transport.get_extra_info("socket")
    if sock is None:
        return None
    handshake = _unused.pop() if _unused else _Handshake(ssl.PROTOCOL_TLS_SERVER)
    handshake.context, handshake.descriptor = context, sock.fileno()
    secured = await asyncio.get_running_loop().start_tls(transport, protocol, handshake, **options)
    # A transport that is aborted meanwhile ends the handshake without an error.
    return None if secured is None or secured.get_extra_info("ssl_object") is None else secured
