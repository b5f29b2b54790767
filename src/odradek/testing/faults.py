"""The real clock, disk and network with faults that a test switches on: network partitions, slow disks, clock skew.

The node is the same as in production, and accesses the operating system only through these interfaces.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from typing import TypeVar

from odradek.common.ports import Listener, ProtocolFactory
from odradek.common.real_io import RealClock, RealDisk, RealNetwork

T = TypeVar("T")


class SkewedClock(RealClock):
    """A wall clock with a skew of `skew_ms`; the monotonic clock has none."""

    def __init__(self) -> None:
        self.skew_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.skew_ms


class SlowDisk(RealDisk):
    """A disk whose syncs, reads and removals off the loop take `delay_ms` longer."""

    def __init__(self) -> None:
        super().__init__()
        self.delay_ms = 0

    async def run_blocking(self, work: Callable[[], T]) -> T:
        if self.delay_ms:
            await asyncio.sleep(self.delay_ms / 1000)
        return await super().run_blocking(work)


class NetworkLinks:
    """The ports of nodes, and the network partitions between them; shared by the nodes of a cluster.

    Concurrency: read by the loops of all nodes, changed by the test's thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[int, int] = {}
        self._groups: list[frozenset[int]] = []

    def bound(self, port: int, node_id: int) -> None:
        """A node listens on a port."""
        with self._lock:
            self._owners[port] = node_id

    def owner(self, port: int) -> int | None:
        """The node that listens on a port."""
        with self._lock:
            return self._owners.get(port)

    def partition(self, groups: list[frozenset[int]]) -> None:
        """Let nodes reach only those of their own group; without groups, everybody."""
        with self._lock:
            self._groups = groups

    def joined(self, one: int, other: int | None) -> bool:
        """Whether two nodes reach each other; those that no group names reach everybody."""
        with self._lock:
            sides = [group for group in self._groups if one in group or other in group]
        return len(sides) < 2


class CutNetwork(RealNetwork):
    """One node's network.

    Connections across a network partition hang, as with a pulled cable; those of a dead node close.
    """

    def __init__(self, node_id: int, wires: NetworkLinks) -> None:
        self._node_id = node_id
        self._wires = wires
        self._listeners: list[Listener] = []
        self._dialled: dict[asyncio.Transport, int | None] = {}
        self.dead = False

    async def listen(
        self, factory: ProtocolFactory, host: str, port: int, *, tls: ssl.SSLContext | None = None, backlog: int = 50
    ) -> Listener:
        listener = await super().listen(factory, host, port, tls=tls, backlog=backlog)
        self._listeners.append(listener)
        self._wires.bound(listener.port, self._node_id)
        return listener

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        other = self._wires.owner(port)
        if not self.dead and not self._wires.joined(self._node_id, other):
            await asyncio.get_running_loop().create_future()  # until the caller's patience ends
        if self.dead:
            raise ConnectionRefusedError("this node was killed")
        transport, protocol = await super().connect(factory, host, port, tls=tls)
        self._dialled = {each: peer for each, peer in self._dialled.items() if not each.is_closing()}
        self._dialled[transport] = other
        return transport, protocol

    def drop_divided(self) -> None:
        """End the connections to nodes that are cut off now. Call it on the node's loop."""
        for transport, other in self._dialled.items():
            if not self._wires.joined(self._node_id, other):
                transport.abort()

    def die(self) -> None:
        """Close all listeners and connections, as the system does for a killed process. Call it on the node's loop."""
        self.dead = True
        for listener in self._listeners:
            listener.close()
        for transport in self._dialled:
            transport.abort()
