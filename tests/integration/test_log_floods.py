"""Peers that fail hundreds of times cost the node's log a few lines, which say how often it was."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import struct
from pathlib import Path

from tests.conftest import assert_no_traceback
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.nodes.node import Node
from tests.support.waiting import eventually

BAD = {
    b"GET / HTTP/1.1\r\n\r\n": "speaks HTTP",
    struct.pack(">i", -5): "negative length",
    struct.pack(">ihhih", 10, 12_345, 0, 1, -1): "is not served",
}
ROUNDS = 150


def say(port: int, words: bytes) -> None:
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=90) as peer:
        peer.sendall(words)
        peer.recv(1)


def closed(connections: list[socket.socket]) -> list[socket.socket]:
    """The connections that the node has closed; it sends nothing on any of them."""
    return select.select(connections, [], [], 0)[0]


def counted(lines: list[str]) -> int:
    """The number of events that lines stand for."""
    return sum(int(found[1]) if (found := re.search(r" repeated=(\d+) ", line)) else 1 for line in lines)


def test_bad_connections_are_summed_up(tmp_path: Path) -> None:
    with Node(tmp_path / "node") as node:
        create_topic(node.bootstrap, "canary")
        for _ in range(ROUNDS):
            for words in BAD:
                say(node.port, words)
        produce_all(node.bootstrap, "canary", [(None, b"v")])
        assert len(read_all(node.bootstrap, "canary")) == 1
        assert_no_traceback(node)
        assert node.stop() == 0
        for reason in BAD.values():
            lines = [line for line in node.log_text().splitlines() if "connection closed" in line and reason in line]
            assert "peer=127.0.0.1:" in lines[0] and "repeated" not in lines[0]
            # Five at first; then two each ten seconds, for as long as a busy machine takes.
            assert len(lines) < 60
            assert counted(lines) == ROUNDS


def test_refused_connections_are_summed_up(tmp_path: Path) -> None:
    with Node(tmp_path / "node", {"max.connections.per.ip": 20}) as node:
        held = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(300)]
        refused = eventually(lambda: count if (count := len(closed(held))) >= 280 else 0)
        assert node.stop() == 0
        for each in held:
            each.close()
        lines = [line for line in node.log_text().splitlines() if "connection refused" in line]
        assert len(lines) < 20
        # The connection that looked whether the node is there may still have had a place.
        assert refused <= counted(lines) <= 281
