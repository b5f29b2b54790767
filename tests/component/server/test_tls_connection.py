"""Connections over TLS: they have the socket settings that those without have, and go with all that they had."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from odradek.security.tls.config import TlsConfig
from odradek.security.tls.listener import ListenerTls
from odradek.server.network.connection import Connection
from odradek.server.network.listeners import ConnectionConfig
from odradek.server.network.tls_acceptor import TlsAcceptor
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.listener import ScriptedListener
from tests.support.waiting import eventually_async

SENT, RECEIVED = 20_480, 24_576


def tls_listener(folder: Path, config: ConnectionConfig) -> ScriptedListener:
    identity = Certificates(folder).issue("node")
    tls = ListenerTls("EXTERNAL", TlsConfig(keystore_type="PEM", keystore_location=str(identity)), lambda: 0)
    listener = ScriptedListener(config)
    made = partial(Connection, listener.dispatcher, listener.spec, tls)
    listener.made = partial(TlsAcceptor, tls=tls, make_connection=made)  # type: ignore[assignment]  # anything that makes a protocol
    return listener


def trusting_client() -> ssl.SSLContext:
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return trusting


async def test_a_connection_over_tls_has_the_buffers_that_are_set(tmp_path: Path) -> None:
    trusting = trusting_client()
    listener = tls_listener(tmp_path, ConnectionConfig(send_buffer_bytes=SENT, receive_buffer_bytes=RECEIVED))
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


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def tls_objects() -> int:
    """The server's connections of OpenSSL, each with its buffers."""
    return sum(type(each).__name__ == "_GuardedObject" for each in gc.get_objects())


# On the loop that a node has; the version that ends without close_notify, and handshakes that fail.
@pytest.mark.parametrize("ends", ["a connection", "a handshake"])
def test_tls_state_of_a_peer_is_freed_with_the_connection(tmp_path: Path, ends: str) -> None:
    """Python's collector looks at what is old once in a million objects: until then a flood would keep its memory."""
    trusting = trusting_client()
    trusting.maximum_version = ssl.TLSVersion.TLSv1_2

    async def flood() -> None:
        listener = tls_listener(tmp_path, ConnectionConfig())
        async with listener:
            for number in range(6):
                secure = trusting if ends == "a connection" else None
                _, writer = await asyncio.open_connection("127.0.0.1", listener.spec.port, ssl=secure)
                if secure is None:
                    writer.write(b"GET / HTTP/1.1\r\n\r\n" if number % 2 else b"\x16\x03\x01")
                    await writer.drain()
                else:
                    await eventually_async(lambda: bool(listener.connections))
                    assert tls_objects()
                writer.transport.abort()
                await eventually_async(lambda: not listener.connections)
            await eventually_async(lambda: not tls_objects())

    with without_collector():
        uvloop.run(flood())


async def test_one_that_ends_before_its_handshake_waits_no_longer(tmp_path: Path) -> None:
    listener = tls_listener(tmp_path, ConnectionConfig(max_connections=0))
    made: list[TlsAcceptor] = []
    make_acceptor: Callable[..., Any] = listener.made

    def make(*arguments: object) -> TlsAcceptor:
        made.append(make_acceptor(*arguments))
        return made[-1]

    listener.made = make  # type: ignore[assignment]  # anything that makes a protocol
    async with listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.spec.port)
        connection_quotas = listener.dispatcher.connections.connection_quotas
        await eventually_async(lambda: connection_quotas.waiting_count == 1)
        made[0].close()
        await eventually_async(lambda: connection_quotas.waiting_count == 0)
        writer.close()
