"""The cost of peers that never end a handshake, that renegotiate, or speak no TLS, for the node and for others.

A canary sends requests on the plain listener all the while, and honest clients shake hands beside the others. A pause
is measured in the node's processor time: a busy machine does not lengthen it.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import assert_no_traceback
from tests.support.clients.canary import Canary
from tests.support.clients.key_updates import KeyUpdates
from tests.support.clients.renegotiation import Renegotiation
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.tls_node import TlsNode, shown
from tests.support.waiting import eventually

pytestmark = pytest.mark.only_ours

MEBIBYTE = 2**20
HALF = 2000
# Each that is under way has a connection of OpenSSL with its buffers: 40 MiB for those that may be, 110 for all.
MOST_GROWTH = 72 * MEBIBYTE
# One that has shaken hands takes 64 KiB, of which OpenSSL has most.
OF_A_CONNECTION = 96 * 1024
# The longest pause, in the node's processor seconds; the canary's own thread may wait longer on a busy machine.
MOST_PAUSE_S = 5.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[TlsNode]:
    settings = certificates.server("listener.name.external.") | {"socket.listen.backlog.size": HALF}
    with TlsNode(tmp_path_factory.mktemp("node"), settings) as node:
        shown(node, certificates)  # what is loaded with the first handshake is no growth
        yield node
        assert_no_traceback(node)


def client_hello() -> bytes:
    """The ClientHello of an honest client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@contextlib.contextmanager
def unhurt(node: TlsNode, connections: int = 0) -> Iterator[None]:
    """Check that the canary's pauses and the node's memory stay bounded within this block, in which `connections` have
    shaken hands."""
    before = node.memory_bytes()
    with Canary(node.port, node.cpu_s) as canary:
        yield
        most = node.memory_bytes()
        asked = canary.answers
        eventually(lambda: canary.answers > asked)
    assert canary.longest_wait_s < MOST_PAUSE_S
    grown = most - before
    assert grown < MOST_GROWTH + connections * OF_A_CONNECTION, f"{grown / MEBIBYTE:.0f} MiB"


def test_half_handshakes_by_the_thousand(node: TlsNode, certificates: Certificates) -> None:
    hello = client_hello()
    beginnings = [b"", hello[: len(hello) // 2], hello]
    with contextlib.ExitStack() as open_until_the_end, unhurt(node):
        for number in range(HALF):
            peer = open_until_the_end.enter_context(socket.create_connection(("127.0.0.1", node.tls_port), 60))
            with contextlib.suppress(OSError):
                peer.sendall(beginnings[number % len(beginnings)])
            if number % 300 == 0:
                assert shown(node, certificates) == "node"
        assert shown(node, certificates) == "node"


def noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(1, 2000))


def a_record_of_noise(rng: random.Random) -> bytes:
    body = rng.randbytes(rng.randint(1, 0x4000))
    return struct.pack(">BHH", 22, 0x0301, len(body)) + body


def a_hello_that_is_altered(rng: random.Random) -> bytes:
    hello = bytearray(client_hello())
    for _ in range(rng.randint(1, 8)):
        hello[rng.randrange(len(hello))] = rng.randrange(256)
    return bytes(hello)


def a_hello_that_promises_16_mebibytes(rng: random.Random) -> bytes:
    record = struct.pack(">BHH", 22, 0x0301, 0x4000) + b"\x01\xff\xff\xff" + rng.randbytes(0x4000 - 4)
    return record + (struct.pack(">BHH", 22, 0x0303, 0x4000) + rng.randbytes(0x4000)) * 8


def a_promise_of_a_record(rng: random.Random) -> bytes:
    return struct.pack(">BHH", 22, 0x0301, 0xFFFF)


def http(rng: random.Random) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


def alerts(rng: random.Random) -> bytes:
    return struct.pack(">BHHBB", 21, 0x0303, 2, 1, 90) * rng.randint(1, 500)


def old_hello(rng: random.Random) -> bytes:
    """A ClientHello of SSL 2."""
    return b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + rng.randbytes(37)


GARBAGE: list[Callable[[random.Random], bytes]] = [
    noise,
    a_record_of_noise,
    a_hello_that_is_altered,
    a_hello_that_promises_16_mebibytes,
    a_promise_of_a_record,
    http,
    alerts,
    old_hello,
]


def test_garbage_instead_of_a_hello(node: TlsNode, certificates: Certificates) -> None:
    rng = random.Random(20261126)
    length = len(node.log_text())
    with unhurt(node):
        for number in range(400):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", node.tls_port), 60) as peer:
                peer.sendall(GARBAGE[number % len(GARBAGE)](rng))
        assert shown(node, certificates) == "node"
    # A line for each kind of failure, not for each peer.
    assert node.log_text()[length:].count("TLS handshake failed") < 60


def test_requests_for_new_keys_without_end(node: TlsNode, certificates: Certificates, tmp_path: Path) -> None:
    """The work of several such peers at once must not add up on the event loop."""
    length = len(node.log_text())
    with contextlib.ExitStack() as until_the_end, unhurt(node):
        peers = [KeyUpdates(node.tls_port, tmp_path / f"keys-{n}", receive_bytes=1 << 20) for n in range(8)]
        for peer in peers:
            until_the_end.callback(peer.close)
        floods = [peer.updates(6000) for peer in peers]
        for peer, flood in zip(peers, floods, strict=True):
            with contextlib.suppress(OSError):
                peer.socket.sendall(flood)
        eventually(lambda: node.log_text()[length:].count("the peer keeps TLS busy") >= 5)
        assert shown(node, certificates) == "node"


def test_renegotiation_is_refused(node: TlsNode, certificates: Certificates) -> None:
    command = ["openssl", "s_client", "-connect", node.tls_address, "-tls1_2", "-CAfile", str(certificates.ca)]
    with unhurt(node):
        for _ in range(3):
            asked = subprocess.run(command, input=b"R\n" * 50, capture_output=True, timeout=60)
            assert b"RENEGOTIATING" in asked.stdout + asked.stderr
            assert b"no renegotiation" in asked.stderr
        assert shown(node, certificates) == "node"


@pytest.mark.slow
def test_renegotiation_on_many_connections_at_once(node: TlsNode, certificates: Certificates, tmp_path: Path) -> None:
    """The test before this one is the short form."""
    count = 1000
    with contextlib.ExitStack() as until_the_end, unhurt(node, count):
        peers = [
            until_the_end.enter_context(contextlib.closing(Renegotiation(node.tls_port, tmp_path / f"keys-{number}")))
            for number in range(count)
        ]
        for peer in peers:
            peer.socket.sendall(peer.asks(50))
        for peer in peers:
            peer.hear_refusals(50)
        assert shown(node, certificates) == "node"
        for peer in peers[:8]:  # without end
            with contextlib.suppress(OSError):
                peer.socket.sendall(peer.asks(3000))
        for peer in peers[:8]:
            peer.hear_the_end()
        assert shown(node, certificates) == "node"
