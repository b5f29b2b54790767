"""TLS over the running loop, in which a handshake that fails says why to the peer.

OpenSSL has an alert for the peer when it refuses a certificate. The loops of Python end the connection without it, and
the peer's log would have an end without a reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from typing import Any


class _AlertingObject(ssl.SSLObject):
    outgoing: ssl.MemoryBIO
    descriptor: int

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            # Now: the loop closes the socket before others hear of the error.
            with contextlib.suppress(OSError):
                os.write(self.descriptor, self.outgoing.read())
            raise


class _Handshake(ssl.SSLContext):
    """Stands for a context until the loop has begun one handshake with it: the only place that knows its socket."""

    context: ssl.SSLContext
    descriptor: int

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> ssl.SSLObject:
        self.context.sslobject_class = _AlertingObject
        made = self.context.wrap_bio(incoming, outgoing, *args, **options)
        assert isinstance(made, _AlertingObject)
        made.outgoing, made.descriptor = outgoing, self.descriptor
        del self.context
        _unused.append(self)
        return made


# To make one costs as much as a part of a handshake. There are as many as were ever begun in one turn of the loop.
_unused: list[_Handshake] = []


async def start_tls(
    transport: asyncio.Transport, protocol: asyncio.BaseProtocol, context: ssl.SSLContext, **options: Any
) -> asyncio.Transport | None:
    """The loop's `start_tls`; None where the connection ended amid the handshake."""
    # A transport that has ended has no socket to ask for.
    sock = None if transport.is_closing() else transport.get_extra_info("socket")
    if sock is None:
        return None
    handshake = _unused.pop() if _unused else _Handshake(ssl.PROTOCOL_TLS_SERVER)
    handshake.context, handshake.descriptor = context, sock.fileno()
    secured = await asyncio.get_running_loop().start_tls(transport, protocol, handshake, **options)
    # A transport that is aborted meanwhile ends the handshake without an error.
    return None if secured is None or secured.get_extra_info("ssl_object") is None else secured
