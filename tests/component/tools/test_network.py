"""Sites and lines of tests, in real namespaces: packets are late and lost, and nothing is left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.network import sites
from tests.support.network.sites import Line, Network, Site, network
from tests.support.waiting import PATIENCE_S, eventually

DELAY_S = 0.05
Ends = tuple[Site, Site, Line]


@pytest.fixture
def joined() -> Iterator[Ends]:
    with network() as made:
        west, east = made.site("west"), made.site("east")
        yield west, east, made.line(west, east, delay_s=DELAY_S, seed=5)


def server(site: Site) -> socket.socket:
    with site.entered():
        return socket.create_server((site.address, 0))


def connected(site: Site, to: socket.socket) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection from a site."""
    with site.entered():
        near = socket.create_connection(to.getsockname(), PATIENCE_S)
    return near, to.accept()[0]


def test_a_connection_takes_two_ways_and_its_packets_are_counted(joined: Ends) -> None:
    west, east, line = joined
    with closing(server(east)) as listening:
        begun = time.monotonic()
        near, far = connected(west, listening)
        assert time.monotonic() - begun >= 2 * DELAY_S
        assert far.getpeername()[0] == west.address, "a site is known by its address"
        with near, far:
            assert line.connections() == {(near.getsockname(), near.getpeername())}
            near.sendall(b"x" * 100_000)
            near.shutdown(socket.SHUT_WR)
            eventually(lambda: not far.recv(1 << 16), "all arrives")
    there, back = line.crossed(west), line.crossed(east)
    assert 100_000 < there.bytes < 110_000
    assert 0 < back.bytes < 10_000
    # This process is at each site: what it sends there crosses no line.
    with closing(server(east)) as listening:
        socket.create_connection(listening.getsockname(), PATIENCE_S).close()
    assert line.crossed(west).packets - there.packets <= 2


def test_a_line_with_losses_carries_all_in_the_end(joined: Ends) -> None:
    west, east, line = joined
    line.change(loss=0.2, delay_s=0.005)
    with closing(server(east)) as listening:
        near, far = connected(west, listening)
        with near, far:
            near.sendall(data := os.urandom(30_000))
            near.shutdown(socket.SHUT_WR)
            with far.makefile("rb") as reading:
                assert reading.read() == data
    assert line.crossed(west).lost > 0


def test_a_cut_one_way_is_silent_and_leaves_a_half_open_connection(joined: Ends) -> None:
    west, east, line = joined
    with closing(server(east)) as listening:
        near, far = connected(west, listening)
        eventually(lambda: len(line.connections()) == 1 and not line.half_open())
        with near:
            line.cut(east)
            near.sendall(b"x")
            assert far.recv(9) == b"x", "the other way is open"
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            far.close()  # with a reset, which is sent once
            eventually(lambda: line.half_open() == line.connections() != set())
            line.heal()
            near.sendall(b"y")
            eventually(lambda: not line.connections(), "the answer to what it sends now ends it")
    assert line.crossed(east).cut > 0
    assert line.crossed(west).cut == 0


def test_the_network_of_a_failed_test_is_removed() -> None:
    def there() -> str:
        listed = (["ip", "netns"], ["ip", "-brief", "link"])
        return "".join(subprocess.run(each, capture_output=True, text=True).stdout for each in listed)

    names: list[str] = []

    def fail(made: Network) -> None:
        west, east = made.site("west"), made.site("east")
        made.line(west, east)
        names.extend([west.namespace, east.namespace, f"odr{west.namespace.split('-')[1]}s0"])
        assert all(name in there() for name in names)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), network() as made:
        fail(made)
    assert not [name for name in names if name in there()]


def test_a_machine_without_what_is_needed_skips_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "why_not", lambda: "no TUN here")
    with pytest.raises(pytest.skip.Exception, match="no TUN here"), network():
        pass
