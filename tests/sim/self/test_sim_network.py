"""The simulated network keeps TCP's promises, and breaks all that TCP does not promise."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random

import pytest

from tests.sim.loop import SimLoop
from tests.sim.network import NetworkFaults, NetworkLinks, SimNetwork


class Collector(asyncio.Protocol):
    """Keeps what arrives."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.pieces: list[int] = []
        self.transport: asyncio.Transport | None = None
        self.lost: list[BaseException | None] = []
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.pieces.append(len(data))

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False


class Growing(Collector, asyncio.BufferedProtocol):
    """Receives into its own buffer, which grows with each call, and pauses reading after each 5,000 bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = bytearray(100)
        self.is_paused = False

    def get_buffer(self, sizehint: int) -> bytearray:
        assert not self.is_paused, "a paused transport delivers nothing"
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        before = len(self.data)
        self.data_received(bytes(self.buffer[:nbytes]))
        self.buffer += bytes(100)
        if len(self.data) // 5000 > before // 5000:
            assert self.transport is not None
            self.is_paused = True
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(1, self.resume)

    def resume(self) -> None:
        assert self.transport is not None
        self.is_paused = False
        self.transport.resume_reading()


class Pair:
    """Two hosts and one connection between them."""

    def __init__(self, seed: int, faults: NetworkFaults | None = None, server: Collector | None = None) -> None:
        self.loop = SimLoop(Random(seed))
        self.wires = NetworkLinks(self.loop, Random(seed), faults or NetworkFaults())
        self.server, self.client = server or Collector(), Collector()

    def run(self, scenario: Coroutine[None, None, None], *, limit_s: float) -> None:
        """Run a scenario to its end."""
        with self.loop:
            self.loop.run_world(scenario, limit_s=limit_s)

    async def connect(self) -> asyncio.Transport:
        await self.loop.spawn("s", SimNetwork(self.wires, "s").listen(lambda: self.server, "s", 9092))
        transport, _ = await self.loop.spawn("c", SimNetwork(self.wires, "c").connect(lambda: self.client, "s", 9092))
        await asyncio.sleep(0.1)
        assert isinstance(transport, asyncio.Transport)
        return transport


@pytest.mark.parametrize("seed", range(10))
def test_bytes_arrive_in_order_and_whole_whatever_the_segments(seed: int) -> None:
    pair = Pair(seed, NetworkFaults(tiny_segments=0.5, stall=0.1))
    sent = Random(seed).randbytes(20_000)

    async def scenario() -> None:
        transport = await pair.connect()
        for start in range(0, len(sent), 777):
            transport.write(sent[start : start + 777])
        transport.close()
        await asyncio.sleep(600)

    pair.run(scenario(), limit_s=1000)
    assert pair.server.data == sent
    assert min(pair.server.pieces) < 17
    assert pair.server.lost == [None]
    assert pair.client.lost == [None]


@pytest.mark.parametrize("seed", range(3))
def test_a_segment_reaches_a_buffer_that_grows_while_the_transport_reads(seed: int) -> None:
    """A connection of the broker pauses where it must grow its buffer for a long request."""
    pair = Pair(seed, server=Growing())
    sent = Random(seed).randbytes(200_000)

    async def scenario() -> None:
        transport = await pair.connect()
        transport.write(sent)
        transport.close()
        await asyncio.sleep(100)

    pair.run(scenario(), limit_s=200)
    assert pair.server.data == sent
    assert pair.server.lost == [None]


def test_a_cut_holds_bytes_one_way_and_a_heal_delivers_them_late() -> None:
    pair = Pair(1)

    async def scenario() -> None:
        transport = await pair.connect()
        pair.wires.cut("c", "s")
        transport.write(b"late")
        assert pair.server.transport is not None
        pair.server.transport.write(b"other way")
        await asyncio.sleep(5)
        assert (bytes(pair.server.data), bytes(pair.client.data)) == (b"", b"other way")
        pair.wires.heal()
        await asyncio.sleep(1)
        assert pair.server.data == b"late"

    pair.run(scenario(), limit_s=100)


def test_connections_are_refused_without_listener_or_time_out_behind_a_cut() -> None:
    pair = Pair(1)

    async def scenario() -> None:
        await pair.connect()
        network = SimNetwork(pair.wires, "c")
        with pytest.raises(ConnectionRefusedError):
            await network.connect(Collector, "s", 1)
        pair.wires.cut("s", "c")
        with pytest.raises(TimeoutError):
            await network.connect(Collector, "s", 9092)

    pair.run(scenario(), limit_s=100)


def test_a_crash_resets_the_peer_unless_it_is_behind_a_cut() -> None:
    for cut in (False, True):
        pair = Pair(1)

        async def scenario(pair: Pair = pair, cut: bool = cut) -> None:
            await pair.connect()
            if cut:
                pair.wires.cut("s", "c")
            pair.loop.crash("s")
            pair.wires.host_died("s")
            await asyncio.sleep(5)
            assert bool(pair.client.lost) is not cut, "half open behind a cut, reset otherwise"
            pair.wires.heal()
            await asyncio.sleep(1)

        pair.run(scenario(), limit_s=100)
        if not cut:
            assert isinstance(pair.client.lost[0], ConnectionResetError)


def test_bytes_sent_before_a_cut_arrive_after_the_heal() -> None:
    pair = Pair(1)

    async def scenario() -> None:
        transport = await pair.connect()
        pair.wires.cut("c", "s")
        transport.write(b"old request")
        await asyncio.sleep(5)
        transport.abort()
        await asyncio.sleep(60)
        assert pair.client.lost
        assert not pair.server.data
        assert not pair.server.lost, "half open"
        pair.wires.heal()
        await asyncio.sleep(1)
        assert pair.server.data == b"old request"
        assert pair.server.lost
        assert pair.wires.injected["late bytes"] == 1

    pair.run(scenario(), limit_s=100)


def test_connections_to_a_host_that_goes_dark_time_out() -> None:
    pair = Pair(1)

    async def scenario() -> None:
        transport = await pair.connect()
        pair.loop.crash("s")
        pair.wires.host_went_dark("s")
        transport.write(b"into the dark")
        await asyncio.sleep(600)
        assert not pair.client.lost, "an open connection hangs"
        began_s = pair.loop.time()
        with pytest.raises(TimeoutError):
            await SimNetwork(pair.wires, "c").connect(Collector, "s", 9092)
        assert pair.loop.time() - began_s > 10
        assert pair.wires.injected["half open"] == 1

    pair.run(scenario(), limit_s=1000)


@pytest.mark.parametrize("sends", ["while it is dark", "when it is back", "nothing"])
def test_a_host_that_comes_back_resets_old_connections(sends: str) -> None:
    pair = Pair(1)

    async def scenario() -> None:
        transport = await pair.connect()
        pair.loop.crash("s")
        pair.wires.host_went_dark("s")
        if sends == "while it is dark":
            transport.write(b"x")
        await asyncio.sleep(30)
        pair.wires.host_came_up("s")
        if sends == "when it is back":
            transport.write(b"x")
        await asyncio.sleep(10)
        if sends == "nothing":
            assert not pair.client.lost, "it was not notified, and it has sent nothing"
        else:
            assert isinstance(pair.client.lost[0], ConnectionResetError)
        assert not pair.server.data
        with pytest.raises(ConnectionRefusedError):
            await SimNetwork(pair.wires, "c").connect(Collector, "s", 9092)

    pair.run(scenario(), limit_s=100)


def test_a_pending_connection_is_made_after_the_heal() -> None:
    pair = Pair(1)

    async def scenario() -> None:
        await pair.connect()
        pair.wires.cut("s", "c")
        pair.loop.call_on("world", pair.wires.heal, delay_s=4)
        began_s = pair.loop.time()
        await SimNetwork(pair.wires, "c").connect(Collector, "s", 9092)
        assert 4 < pair.loop.time() - began_s < 10

    pair.run(scenario(), limit_s=100)


def test_a_process_that_dies_before_it_accepts_resets_the_connection() -> None:
    pair = Pair(1)

    async def scenario() -> None:
        network = SimNetwork(pair.wires, "s")
        await pair.loop.spawn("s", network.listen(lambda: pair.server, "s", 9092))
        pair.loop.pause("s")
        await SimNetwork(pair.wires, "c").connect(lambda: pair.client, "s", 9092)
        pair.loop.crash("s")
        pair.wires.host_died("s")
        await asyncio.sleep(1)
        assert isinstance(pair.client.lost[0], ConnectionResetError)

    pair.run(scenario(), limit_s=100)


def test_a_reader_that_stops_pauses_the_writer() -> None:
    pair = Pair(1)

    async def scenario() -> None:
        transport = await pair.connect()
        assert pair.server.transport is not None
        pair.server.transport.pause_reading()
        transport.write(bytes(200_000))
        await asyncio.sleep(1)
        assert pair.client.paused
        assert len(pair.server.data) == 0
        pair.server.transport.resume_reading()
        await asyncio.sleep(1)
        assert not pair.client.paused
        assert len(pair.server.data) == 200_000

    pair.run(scenario(), limit_s=100)


@pytest.mark.parametrize("seed", range(6))
def test_of_what_a_dead_host_had_sent_no_piece_is_missing_before_others(seed: int) -> None:
    """Its last bytes were held by a cut; once the way is open resets are drawn for them too."""
    pair = Pair(seed)
    sent = bytes(range(200))

    async def scenario() -> None:
        transport = await pair.connect()
        pair.wires.cut("c", "s")
        for at in range(0, len(sent), 10):
            transport.write(sent[at : at + 10])
        pair.wires.host_died("c")
        pair.wires.faults = NetworkFaults(reset=0.3)
        pair.wires.heal()
        await asyncio.sleep(5)
        assert sent.startswith(bytes(pair.server.data)), "a piece is missing in the middle"

    pair.run(scenario(), limit_s=100)
