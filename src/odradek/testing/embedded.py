"""A broker inside the process of a test, on a thread of its own: no container, no JVM, ready in milliseconds.

    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

It is the whole node over real sockets and real files, in a directory that goes when it ends.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Any

from odradek.common.metrics import Family
from odradek.common.node_settings import load_node_settings
from odradek.common.real_io import RealClock, RealDisk, RealNetwork
from odradek.server.broker import Broker
from odradek.server.format import ensure_formatted
from odradek.server.options import honoured_settings

START_TIMEOUT_S = 60.0
# A test wants small internal topics and no waiting for a group's first members.
DEFAULTS: Mapping[str, str] = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class EmbeddedBroker:
    """One node, broker and controller in one. Use it with `with`, or call `start` and `stop`."""

    def __init__(self, settings: Mapping[str, object] | None = None, *, directory: Path | None = None) -> None:
        """
        Args:
            settings: Kafka's keys, above those of a small single node.
            directory: keeps the data; without one it is temporary and goes with `stop`.
        """
        self._settings = {**DEFAULTS, **{key: str(value) for key, value in (settings or {}).items()}}
        self._own_directory = directory is None
        self._directory = directory
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._broker: Broker | None = None

    @property
    def bootstrap_servers(self) -> str:
        """What clients take as bootstrap.servers: `host:port`."""
        assert self._broker is not None, "the broker does not run"
        return self._broker.bootstrap_address()

    @property
    def directory(self) -> Path:
        """Where the node keeps its files."""
        assert self._directory is not None, "the broker was never started"
        return self._directory

    def metric_families(self) -> list[Family]:
        """All metrics of the node, as of now; those by API and by log only with `odradek.metrics.listener`."""
        assert self._broker is not None, "the broker does not run"
        return self._broker.services.metrics.families()

    def start(self) -> EmbeddedBroker:
        """Start and return when clients are served.

        Raises:
            ConfigError, StorageError, OSError: as a node refuses to start.
        """
        assert self._thread is None, "the broker runs already"
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="odradek-"))
        loop = asyncio.new_event_loop()
        self._loop = loop
        self._thread = threading.Thread(target=loop.run_forever, name="odradek-broker", daemon=True)
        self._thread.start()
        try:
            self._call(self._start(self._directory))
        except BaseException:
            self._end()
            raise
        return self

    def stop(self) -> None:
        """Stop cleanly; a temporary directory is removed. Raises StorageError."""
        broker, self._broker = self._broker, None
        try:
            if broker is not None:
                self._call(broker.stop())
        finally:
            self._end()

    def restart(self) -> None:
        """Stop and start over the same files; the port may be another one unless `listeners` names it."""
        keep, self._own_directory = self._own_directory, False
        try:
            self.stop()
        finally:
            self._own_directory = keep
        self.start()

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def _start(self, directory: Path) -> None:
        self._disk = RealDisk()
        overrides = [f"{key}={value}" for key, value in {"log.dirs": directory, **self._settings}.items()]
        settings = load_node_settings(self._disk, None, overrides, environment={}, honoured=honoured_settings())
        clock, random = RealClock(), SystemRandom()
        ensure_formatted(self._disk, settings, random=random, now_ms=clock.now_ms())
        broker = Broker(settings, clock=clock, disk=self._disk, network=RealNetwork(), random=random)
        await broker.start()
        self._broker = broker

    def _call(self, step: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(step, self._loop).result(START_TIMEOUT_S)

    def _end(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(START_TIMEOUT_S)
            self._disk.close()
            loop.close()
        if self._own_directory and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
