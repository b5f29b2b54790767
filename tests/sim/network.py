"""Byte streams between simulated hosts, with TCP's guarantees and no others.

In one direction of one connection bytes arrive in order, cut into segments of any size down to one byte, late, or not
at all while the direction is cut; bytes in flight arrive after the heal, also on a connection that its writer has
closed meanwhile. Loss and reordering happen only between connections. A host whose process dies resets its connections,
as far as the reset can travel; behind a cut the peer has a half-open connection until the direction heals or its own
timeout ends it. A host that goes dark notifies no peer: its peers have half-open connections, and new ones to it wait.
When it is back it knows none of its connections, and answers bytes on them with a reset.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from odradek.common.ports import Buffer, Listener, ProtocolFactory
from odradek.protocol.api_key import ApiKey
from tests.sim.loop import SimLoop
from tests.sim.lost_answers import AnswerScan

HIGH_WATER_BYTES = 64 * 1024
# When a system that gets no answer asks again for a connection, in seconds from the first time.
CONNECT_TRIES_S = (0.0, 1.0, 3.0, 7.0, 15.0)
# Bytes that were not acknowledged are sent again after so long.
RETRANSMIT_S = (0.2, 3.0)
Item = tuple[bytes, BaseException | None, bool]


@dataclass
class NetworkFaults:
    """Delays in ms and probabilities for one segment or one connection attempt."""

    latency_ms: tuple[float, float] = (0.05, 2.0)
    stall: float = 0.0
    stall_ms: tuple[float, float] = (50.0, 3000.0)
    tiny_segments: float = 0.0
    reset: float = 0.0
    # The probability that a response of one of these APIs is lost.
    lost_answer: float = 0.0
    losing: tuple[str, ...] = ()
    # A system that tries a connection once more only gives up soon.
    connect_timeout_s: float = 20.0


@dataclass
class NetworkLinks:
    """The state of the network, which all hosts share: listeners, cuts and every connection."""

    loop: SimLoop
    random: Random
    faults: NetworkFaults = field(default_factory=NetworkFaults)
    listeners: dict[tuple[str, int], SimListener] = field(default_factory=dict)
    cuts: set[tuple[str, str]] = field(default_factory=set)
    dark_hosts: set[str] = field(default_factory=set)
    transports: dict[int, SimTransport] = field(default_factory=dict)
    # Connections with bytes that could not be delivered, even if they are closed by now.
    holding: dict[int, SimTransport] = field(default_factory=dict)
    injected: dict[str, int] = field(default_factory=dict)
    next_port: int = 40_000
    # Whether a fault that was drawn is to happen.
    happens: Callable[[str], bool] = lambda fault: True

    def count(self, fault: str) -> None:
        self.injected[fault] = self.injected.get(fault, 0) + 1

    def loses(self, key: ApiKey) -> bool:
        """Draw whether an answer of an API, which has come to who asked, is lost there."""
        faults = self.faults
        if key.name not in faults.losing or self.random.random() >= faults.lost_answer:
            return False
        return self.happens("lost_answer")

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.cuts

    def cut(self, source: str, target: str) -> None:
        """Stop bytes from `source` to `target`; the other direction stays open."""
        self.cuts.add((source, target))

    def reaches(self, source: str, target: str) -> bool:
        """Whether a question from `source` is answered by the system of `target`."""
        ways = ((source, target), (target, source))
        return target not in self.dark_hosts and not any(way in self.cuts for way in ways)

    def heal(self) -> None:
        """Open all ways; bytes that were held arrive, in order."""
        self.cuts.clear()
        holding, self.holding = self.holding, {}
        for transport in holding.values():
            transport.release()

    def host_died(self, host: str) -> None:
        """Drop a host's ends of its connections and let the peers hear a reset where it can travel."""
        for transport in self._drop_ends(host):
            transport.ship_end(ConnectionResetError("the peer's process died"))
            if self.is_cut(host, transport.there):
                self.count("half open")

    def host_went_dark(self, host: str) -> None:
        """Drop a host's ends of its connections and notify no peer; bytes that its system has not sent yet are lost."""
        self.dark_hosts.add(host)
        for transport in self._drop_ends(host):
            transport.end_dark()
        for key in [key for key, transport in self.holding.items() if transport.host == host]:
            del self.holding[key]

    def host_came_up(self, host: str) -> None:
        """Let a machine run again; it answers bytes on earlier connections with a reset."""
        if host in self.dark_hosts:
            self.dark_hosts.discard(host)
            for key in [key for key, transport in self.holding.items() if transport.there == host]:
                transport = self.holding.pop(key)
                self.loop.call_on(transport.host, transport.release, delay_s=self.random.uniform(*RETRANSMIT_S))

    def _drop_ends(self, host: str) -> list[SimTransport]:
        for address in [address for address, listener in self.listeners.items() if listener.host == host]:
            del self.listeners[address]
        ends = [transport for transport in self.transports.values() if transport.host == host]
        for transport in ends:
            del self.transports[id(transport)]
            transport.dead = True
        return ends

    def latency_s(self) -> float:
        low, high = self.faults.latency_ms
        delay = self.random.uniform(low, high)
        if self.faults.stall and self.random.random() < self.faults.stall and self.happens("stall"):
            self.count("stall")
            delay += self.random.uniform(*self.faults.stall_ms)
        return delay / 1000


class SimListener:
    """A bound address of one host."""

    def __init__(self, wires: NetworkLinks, host: str, address: tuple[str, int], factory: ProtocolFactory) -> None:
        self._wires = wires
        self.host = host
        self.factory = factory
        self._address = address

    @property
    def port(self) -> int:
        return self._address[1]

    def close(self) -> None:
        if self._wires.listeners.get(self._address) is self:
            del self._wires.listeners[self._address]


class SimNetwork:
    """The network as one host sees it."""

    def __init__(self, wires: NetworkLinks, host: str) -> None:
        self._wires = wires
        self._host = host

    async def listen(
        self, factory: ProtocolFactory, host: str, port: int, *, tls: ssl.SSLContext | None = None, backlog: int = 50
    ) -> Listener:
        assert tls is None, "TLS is tested on real sockets"
        if port == 0:
            self._wires.next_port += 1
            port = self._wires.next_port
        address = (self._host, port)
        if address in self._wires.listeners:
            raise OSError(98, f"Address already in use: {self._host}:{port}")
        listener = SimListener(self._wires, self._host, address, factory)
        self._wires.listeners[address] = listener
        return listener

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        wires = self._wires
        assert tls is None, "TLS is tested on real sockets"
        await asyncio.sleep(wires.latency_s())
        limit_s = wires.faults.connect_timeout_s
        for waited_s, then_s in itertools.pairwise([*(at_s for at_s in CONNECT_TRIES_S if at_s < limit_s), limit_s]):
            if wires.reaches(self._host, host):
                break
            await asyncio.sleep(then_s - waited_s)
        else:
            wires.count("connect timed out")
            raise TimeoutError(f"no answer from {host}:{port}")
        listener = wires.listeners.get((host, port))
        if listener is None:
            wires.count("connect refused")
            await asyncio.sleep(wires.latency_s())
            raise ConnectionRefusedError(f"no listener at {host}:{port}")
        wires.next_port += 1
        near = SimTransport(wires, self._host, (self._host, wires.next_port), (host, port))
        far = SimTransport(wires, host, (host, port), (self._host, wires.next_port))
        near.peer, far.peer = far, near
        if wires.faults.lost_answer:
            near.answers = AnswerScan(wires.loses)
        # Known before it is accepted: the system answers for it if the process dies first.
        wires.transports[id(far)] = far
        wires.loop.call_on(host, far.open, listener.factory)
        protocol = factory()
        near.attach(protocol)
        return near, protocol


class SimTransport(asyncio.Transport):
    """One end of a connection.

    `_ship` hands bytes to the wire; the wire gives them to the peer's protocol on the peer's host. Flow control is by
    bytes that the peer's protocol has not taken: over HIGH_WATER_BYTES the writer is paused.
    """

    def __init__(self, wires: NetworkLinks, host: str, here: tuple[str, int], there: tuple[str, int]) -> None:
        super().__init__({"sockname": here, "peername": there})
        self.host = host
        self.peer: SimTransport | None = None
        # Only for the client's end, in a world that loses responses.
        self.answers: AnswerScan | None = None
        self.dead = False
        # The system of this end has lost power since the connection was made.
        self.forgotten = False
        self._wires = wires
        self.there = there[0]
        self._port = here[1]
        self._protocol: Any = None
        self._closing = False
        self._lost = False
        self._reading = True
        self._paused_writer = False
        self._in_flight_bytes = 0
        self._last_arrival_s = 0.0
        self._unpublished: deque[Item] = deque()
        self._inbox: deque[Item] = deque()
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4

    # -- opening ------------------------------------------------------------------------------------------------

    def open(self, factory: ProtocolFactory) -> None:
        """Build the protocol on the accepting host."""
        if not self.dead:
            self.attach(factory())

    @property
    def accepted(self) -> bool:
        """Whether the process of this end has the connection."""
        return self._protocol is not None

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._wires.transports[id(self)] = self
        protocol.connection_made(self)
        self._drain_inbox()

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        if self._closing or self._lost or self.dead:
            return
        remaining = bytes(data)
        if self.answers is not None:
            self.answers.asked(remaining)
        self._in_flight_bytes += len(remaining)
        while remaining:
            size = self._segment_bytes(len(remaining))
            self._ship((remaining[:size], None, False))
            remaining = remaining[size:]
        if self._in_flight_bytes > self._high and not self._paused_writer:
            self._paused_writer = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def _segment_bytes(self, available: int) -> int:
        faults = self._wires.faults
        if faults.tiny_segments and self._wires.random.random() < faults.tiny_segments:
            self._wires.count("tiny segment")
            return self._wires.random.randint(1, min(available, 16))
        return min(available, self._wires.random.choice((1460, 16_384, 65_536, available)))

    def ship_end(self, error: BaseException | None) -> None:
        """Tell the peer that this end is gone: in order behind the bytes, or at once where it is a reset."""
        self._ship((b"", error, True))

    def _ship(self, item: Item) -> None:
        faults = self._wires.faults
        wires = self._wires
        wires.loop.trace.data(b"n", self.there, self._port, item[0])
        # Bytes that arrived already reset nothing: of what it had sent no piece may be missing before others that come.
        may_reset = not (item[2] or self._lost or self.dead)
        if faults.reset and may_reset and wires.random.random() < faults.reset and wires.happens("reset"):
            wires.count("reset")
            self._fail(ConnectionResetError("simulated reset"))
            return
        peer = self.peer
        assert peer is not None
        if wires.is_cut(self.host, self.there) or (peer.forgotten and not wires.reaches(self.host, self.there)):
            self._unpublished.append(item)
            wires.holding[id(self)] = self
            return
        loop = wires.loop
        if peer.forgotten:
            # Its system knows no such connection, and says so.
            if not item[2]:
                wires.count("reset of a half-open connection")
                gone = ConnectionResetError("the peer does not know this connection")
                loop.call_on(self.host, self._lose, gone, delay_s=wires.latency_s() + wires.latency_s())
            return
        self._last_arrival_s = max(self._last_arrival_s, loop.time() + wires.latency_s())
        loop.call_on(peer.host, self._arrive, peer, item, delay_s=self._last_arrival_s - loop.time())

    def _arrive(self, peer: SimTransport, item: Item) -> None:
        if not peer.dead:
            peer._receive(item)

    def release(self) -> None:
        """Open the direction again: the bytes that were held go on, in order."""
        held, self._unpublished = self._unpublished, deque()
        if any(item[0] for item in held):
            self._wires.count("late bytes")
        for item in held:
            self._ship(item)

    def end_dark(self) -> None:
        """This end's host went dark: the other end knows nothing of it."""
        self.forgotten = True
        if self.peer is not None and not self.peer.dead and not self.peer._lost:
            self._wires.count("half open")

    # -- reading ------------------------------------------------------------------------------------------------

    def _receive(self, item: Item) -> None:
        if self._lost:
            return
        data, _, is_end = item
        lost_at = None if self.answers is None or is_end else self.answers.lost_at(data)
        if lost_at is None:
            self._inbox.append(item)
        else:
            self._wires.count("lost answer")
            # The connection ends there; what arrives later is not looked at.
            self.answers = None
            lost = ConnectionResetError("the answer is lost, and its connection")
            self._inbox += [(data[:lost_at], None, False), (b"", lost, True)]
        self._drain_inbox()

    def _drain_inbox(self) -> None:
        while self._inbox and self._protocol is not None and not self._lost:
            data, error, is_end = self._inbox[0]
            if is_end:
                self._inbox.popleft()
                self._lose(error)
                return
            if not self._reading:
                return
            self._inbox.popleft()
            rest = self._deliver(data)
            if rest:
                self._inbox.appendleft((rest, None, False))
            if self.peer is not None:
                self.peer._delivered(len(data) - len(rest))

    def _deliver(self, data: bytes) -> bytes:
        """Give bytes to the protocol, one of its buffers after the other while it reads; returns the rest."""
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            while data and self._reading and not self._lost:
                # Released before the next call: a protocol may resize its buffer then.
                with memoryview(self._protocol.get_buffer(len(data))) as buffer:
                    size = min(len(buffer), len(data))
                    buffer[:size] = data[:size]
                self._protocol.buffer_updated(size)
                data = data[size:]
            return data
        self._protocol.data_received(data)
        return b""

    def _delivered(self, size: int) -> None:
        self._in_flight_bytes -= size
        if self._paused_writer and self._in_flight_bytes <= self._low and not self.dead and not self._lost:
            self._paused_writer = False
            self._wires.loop.call_on(self.host, self._resume_writer)

    def _resume_writer(self) -> None:
        if not self._lost and not self._paused_writer:
            self._protocol.resume_writing()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._wires.loop.call_on(self.host, self._drain_inbox)

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    # -- ending -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        if self._closing or self.dead:
            return
        self._closing = True
        self.ship_end(None)
        self._wires.loop.call_on(self.host, self._lose, None)

    def abort(self) -> None:
        self._fail(None)

    def _fail(self, error: BaseException | None) -> None:
        if self._lost or self.dead:
            return
        self._closing = True
        self.ship_end(ConnectionResetError("the peer reset the connection"))
        self._wires.loop.call_on(self.host, self._lose, error)

    def _lose(self, error: BaseException | None) -> None:
        if self._lost or self.dead:
            return
        self._lost = self._closing = True
        self._wires.transports.pop(id(self), None)
        if self._protocol is not None:
            self._protocol.connection_lost(error)
        if self.peer is not None and not self.peer._lost and not self.peer._closing:
            self.ship_end(error)

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return False

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        return self._in_flight_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low
