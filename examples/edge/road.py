"""The network before a site: a port of this machine that passes bytes on to another one, and can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading

HOST = "127.0.0.1"
CHUNK_BYTES = 64 * 1024


class Road:
    """Passes connections on to `to_port` while it is not cut. Used with `with`.

    Attributes:
        port: where it listens.
    """

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
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

    def mend(self) -> None:
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
                    near.shutdown(socket.SHUT_RDWR)
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        """One direction; the end of one is that of both."""
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open.discard(source)
        source.close()
