"""Networks that only one test has: their number, from which addresses and names follow."""

from __future__ import annotations

import socket

MOST_NETWORKS = 250


def network_address(number: int, host: int) -> str:
    """An address of the network with that number; `host` is 1 to 254."""
    return f"10.231.{number}.{host}"


def free_network() -> tuple[int, socket.socket]:
    """The number of a network that no other process of this machine uses, and the socket that reserves it."""
    for number in range(1, MOST_NETWORKS + 1):
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0odradek-chaos-network-{number}")
        except OSError:
            held.close()
        else:
            return number, held
    raise RuntimeError(f"{MOST_NETWORKS} networks are in use")
