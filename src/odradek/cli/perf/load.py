"""The load of a run, and the counts of one interval."""

from __future__ import annotations

import random
import string
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from odradek.cli.errors import USAGE, CliError
from odradek.cli.perf.histogram import Histogram

# Run, thread, number in that thread, and when the record was due: nanoseconds of this machine's monotonic clock.
MARK = struct.Struct(">QIQQ")
_PAYLOADS = 64


@dataclass(frozen=True, slots=True)
class Load:
    """The records to send.

    Attributes:
        sizes: least and greatest size of a value in bytes.
        rate: records a second, of all threads together; 0 sends as fast as it goes.
        records, seconds: when to end; 0 does not.
        keys: how many different keys; 0 sends none.
    """

    sizes: tuple[int, int] = (1024, 1024)
    rate: float = 0.0
    records: int = 0
    seconds: float = 0.0
    keys: int = 0
    threads: int = 1

    def of_thread(self, thread: int) -> int:
        """The number of records of one thread; 0 if only the time limits it."""
        each, more = divmod(self.records, self.threads)
        return each + (thread < more)

    def interval_ns(self) -> float:
        """The time between two records of one thread; 0 without a rate."""
        return 1e9 * self.threads / self.rate if self.rate else 0.0


def parse_sizes(text: str) -> tuple[int, int]:
    """`1024`, or `100-2000`. Raises CliError."""
    low, dash, high = text.partition("-")
    sizes = [int(each) if each.isascii() and each.isdigit() and len(each) < 10 else 0 for each in (low, high or low)]
    if sizes[0] < 1 or sizes[1] < sizes[0] or (dash and not high):
        raise CliError(f"--size {text}: give a number of bytes, or the least and the greatest: 100-2000", code=USAGE)
    return sizes[0], sizes[1]


def payloads(sizes: tuple[int, int], seed: int) -> list[bytes]:
    """Random values of upper-case letters, as Kafka's tools send them: codecs save about a third."""
    drawn = random.Random(seed)
    letters = string.ascii_uppercase.encode()
    return [
        bytes(drawn.choices(letters, k=drawn.randint(*sizes))) for _ in range(_PAYLOADS if sizes[1] < 100_000 else 4)
    ]


def marked(payload: bytes, run: int, thread: int, number: int, due_ns: int) -> bytes:
    """A value with the number of its record and the time at which it was due; at least as long as these."""
    return MARK.pack(run, thread, number, due_ns) + payload[MARK.size :]


@dataclass(slots=True)
class Window:
    """The counts of one interval; latencies in microseconds."""

    sent: int = 0
    acked: int = 0
    acked_bytes: int = 0
    failed: int = 0
    read: int = 0
    read_bytes: int = 0
    late_us: Histogram = field(default_factory=Histogram)
    ack_us: Histogram = field(default_factory=Histogram)
    read_us: Histogram = field(default_factory=Histogram)
    errors: dict[str, int] = field(default_factory=dict)

    def merge(self, other: Window) -> None:
        """Add the counts of another interval."""
        for name in ("sent", "acked", "acked_bytes", "failed", "read", "read_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, theirs in (
            (self.late_us, other.late_us),
            (self.ack_us, other.ack_us),
            (self.read_us, other.read_us),
        ):
            mine.merge(theirs)
        for text, count in other.errors.items():
            self.errors[text] = self.errors.get(text, 0) + count


class Counting:
    """A thread's counts of the present interval, which another thread collects; both hold the lock meanwhile."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.window = Window()
        self.failure: Exception | None = None
        self.stopping = threading.Event()

    def pop_window(self) -> Window:
        """Return the counts since the last call, and reset them."""
        with self.lock:
            taken, self.window = self.window, Window()
        return taken

    def stop(self) -> None:
        """End the thread after its present work."""
        self.stopping.set()


class ReceivedNumbers:
    """A set of received numbers 0, 1, 2, …; stores only those that are out of order."""

    __slots__ = ("_ahead", "below", "count", "repeated")

    def __init__(self) -> None:
        self.below = 0
        self.count = 0
        self.repeated = 0
        self._ahead: set[int] = set()

    def add(self, number: int) -> None:
        """Add a received number."""
        if number < self.below or number in self._ahead:
            self.repeated += 1
            return
        self.count += 1
        self._ahead.add(number)
        while self.below in self._ahead:
            self._ahead.discard(self.below)
            self.below += 1

    def missing(self, end: int) -> Iterator[int]:
        """The numbers below `end` that were not received."""
        return (number for number in range(self.below, end) if number not in self._ahead)
