"""Connections over TLS have the socket settings that those without have."""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial
from pathlib import Path

from odradek.security.tls.config import TlsConfig
from odradek.security.tls.listener import ListenerTls
from odradek.server.network.connection import Connection
from odradek.server.network.listeners import ConnectionConfig
from odradek.server.network.tls_acceptor import TlsAcceptor
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.listener import ScriptedListener
from tests.support.waiting import eventually_async

SENT, RECEIVED = 20_480, 24_576


async def test_a_connection_over_tls_has_the_buffers_that_are_set(tmp_path: Path) -> None:
    identity = Certificates(tmp_path).issue("node")
    tls = ListenerTls("EXTERNAL", TlsConfig(keystore_type="PEM", keystore_location=str(identity)))
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    listener = ScriptedListener(ConnectionConfig(send_buffer_bytes=SENT, receive_buffer_bytes=RECEIVED))
    made = partial(Connection, listener.dispatcher, listener.spec, tls)
    listener.made = partial(TlsAcceptor, tls=tls, make_connection=made)  # type: ignore[assignment]
    async with listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.spec.port, ssl=trusting)
        await eventually_async(lambda: bool(listener.connections))
        (connection,) = listener.connections
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        # Linux has twice what is asked for, for what it keeps of its own there.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (SENT, 2 * SENT)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (RECEIVED, 2 * RECEIVED)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        writer.close()
        await writer.wait_closed()
