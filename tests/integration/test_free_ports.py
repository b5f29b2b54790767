"""Ports for nodes that are only planned: no other process is given one of them, and the node gets it."""

from __future__ import annotations

import os
import socket
import sys
from itertools import islice

import pytest

from odradek.testing import layout
from odradek.testing.layout import free_ports


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a port so")
def test_a_port_is_kept_for_the_node_that_binds_it() -> None:
    port = next(free_ports())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=30)
    with socket.socket() as foreign, pytest.raises(OSError, match="in use"):
        foreign.bind(("127.0.0.1", port))
    for _ in range(2):  # as a node that is started again
        with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port), timeout=30):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a port so")
def test_a_port_is_kept_on_all_addresses_for_a_node_that_binds_them_all() -> None:
    port = next(free_ports())
    for host in ("127.0.0.7", ""):
        with socket.socket() as foreign, pytest.raises(OSError, match="in use"):
            foreign.bind((host, port))
    socket.create_server(("", port)).close()


def test_no_more_than_some_sockets_are_held_for_them() -> None:
    ports = list(islice(free_ports(), layout.MOST_KEPT_PORTS + 50))
    assert len(set(ports)) == len(ports)
    assert len(layout._kept) <= layout.MOST_KEPT_PORTS
    for descriptor in layout._kept:
        os.fstat(descriptor)
