"""`odradek drain --process` connects to the node of this machine directly, even if the environment names a proxy."""

from __future__ import annotations

import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer

import pytest

from odradek.cli import errors
from odradek.cli.local_drain import drain_process


class Drained(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"drained": True}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


def test_the_probe_is_requested_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as refusing, TCPServer(("127.0.0.1", 0), Drained) as server:
        refusing.bind(("127.0.0.1", 0))  # it never listens
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{refusing.getsockname()[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            assert drain_process(os.getpid(), f"127.0.0.1:{server.server_address[1]}", 0) == {"drained": True}
        finally:
            server.shutdown()
            thread.join()


def test_a_node_without_probes_gets_one_line() -> None:
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))  # it never listens
        where = f"127.0.0.1:{refusing.getsockname()[1]}"
        with pytest.raises(errors.CliError) as caught:
            drain_process(os.getpid(), where, 0)
    hint = "is odradek.metrics.listener set, and --probes its address?"
    assert str(caught.value) == f"{where}/drained: Connection refused; {hint}"
