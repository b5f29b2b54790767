"""A broker inside the process of a test, on a thread of its own: no container, no JVM, ready in milliseconds.

    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

It is a complete node with real sockets and real files, in a directory that is removed at the end.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from odradek.common.metrics import Family
from odradek.testing.faults import NetworkLinks
from odradek.testing.node_thread import START_TIMEOUT_S, NodeThread

# Small internal topics, and no wait for the first members of a group.
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
            settings: Kafka's keys, which override those of a small single node.
            directory: of the data; if None, it is temporary and removed by `stop`.
        """
        self._settings = {**DEFAULTS, **{key: str(value) for key, value in (settings or {}).items()}}
        self._own_directory = directory is None
        self._directory = directory
        self._node: NodeThread | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The value of bootstrap.servers for clients: `host:port`."""
        assert self._node is not None, "the broker does not run"
        return self._node.broker.bootstrap_address()

    @property
    def directory(self) -> Path:
        """The directory of the node's files."""
        assert self._directory is not None, "the broker was never started"
        return self._directory

    def metric_families(self) -> list[Family]:
        """All metrics of the node, as of now; those by API and by log only with `odradek.metrics.listener`."""
        assert self._node is not None, "the broker does not run"
        return self._node.broker.services.metrics.families()

    def start(self) -> EmbeddedBroker:
        """Start and return when clients are served.

        Raises:
            ConfigError, StorageError, OSError: as a node refuses to start.
        """
        assert self._node is None, "the broker runs already"
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="odradek-"))
        overrides = [f"{key}={value}" for key, value in {"log.dirs": self._directory, **self._settings}.items()]
        node = NodeThread(1, NetworkLinks())
        try:
            node.begin(None, overrides).result(START_TIMEOUT_S)
        except BaseException:
            node.end()
            self._remove_directory()
            raise
        self._node = node
        return self

    def stop(self) -> None:
        """Stop cleanly; a temporary directory is removed. Raises StorageError."""
        node, self._node = self._node, None
        try:
            if node is not None:
                node.stop()
        finally:
            self._remove_directory()

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

    def _remove_directory(self) -> None:
        if self._own_directory and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
