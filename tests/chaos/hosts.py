"""Machines of their own for the nodes: network namespaces behind one switch, and cuts between them.

A cut drops packets in silence, as a broken cable or a wrong rule does: the neighbour's address leads nowhere. Packets
in the other direction still arrive, so one-way cuts have their usual effect: connections that neither work nor end.
Needs root and Linux.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.disks.file_system import run, skip_unless_root
from tests.support.network.namespaces import free_network, network_address

US = 254
NOWHERE = "02:00:00:00:00:01"


class Hosts:
    """Some machines on one switch; this process reaches them all, and cuts are between them alone."""

    def __init__(self, how_many: int) -> None:
        self._number, self._held = free_network()
        self._prefix = f"odr{os.getpid()}-{self._number}"
        self.addresses = [network_address(self._number, host) for host in range(1, how_many + 1)]
        self._cuts: set[tuple[str, str]] = set()

    def launchers(self) -> dict[str, tuple[str, ...]]:
        """The words before a command that start it on a machine, by the machine's address."""
        return {address: ("ip", "netns", "exec", self._name(address)) for address in self.addresses}

    def make(self) -> None:
        """Raises CalledProcessError where the machine does not let us."""
        hub = f"{self._prefix}-hub"
        run("ip", "netns", "add", hub)
        run("ip", "-n", hub, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", hub, "link", "set", "br0", "up")
        for address in self.addresses:
            name, port = self._name(address), f"p{address.rpartition('.')[2]}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", "name", port, "netns", hub, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "-n", hub, "link", "set", port, "master", "br0", "up")
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "link", "add", "name", self._own_link, "type", "veth", "peer", "name", "p0", "netns", hub)
        run("ip", "-n", hub, "link", "set", "p0", "master", "br0", "up")
        run("ip", "addr", "add", f"{network_address(self._number, US)}/24", "dev", self._own_link)
        run("ip", "link", "set", self._own_link, "up")

    def remove(self) -> None:
        """Remove all namespaces and links; processes inside must have ended."""
        commands = [("ip", "link", "del", self._own_link)]
        commands += [("ip", "netns", "del", self._name(address)) for address in self.addresses]
        commands.append(("ip", "netns", "del", f"{self._prefix}-hub"))
        for command in commands:
            subprocess.run(command, check=False, capture_output=True)
        self._held.close()

    def cut(self, sender: str, receiver: str) -> None:
        """Drop traffic from one to the other from now on; the other way stays as it is."""
        run(
            "ip",
            "-n",
            self._name(sender),
            "neigh",
            "replace",
            receiver,
            "lladdr",
            NOWHERE,
            "nud",
            "permanent",
            "dev",
            "eth0",
        )
        self._cuts.add((sender, receiver))

    def cut_both(self, one: str, other: str) -> None:
        """Cut both directions between the two."""
        self.cut(one, other)
        self.cut(other, one)

    def heal(self) -> None:
        """Open all directions again."""
        for sender, receiver in sorted(self._cuts):
            run("ip", "-n", self._name(sender), "neigh", "del", receiver, "dev", "eth0")
        self._cuts.clear()

    def _name(self, address: str) -> str:
        return f"{self._prefix}-{address.rpartition('.')[2]}"

    @property
    def _own_link(self) -> str:
        return f"odr{os.getpid() % 100_000}x{self._number}"


@contextmanager
def hosts(how_many: int) -> Iterator[Hosts]:
    """Machines for the block; skips the test, saying why, where they cannot be made."""
    skip_unless_root("ip")
    made = Hosts(how_many)
    try:
        try:
            made.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
        yield made
    finally:
        made.remove()
