"""Three nodes with a listener INTERNAL in plain text for each other, and one EXTERNAL with TLS for clients."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from odradek.settings.properties import format_properties
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.cluster import Cluster
from tests.support.nodes.node import free_port

BOTH = ("INTERNAL", "EXTERNAL")


class TwoSided(Cluster):
    """A cluster with listeners INTERNAL and EXTERNAL, whose certificates are for the host that EXTERNAL advertises.

    Attributes:
        ports: the port of the listener EXTERNAL, by node.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "nodes")
        self.certificates = Certificates(directory / "certificates")
        self.ports = {node.node_id: free_port() for node in self.brokers}

    def advertise(self, addresses: Mapping[tuple[int, str], tuple[str, int]]) -> None:
        """Say at which host and port others find each node's two listeners; before the start."""
        for node in self.brokers:
            number, plan = node.node_id, node.plan
            bound = {"EXTERNAL": self.ports[number], "CONTROLLER": plan.controller_port, "INTERNAL": plan.port}
            host, _ = addresses[number, "EXTERNAL"]
            advertised = {name: addresses[number, name] for name in BOTH}
            keystore = self.certificates.issue(f"node-{number}", [host])
            properties = {
                **plan.properties,
                # The order matters: INTERNAL, for which the start waits, comes last.
                "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in bound.items()),
                "advertised.listeners": ",".join(f"{name}://{at}:{port}" for name, (at, port) in advertised.items()),
                "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:SSL,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "INTERNAL",
                **{
                    key: str(text)
                    for key, text in self.certificates.server("listener.name.external.", keystore).items()
                },
            }
            plan.config.write_text(format_properties(properties))


class Relay:
    """Takes connections on a port of its own, passes all on to another one, and counts the bytes both ways."""

    def __init__(self, target: int) -> None:
        self.byte_count = 0
        self._target = target
        self._counting = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def is_idle(self) -> bool:
        """Whether no connection is left, and all is counted."""
        return not any(each.is_alive() for each in self._threads[1:])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(60)
        for side in self._open:
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        for side in self._open:
            side.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._open.append(near)
                try:
                    far = socket.create_connection(("127.0.0.1", self._target), 60)
                except OSError:  # the node does not listen now
                    near.shutdown(socket.SHUT_RDWR)
                    continue
                far.settimeout(None)
                self._open.append(far)
                for source, sink in ((near, far), (far, near)):
                    thread = threading.Thread(target=self._pass_on, args=(source, sink), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                with self._counting:
                    self.byte_count += len(data)
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
