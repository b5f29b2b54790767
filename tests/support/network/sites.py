"""Sites as network namespaces of their own, and wide-area lines between them, which delay, lose and drop packets.

    10.231.N.16/28               10.231.N.32/28
    site west ── TUN ── carrier ── TUN ── site east       lines: packets of both ways pass a process (carrier.py)
        └─ veth ─ this process ─ veth ─┘                  this process is at each site, without a line between

The processes of a site are started with its `launcher`. This process reaches all sites over virtual Ethernet, as a
client there would. What crosses a line is real IP, so retransmissions, congestion control and timeouts are those of
the kernel's TCP. Needs root, Linux and /dev/net/tun; tests skip without.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.disks.file_system import run
from tests.support.network.carrier import Crossed
from tests.support.network.namespaces import free_network, network_address
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
TUN = Path("/dev/net/tun")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
US = 254
BLOCK = 16
MOST_SITES, MOST_NODES = 14, 14
LONGEST_NAME = 12  # the name of a device has 15 characters at most
# Packets that wait for the carrier. The kernel drops further ones: these would be losses that no line has drawn.
QUEUED_PACKETS = 10_000
ESTABLISHED = "01"

# A connection by its ends, an address and a port each: the end of the site that is looked at first.
Ends = tuple[tuple[str, int], tuple[str, int]]


class Site:
    """A network namespace.

    Attributes:
        addresses: one for each node; other sites reach them over lines, and this process directly.
    """

    def __init__(self, number: int, index: int, name: str, nodes: int) -> None:
        self.name = name
        self.namespace = f"odradek-{number}-{name}"
        self.index = index
        first = BLOCK * (index + 1)
        self.block = f"{network_address(number, first)}/28"
        self.addresses = [network_address(number, first + host) for host in range(1, nodes + 1)]
        self._us = network_address(number, US)
        self._our_link = f"odr{number}s{index}"

    @property
    def address(self) -> str:
        """The one of the first node."""
        return self.addresses[0]

    @property
    def launcher(self) -> tuple[str, ...]:
        """The command that starts a process here."""
        return ("ip", "netns", "exec", self.namespace)

    @property
    def launchers(self) -> dict[str, tuple[str, ...]]:
        """`hosts` of a `ProcessCluster` here: the launcher by address."""
        return dict.fromkeys(self.addresses, self.launcher)

    def ip(self, *words: object) -> None:
        """Run `ip` here. Raises CalledProcessError."""
        run("ip", "-n", self.namespace, *words)

    def make(self) -> None:
        """Raises CalledProcessError if the machine does not allow it."""
        run("ip", "netns", "add", self.namespace)
        self.ip("link", "set", "lo", "up")
        for address in self.addresses:
            self.ip("addr", "add", f"{address}/32", "dev", "lo")
        # Without the addresses of IPv6, which bring packets of their own.
        run("ip", "link", "add", self._our_link, "type", "veth", "peer", "name", "local", "netns", self.namespace)
        run("ip", "link", "set", self._our_link, "addrgenmode", "none", "up")
        self.ip("link", "set", "local", "addrgenmode", "none", "up")
        run("ip", "addr", "add", f"{self._us}/32", "dev", self._our_link)
        run("ip", "route", "add", self.block, "dev", self._our_link, "src", self._us)
        self.ip("route", "add", self._us, "dev", "local", "src", self.address)
        # That of most machines, so that lost packets delay a test on each of them alike.
        with contextlib.suppress(OSError):
            self.set_tcp("congestion_control", "cubic")

    def set_tcp(self, name: str, value: object) -> None:
        """Set a sysctl net.ipv4.tcp_* of this namespace alone. Raises OSError."""
        with self.entered():
            Path("/proc/sys/net/ipv4", f"tcp_{name}").write_text(str(value))

    def remove(self) -> None:
        """Remove all of it; its processes must have ended."""
        for command in (("ip", "link", "del", self._our_link), ("ip", "netns", "del", self.namespace)):
            subprocess.run(command, check=False, capture_output=True)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """In the block this thread is at the site, and so are sockets and threads that it makes: a client's, too."""
        own = Path("/proc/thread-self/ns/net")
        with own.open() as back, Path("/run/netns", self.namespace).open() as there:
            _set_namespace(there.fileno())
            try:
                yield
            finally:
                _set_namespace(back.fileno())

    def connections(self) -> set[Ends]:
        """The TCP connections that are established here, as the kernel sees them."""
        return set(self.queues())

    def queues(self) -> dict[Ends, tuple[int, int]]:
        """For each of them the bytes that the other end has not acknowledged, and those that no process has read."""
        with self.entered():
            lines = Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]
        found = {}
        for local, remote, state, queues in (line.split()[1:5] for line in lines):
            if state == ESTABLISHED:
                sent, received = (int(digits, 16) for digits in queues.split(":"))
                found[_end(local), _end(remote)] = sent, received
        return found


class Line:
    """A line between two sites. Packets pass until it is closed."""

    def __init__(self, one: Site, other: Site, **attributes: float) -> None:
        self.ends = (one, other)
        seed = int(attributes.pop("seed", 0))
        ways = [{**attributes, "seed": seed + number} for number in (0, 1)]
        self._lock = threading.Lock()
        with ExitStack() as stack:
            devices = []
            for here, there in (self.ends, self.ends[::-1]):
                devices.append(_tun_device(here, there))
                stack.callback(os.close, devices[-1])
            self._control, theirs = socket.socketpair()
            with theirs:
                files = [*devices, theirs.fileno()]
                command = [sys.executable, "-m", "tests.support.network.carrier", *map(str, files), json.dumps(ways)]
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=files, cwd=ROOT)
        self._answers = self._control.makefile("rb")
        self._control.settimeout(PATIENCE_S)

    def change(self, sender: Site | None = None, **attributes: float) -> None:
        """Change attributes of a `Way` from now on; of the packets of one sender, or of both."""
        self._request([attributes if sender in (None, end) else {} for end in self.ends])

    def cut(self, sender: Site | None = None) -> None:
        """Drop all packets from now on, of one sender or of both, also those under way; no end gets an error."""
        self.change(sender, is_cut=True)

    def heal(self) -> None:
        """Packets pass again."""
        self.change(is_cut=False)

    def crossed(self, sender: Site) -> Crossed:
        """Counts of the packets that one end has sent so far."""
        return self._request([{}, {}])[self.ends.index(sender)]

    def connections(self) -> set[Ends]:
        """The connections between both sites, established at one end at least; the end of the first site is first."""
        one, other = self._known()
        return one | other

    def half_open(self) -> set[Ends]:
        """Those of them that are established at one end only.

        One that begins or ends now is among them for as long as a packet takes.
        """
        one, other = self._known()
        return one ^ other

    def _known(self) -> tuple[set[Ends], set[Ends]]:
        """The connections that the kernel of each end knows; the end of the first site is first in both."""
        one, other = self.ends
        here = {ends for ends in one.connections() if ends[1][0] in other.addresses}
        there = {ends for ends in other.connections() if ends[1][0] in one.addresses}
        return here, {(remote, local) for local, remote in there}

    def close(self) -> None:
        """End the carrier; the devices go with it."""
        self._answers.close()
        self._control.close()
        self._process.wait(PATIENCE_S)

    def _request(self, changes: list[dict[str, Any]]) -> list[Crossed]:
        with self._lock:
            self._control.sendall(json.dumps(changes).encode() + b"\n")
            answer = self._answers.readline()
        assert answer, "the carrier of a line has died"
        return [Crossed(**each) for each in json.loads(answer)]


class Network:
    """Sites and lines, which `network` removes."""

    def __init__(self, number: int, stack: ExitStack) -> None:
        self._number = number
        self._stack = stack
        self._count = 0

    def site(self, name: str, nodes: int = 1) -> Site:
        """A new site with an address for each of its nodes."""
        assert self._count < MOST_SITES and nodes <= MOST_NODES and len(name) <= LONGEST_NAME
        made = Site(self._number, self._count, name, nodes)
        self._count += 1
        made.remove()  # what a process left that had this number and was killed
        self._stack.callback(made.remove)
        try:
            made.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
        return made

    def line(self, one: Site, other: Site, **attributes: float) -> Line:
        """A line between two sites, with attributes of a `Way`, for both directions."""
        made = Line(one, other, **attributes)
        self._stack.callback(made.close)
        made.crossed(one)  # the carrier is ready
        return made


@contextmanager
def network() -> Iterator[Network]:
    """A network for the block; skips the test, saying why, if it cannot be made."""
    if why := why_not():
        pytest.skip(why)
    with ExitStack() as stack:
        number, held = free_network()
        stack.callback(held.close)
        yield Network(number, stack)


def why_not() -> str:
    """Why there are no sites on this machine; empty if there are."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root on Linux can make network namespaces"
    if shutil.which("ip") is None:
        return "ip is not installed"
    try:
        TUN.open("r+b", buffering=0).close()
    except OSError as error:
        return f"{TUN} cannot be opened: {error.strerror}"
    return ""


def _tun_device(here: Site, there: Site) -> int:
    """The file of a new device at a site, whose packets are those to the other site; the device ends with the file."""
    name = f"odr{os.getpid() % 10**6}t{here.index}"
    file = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
        device = f"to-{there.name}"
        run("ip", "link", "set", name, "netns", here.namespace)
        here.ip("link", "set", name, "name", device, "addrgenmode", "none", "txqueuelen", QUEUED_PACKETS)
        here.ip("link", "set", device, "up")
        here.ip("route", "add", there.block, "dev", device, "src", here.address)
    except BaseException:
        os.close(file)
        raise
    return file


def _set_namespace(file: int) -> None:
    """Move this thread. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).setns(file, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _end(text: str) -> tuple[str, int]:
    """Address and port, from the hexadecimal digits of /proc/net/tcp."""
    address, _, port = text.partition(":")
    return socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)
