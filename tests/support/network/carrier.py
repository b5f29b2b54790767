"""Carries IP packets between two TUN devices as a wide-area line does: later, not all of them, none while it is cut.

    python -m tests.support.network.carrier DEVICE DEVICE CONTROL WAYS

takes the numbers of three open files, the devices of both ends and a socket, and the attributes of the way from each
end, as JSON. A line from the socket changes attributes, in the same form; the answer is a line with what has crossed
each way so far. The process ends when the socket is closed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass
from random import Random

PACKET_BYTES = 65_536
# Packets read from one device before the other one has its turn.
TURN = 64
DEFAULT_QUEUE_BYTES = 256 * 1024


@dataclass
class Crossed:
    """Counts of the packets that one end has sent, by what became of them.

    Attributes:
        packets, bytes: arrived at the other end, with their IP headers.
        lost: dropped by chance.
        cut: dropped because the way was cut when they were sent, or while they were under way.
        full: dropped because too much waited for a way of limited bandwidth.
    """

    packets: int = 0
    bytes: int = 0
    lost: int = 0
    cut: int = 0
    full: int = 0


@dataclass
class Way:
    """One direction of a line. Pure: packets and times come from its caller.

    Attributes:
        seed: of the packets that are lost.
        delay_s: from one end to the other.
        loss: the share of packets that are lost, 0 to 1.
        bytes_per_s: bandwidth; 0 is no limit.
        queue_bytes: what waits for the bandwidth at most.
        is_cut: whether all packets are dropped.
    """

    seed: int = 0
    delay_s: float = 0.0
    loss: float = 0.0
    bytes_per_s: float = 0.0
    queue_bytes: int = DEFAULT_QUEUE_BYTES
    is_cut: bool = False

    def __post_init__(self) -> None:
        self.crossed = Crossed()
        self._random = Random(self.seed)
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._sent_by_s = 0.0

    def send(self, packet: bytes, now_s: float) -> None:
        """A packet enters the way at its beginning."""
        is_lost = self._random.random() < self.loss
        if self.is_cut:
            self.crossed.cut += 1
        elif is_lost:
            self.crossed.lost += 1
        elif self.bytes_per_s and (self._sent_by_s - now_s) * self.bytes_per_s > self.queue_bytes:
            self.crossed.full += 1
        else:
            takes_s = len(packet) / self.bytes_per_s if self.bytes_per_s else 0.0
            self._sent_by_s = max(self._sent_by_s, now_s) + takes_s
            due_s = self._sent_by_s + self.delay_s
            if self._under_way:  # a shorter delay changes no order
                due_s = max(due_s, self._under_way[-1][0])
            self._under_way.append((due_s, packet))

    def arrived(self, now_s: float) -> list[bytes]:
        """The packets that have come to the end of the way, and leave it."""
        found = []
        while self._under_way and self._under_way[0][0] <= now_s:
            _, packet = self._under_way.popleft()
            if self.is_cut:
                self.crossed.cut += 1
                continue
            self.crossed.packets += 1
            self.crossed.bytes += len(packet)
            found.append(packet)
        return found

    @property
    def next_s(self) -> float | None:
        """When the next packet arrives; None while none is under way."""
        return self._under_way[0][0] if self._under_way else None

    def change(self, changes: dict[str, float]) -> None:
        """Set attributes by their names, from now on."""
        for name, value in changes.items():
            assert name in {each.name for each in dataclasses.fields(self)}, name
            setattr(self, name, value)


class Carrier:
    """Two devices, and a way from each to the other."""

    def __init__(self, devices: tuple[int, int], control: socket.socket, ways: tuple[Way, Way]) -> None:
        self._devices = devices
        self._control = control
        self._lines = control.makefile("rb")
        self._ways = ways

    def run(self) -> None:
        """Return when the other end of the control socket is closed."""
        poll = select.poll()
        for file in (*self._devices, self._control.fileno()):
            poll.register(file, select.POLLIN)
        while True:
            ready = {file for file, _ in poll.poll(self._wait_ms())}
            if self._control.fileno() in ready and not self._answer_request():
                return
            for number, device in enumerate(self._devices):
                if device in ready:
                    self._receive(device, self._ways[number])
            for number, way in enumerate(self._ways):
                self._deliver(way, self._devices[1 - number])

    def _wait_ms(self) -> float | None:
        times = [way.next_s for way in self._ways if way.next_s is not None]
        return max(0.0, (min(times) - time.monotonic()) * 1000) if times else None

    def _answer_request(self) -> bool:
        """Apply one request; returns whether there was one."""
        line = self._lines.readline()
        if not line:
            return False
        for way, changes in zip(self._ways, json.loads(line), strict=True):
            way.change(changes)
        answer = json.dumps([dataclasses.asdict(way.crossed) for way in self._ways])
        self._control.sendall(answer.encode() + b"\n")
        return True

    def _receive(self, device: int, way: Way) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(TURN):
                way.send(os.read(device, PACKET_BYTES), time.monotonic())

    def _deliver(self, way: Way, device: int) -> None:
        for packet in way.arrived(time.monotonic()):
            with contextlib.suppress(OSError):  # the device goes away, or takes no more: a packet is lost
                os.write(device, packet)


def main() -> None:
    """Carry packets until who has started this process closes the socket, or ends."""
    one, other, control = map(int, sys.argv[1:4])
    there, back = (Way(**attributes) for attributes in json.loads(sys.argv[4]))
    Carrier((one, other), socket.socket(fileno=control), (there, back)).run()


if __name__ == "__main__":
    main()
