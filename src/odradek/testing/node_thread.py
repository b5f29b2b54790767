"""One node on a thread of its own, inside the process of a test."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from random import SystemRandom
from typing import Any, TypeVar

from odradek.common.real_io import machine_limits
from odradek.security.client.documents import read_document
from odradek.server.broker import Broker
from odradek.server.startup.format import ensure_formatted
from odradek.server.startup.honoured_settings import honoured_settings
from odradek.server.startup.process import new_event_loop
from odradek.settings.node import load_node_settings
from odradek.testing.faults import CutNetwork, NetworkLinks, SkewedClock, SlowDisk

START_TIMEOUT_S = 60.0
LAST_TURNS = 5
T = TypeVar("T")


class NodeThread:
    """A node from its start to its end; a restart is another `NodeThread` over the same files.

    Concurrency: all methods are for the test's thread.
    """

    def __init__(self, node_id: int, wires: NetworkLinks) -> None:
        self.clock = SkewedClock()
        self.disk = SlowDisk()
        self.network = CutNetwork(node_id, wires)
        self._broker: Broker | None = None
        self._awake = threading.Event()
        self._awake.set()
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"odradek-node-{node_id}", daemon=True)
        self._thread.start()

    @property
    def broker(self) -> Broker:
        """The node itself; other threads may only read."""
        assert self._broker is not None, "the node does not run"
        return self._broker

    @property
    def paused(self) -> bool:
        return not self._awake.is_set()

    def begin(self, config: Path | None, overrides: Sequence[str] = ()) -> Future[None]:
        """Start the node, and format it if it is new; the future ends when it serves.

        The future fails with the errors of a start: ConfigError, StorageError, OSError.
        """
        return asyncio.run_coroutine_threadsafe(self._start(config, overrides), self._loop)

    def stop(self, *, skip_controlled_shutdown: bool = False) -> None:
        """Stop cleanly and end the thread.

        Args:
            skip_controlled_shutdown: do not wait until other nodes lead this one's partitions.
        Raises:
            StorageError: a directory could not be closed in good order.
        """
        self.resume()
        broker, self._broker = self._broker, None
        try:
            if broker is not None:
                if skip_controlled_shutdown:
                    self._loop.call_soon_threadsafe(broker.lifecycle.skip_controlled_shutdown)
                self.call(self._stop(broker, clean=True))
        finally:
            self.end()

    def kill(self) -> None:
        """End as kill -9 does, as far as others can see: all connections at once, and not a word to the cluster."""
        broker, self._broker = self._broker, None
        self.resume()
        if broker is not None:
            self.call(self._die(broker))
        self.end()

    def pause(self) -> None:
        """Stand still: the node's loop does nothing, its sockets stay open."""
        self._awake.clear()
        self._loop.call_soon_threadsafe(self._awake.wait)

    def resume(self) -> None:
        """Go on after a pause."""
        self._awake.set()

    def on_loop(self, work: Callable[[], None]) -> None:
        """Run something on the node's loop, soon."""
        self._loop.call_soon_threadsafe(work)

    def call(self, step: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the node's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(START_TIMEOUT_S)

    def end(self) -> None:
        """End the thread; the node must have been stopped or never started."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT_S)
        self.disk.close()
        self._loop.close()

    async def _start(self, config: Path | None, overrides: Sequence[str]) -> None:
        settings = load_node_settings(self.disk, config, overrides, environment={}, honoured=honoured_settings())
        random = SystemRandom()
        if config is None:
            ensure_formatted(self.disk, settings, random=random, now_ms=self.clock.now_ms())
        machine = machine_limits()
        broker = Broker(
            settings,
            clock=self.clock,
            disk=self.disk,
            network=self.network,
            random=random,
            machine=machine,
            fetch=read_document,
            timer=time.perf_counter_ns,
            cpu_timer=time.thread_time_ns,
        )
        await broker.start()
        self._broker = broker

    async def _die(self, broker: Broker) -> None:
        self.network.die()
        for connection in broker.dispatcher.connections:
            connection.close()
        await self._stop(broker, clean=False)

    async def _stop(self, broker: Broker, *, clean: bool) -> None:
        await broker.stop(clean=clean)
        # A socket accepted last becomes a connection one or two turns later, and closes another turn later.
        for _ in range(LAST_TURNS):
            await asyncio.sleep(0)
            for connection in broker.dispatcher.connections:
                connection.close()
