"""The network before a site: a port of this machine that passes bytes on to another one, and can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self

from odradek.testing.layout import CONTROLLER_PORT_DISTANCE, free_ports
from odradek.testing.processes import ProcessCluster

HOST = "127.0.0.1"
CHUNK_BYTES = 64 * 1024
MAX_PORT = 65_535


class Road:
    """Passes connections on to `to_port` while it is not cut. Used with `with`.

    Attributes:
        port: where it listens.
    """

    def __init__(self, to_port: int, keep: Path | None = None) -> None:
        """`keep` is a folder that gets a file for each connection, with the bytes that came from `to_port`."""
        self._to_port = to_port
        self._keep = keep
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close what is open, and refuse what comes."""
        with self._lock:
            self._is_cut = True
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Pass connections on again."""
        with self._lock:
            self._is_cut = False

    def __enter__(self) -> Road:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection((HOST, self._to_port))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
                if self._is_cut:
                    with contextlib.suppress(OSError):
                        near.shutdown(socket.SHUT_RDWR)
            kept = (self._keep / str(far.getsockname()[1])).open("ab", buffering=0) if self._keep else None
            for source, target, keep in ((near, far, None), (far, near, kept)):
                threading.Thread(target=self._pass_on, args=(source, target, keep), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, keep: IO[bytes] | None) -> None:
        """One direction; the end of one is that of both."""
        with contextlib.suppress(OSError), keep or contextlib.nullcontext():
            while data := source.recv(CHUNK_BYTES):
                if keep is not None:
                    keep.write(data)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open.discard(source)
        source.close()


class Outpost:
    """A site of one node that other sites reach over a road only. Used with `with`.

    Attributes:
        road: leads to its listener SITES.
        cluster: the site for those who are there.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        protocol: str = "PLAINTEXT",
        keep: Path | None = None,
    ) -> None:
        """
        Args:
            protocol: of the listener SITES.
            keep: as `Road` takes it.
        """
        # Its controller's port is that distance above.
        ports = (number for number in free_ports() if number + CONTROLLER_PORT_DISTANCE <= MAX_PORT)
        port, inner = next(ports), next(ports)
        self.road = Road(inner, keep)
        listeners = {"PLAINTEXT": port, "SITES": inner, "CONTROLLER": port + CONTROLLER_PORT_DISTANCE}
        seen = {"PLAINTEXT": port, "SITES": self.road.port}
        protocols = dict.fromkeys(listeners, "PLAINTEXT") | {"SITES": protocol}
        self.cluster = ProcessCluster(
            folder,
            brokers=1,
            first_port=port,
            settings={
                "listeners": ",".join(f"{kind}://{HOST}:{number}" for kind, number in listeners.items()),
                "advertised.listeners": ",".join(f"{kind}://{HOST}:{number}" for kind, number in seen.items()),
                "listener.security.protocol.map": ",".join(f"{kind}:{each}" for kind, each in protocols.items()),
                "log.retention.check.interval.ms": 500,
                **(settings or {}),
            },
        )

    def __enter__(self) -> Self:
        self.cluster.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.road.__exit__()
        self.cluster.stop()
