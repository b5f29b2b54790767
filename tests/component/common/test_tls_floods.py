"""TLS disconnects a peer that keeps it busy with messages of its own, and no peer that only sends much data."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from odradek.common.real_tls import TlsFloodError, start_tls
from tests.support.clients.key_updates import KeyUpdates
from tests.support.nodes.certificates import Certificates
from tests.support.waiting import eventually_async

FEW_BYTES = 4096


class Peer(asyncio.Protocol):
    """The server's side of one connection: collects the data, and the error with which the connection ended."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended: list[Exception | None] = []

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.append(exc)


class Server(asyncio.Protocol):
    """Takes connections over TLS, whose answers the kernel keeps few of."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.peer = Peer()
        self._context = context
        self._secured: asyncio.Task[asyncio.Transport | None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw = cast("asyncio.Transport", transport)
        raw.pause_reading()
        raw.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, FEW_BYTES)
        self._secured = asyncio.get_running_loop().create_task(
            start_tls(raw, self.peer, self._context, server_side=True)
        )


Serve = Callable[[], contextlib.AbstractAsyncContextManager[tuple[int, list[Server]]]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Certificates(tmp_path).issue("node"))

    @contextlib.asynccontextmanager
    async def served() -> AsyncIterator[tuple[int, list[Server]]]:
        servers: list[Server] = []

        def made() -> Server:
            servers.append(Server(context))
            return servers[-1]

        server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1], servers

    return served


def endless(client: KeyUpdates) -> bytes:
    return client.updates(4000)


def endless_behind_data(client: KeyUpdates) -> bytes:
    return client.data(b"x" * 10_000) + client.updates(8000)


def unread(client: KeyUpdates) -> bytes:
    """Requests for new keys with data between them, so that only the unread answers count."""
    return b"".join(client.updates(45) + client.data(b"x" * 40) for _ in range(300))


@pytest.mark.parametrize("flood", [endless, endless_behind_data, unread])
async def test_a_peer_that_keeps_tls_busy_is_disconnected(
    serve: Serve, tmp_path: Path, flood: Callable[[KeyUpdates], bytes]
) -> None:
    def attack() -> KeyUpdates:
        client = KeyUpdates(port, tmp_path / "keys", receive_bytes=FEW_BYTES)
        with contextlib.suppress(OSError):  # it is disconnected amid the flood
            client.socket.sendall(flood(client))
        return client

    async with serve() as (port, servers):
        client = await asyncio.to_thread(attack)
        await eventually_async(lambda: servers and servers[0].peer.ended)
        client.close()
    (error,) = servers[0].peer.ended
    assert isinstance(error, TlsFloodError)


async def test_a_peer_that_asks_for_new_keys_now_and_then_stays(serve: Serve, tmp_path: Path) -> None:
    def talk() -> KeyUpdates:
        client = KeyUpdates(port, tmp_path / "keys", receive_bytes=1 << 20)
        client.socket.sendall(b"".join(client.data(b"x" * 100) + client.updates(1) for _ in range(500)))
        return client

    async with serve() as (port, servers):
        client = await asyncio.to_thread(talk)
        peer = servers[0].peer
        await eventually_async(lambda: len(peer.data) == 50_000)
        assert not peer.ended
        client.close()
        await eventually_async(lambda: peer.ended)


async def test_a_peer_that_pads_its_records_stays(serve: Serve, tmp_path: Path) -> None:
    def talk() -> KeyUpdates:
        client = KeyUpdates(port, tmp_path / "keys", receive_bytes=1 << 20)
        client.socket.sendall(b"".join(client.data(b"x" * 40, padding=4056) for _ in range(100)))
        client.socket.sendall(b"".join(client.data(b"x", padding=16_383) for _ in range(100)))
        return client

    async with serve() as (port, servers):
        client = await asyncio.to_thread(talk)
        peer = servers[0].peer
        try:
            await eventually_async(lambda: len(peer.data) == 4100 or peer.ended)
            assert not peer.ended
        finally:
            client.close()
        await eventually_async(lambda: peer.ended)


async def test_a_peer_that_reads_its_answers_does_not_stay_for_that(serve: Serve, tmp_path: Path) -> None:
    def attack() -> KeyUpdates:
        client = KeyUpdates(port, tmp_path / "keys", receive_bytes=1 << 20)
        with contextlib.suppress(OSError):  # it is disconnected amid the flood
            for _ in range(300):
                client.socket.sendall(client.updates(45) + client.data(b"x" * 40))
                if not client.socket.recv(0x10000):
                    break
        return client

    async with serve() as (port, servers):
        client = await asyncio.to_thread(attack)
        try:
            await eventually_async(lambda: servers[0].peer.ended)
        finally:
            client.close()
    (error,) = servers[0].peer.ended
    assert isinstance(error, TlsFloodError)


@pytest.mark.parametrize("size", [1, 300, 70_000, 5_000_000])
async def test_all_that_a_peer_sends_comes_in_its_order(serve: Serve, size: int) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    pieces = [random.Random(size).randbytes(size) for _ in range(3)] * 2
    async with serve() as (port, servers):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        expected = b"".join(pieces)
        await eventually_async(lambda: len(servers[0].peer.data) >= len(expected))
        assert servers[0].peer.data == expected
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        await eventually_async(lambda: servers[0].peer.ended)


async def test_the_context_of_a_handshake_makes_usual_objects_after_it(serve: Serve, tmp_path: Path) -> None:
    async with serve() as (port, servers):
        client = await asyncio.to_thread(KeyUpdates, port, tmp_path / "keys", receive_bytes=1 << 20)
        made = servers[0]._context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
        client.close()
        await eventually_async(lambda: servers[0].peer.ended)
    assert type(made) is ssl.SSLObject
