"""Responses from memory and from files arrive whole and in order, however slowly the peer reads."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from odradek.common.real_io import RealDisk
from odradek.log.files import FileCache, FileSlice
from odradek.protocol import codec
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import RecordsChunks
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.server.network.response_writer import (
    SENDFILE_MIN_BYTES,
    TRANSPORT_PIECE_BYTES,
    ResponseWriter,
    SocketWriter,
    TransportWriter,
)
from tests.support.nodes.listener import FETCH_VERSION, Client, ScriptedListener
from tests.support.waiting import PATIENCE_S, eventually_async

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def with_loop(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(test, 2 * PATIENCE_S))

    return with_loop


class Data:
    """A file of random bytes, and slices of it."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self.bytes = random.Random(size_bytes).randbytes(size_bytes)
        self.path = directory / "data"
        self.path.write_bytes(self.bytes)
        self.files = FileCache(RealDisk(workers=1))

    def slice(self, position: int, length: int) -> FileSlice:
        return FileSlice(self.files.get(self.path), position, length)

    def mixed(self, rng: random.Random) -> tuple[list[Any], bytes]:
        """Chunks of every kind and size, and their bytes."""
        chunks: list[Any] = []
        expected = b""
        for _ in range(rng.randrange(1, 40)):
            size = rng.choice([1, 100, 5_000, SENDFILE_MIN_BYTES - 1, SENDFILE_MIN_BYTES, 300_000])
            start = rng.randrange(len(self.bytes) - size)
            chunks.append(
                rng.choice(
                    [
                        self.slice(start, size),
                        self.bytes[start : start + size],
                        memoryview(self.bytes)[start : start + size],
                    ]
                )
            )
            expected += self.bytes[start : start + size]
        return chunks, expected


@pytest.fixture
def data(tmp_path: Path) -> Data:
    return Data(tmp_path, 2_000_000)


class Sender(asyncio.Protocol):
    """One end of a connection that only sends, by `kind`."""

    def __init__(self, kind: type[ResponseWriter]) -> None:
        self.kind = kind
        self.outbound: Any = None
        self.transport: asyncio.Transport | None = None
        self.drained_count = 0
        self.lost = False

    def abort(self) -> None:
        assert self.transport is not None
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self.kind is SocketWriter:
            descriptor = transport.get_extra_info("socket").fileno()
            self.outbound = SocketWriter(self.transport, self._drained, descriptor)
        else:
            self.outbound = TransportWriter(self.transport, self._drained)

    def _drained(self) -> None:
        self.drained_count += 1

    def pause_writing(self) -> None:
        if isinstance(self.outbound, TransportWriter):
            self.outbound.pause()

    def resume_writing(self) -> None:
        if isinstance(self.outbound, TransportWriter):
            self.outbound.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.outbound.close()


async def connected(kind: type[ResponseWriter]) -> tuple[Sender, socket.socket]:
    """A sender, and the peer's plain socket."""
    ours, theirs = socket.socketpair()
    if kind is SocketWriter:
        ours.close()
        theirs.close()
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
    for end in (ours, theirs):
        end.setblocking(False)
    loop = asyncio.get_running_loop()
    _, sender = await loop.create_connection(lambda: Sender(kind), sock=ours)
    return sender, theirs


async def read_exactly(peer: socket.socket, count: int, *, piece: int = 1 << 20, pause_s: float = 0) -> bytes:
    loop = asyncio.get_running_loop()
    received = bytearray()
    while len(received) < count:
        more = await loop.sock_recv(peer, min(piece, count - len(received)))
        if not more:
            break
        received += more
        if pause_s:
            await asyncio.sleep(pause_s)
    return bytes(received)


@pytest.mark.parametrize("kind", [SocketWriter, TransportWriter])
class TestBothWays:
    @pytest.mark.parametrize("seed", range(5))
    def test_queued_responses_arrive_in_order(
        self, run: Run, data: Data, kind: type[ResponseWriter], seed: int
    ) -> None:
        async def test() -> None:
            sender, peer = await connected(kind)
            rng = random.Random(seed)
            expected = b""
            for _ in range(4):
                chunks, content = data.mixed(rng)
                sender.outbound.add(chunks)
                expected += content
                sender.outbound.flush()
            assert await read_exactly(peer, len(expected)) == expected
            await eventually_async(lambda: sender.outbound.pending_bytes == 0)
            sender.abort()
            peer.close()

        run(test())

    def test_a_slow_reader_pauses_the_writer_until_it_reads(
        self, run: Run, data: Data, kind: type[ResponseWriter]
    ) -> None:
        async def test() -> None:
            sender, peer = await connected(kind)
            large = [data.slice(0, 1_900_000) for _ in range(8)]
            sender.outbound.add(large)
            sender.outbound.flush()
            await eventually_async(lambda: sender.outbound.waiting)
            await asyncio.sleep(0.05)
            assert sender.outbound.pending_bytes > 0
            assert sender.drained_count == 0
            expected = data.bytes[:1_900_000] * 8
            assert await read_exactly(peer, len(expected), piece=400_000, pause_s=0.001) == expected
            await eventually_async(lambda: sender.drained_count == 1)
            sender.abort()
            peer.close()

        run(test())

    def test_a_file_that_is_gone_is_sent_all_the_same(self, run: Run, data: Data, kind: type[ResponseWriter]) -> None:
        async def test() -> None:
            sender, peer = await connected(kind)
            sender.outbound.add([data.slice(0, 1_900_000) for _ in range(4)])
            sender.outbound.flush()
            data.files.invalidate(data.path)
            data.path.unlink()
            expected = data.bytes[:1_900_000] * 4
            assert await read_exactly(peer, len(expected)) == expected
            sender.abort()
            peer.close()

        run(test())

    @pytest.mark.parametrize("size", [1000, 500_000])
    def test_a_file_that_is_too_short_ends_the_connection(
        self, run: Run, data: Data, kind: type[ResponseWriter], size: int
    ) -> None:
        async def test() -> None:
            sender, peer = await connected(kind)
            sender.outbound.add([b"head", data.slice(len(data.bytes) - 100, size), bytes(2 * size)])
            sender.outbound.flush()
            received = b""
            with contextlib.suppress(ConnectionError):
                received = await read_exactly(peer, size + 4)
            assert len(received) < size + 4, "a frame that promised more is never completed with other bytes"
            await eventually_async(lambda: sender.lost)
            peer.close()

        run(test())

    def test_a_peer_that_is_gone_ends_it(self, run: Run, data: Data, kind: type[ResponseWriter]) -> None:
        async def test() -> None:
            sender, peer = await connected(kind)
            sender.outbound.add([data.slice(0, 1_900_000) for _ in range(8)])
            sender.outbound.flush()
            peer.close()
            await eventually_async(lambda: sender.lost)
            assert sender.outbound.pending_bytes == 0, "and lets the files go"

        run(test())

    def test_bytes_are_sent_by_the_flush(self, run: Run, data: Data, kind: type[ResponseWriter]) -> None:
        async def test() -> None:
            sender, peer = await connected(kind)
            sender.outbound.add([b"one", b"", b"two"])
            assert sender.outbound.pending_bytes == 6
            await asyncio.sleep(0.01)
            with pytest.raises(BlockingIOError):
                peer.recv(1)
            sender.outbound.flush()
            assert await read_exactly(peer, 6) == b"onetwo"
            sender.abort()
            peer.close()

        run(test())


def test_a_transport_holds_no_more_than_a_few_pieces(run: Run, data: Data) -> None:
    async def test() -> None:
        sender, peer = await connected(TransportWriter)
        sender.outbound.add([data.slice(0, 1_900_000) for _ in range(20)])
        sender.outbound.flush()
        await asyncio.sleep(0.05)
        assert sender.transport is not None
        assert sender.transport.get_write_buffer_size() <= 3 * TRANSPORT_PIECE_BYTES
        assert sender.outbound.pending_bytes > 20_000_000
        sender.transport.abort()
        peer.close()

    run(test())


@pytest.mark.parametrize("sizes", [[10], [SENDFILE_MIN_BYTES], [40_000, 10, 900_000, 1], [1_900_000]])
def test_a_fetch_answer_of_file_slices(run: Run, data: Data, sizes: list[int]) -> None:
    async def test() -> None:
        async with ScriptedListener() as listener:

            def answer() -> FetchResponse:
                slices = [data.slice(position * 7, size) for position, size in enumerate(sizes)]
                part = PartitionData(partition_index=3, records=RecordsChunks(slices, sum(sizes)))
                return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[part])])

            listener.fetched = answer
            client: Client = await listener.client()
            for _ in range(3):
                await client.send(ApiKey.FETCH, FETCH_VERSION, FetchRequest())
            await client.beat(5)
            expected = b"".join(data.bytes[position * 7 :][:size] for position, size in enumerate(sizes))
            for _ in range(3):
                found = codec.decode(FetchResponse, await client.answer(), FETCH_VERSION, 5)
                records = found.responses[0].partitions[0].records
                assert isinstance(records, bytes | memoryview)
                assert bytes(records) == expected
            assert await client.numbers(1) == [5]
            client.close()

    run(test())
