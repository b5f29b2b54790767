"""A producer with two sites: each ticket of a journal is acknowledged by one of them, and may be written to both.

python -m examples.tickets.producer JOURNAL HOME OTHER        a path, and bootstrap.servers of two clusters

It may be killed at any time: how much of the journal is acknowledged is kept in a file beside it, a little late.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

TOPIC = "tickets"
ACKNOWLEDGED_WITHIN_MS = 2000
WINDOW = 5000  # tickets that are not acknowledged
SAVE_EVERY_S = 0.5
IDLE_S = 0.02


class TwoSites:
    """Sends to one site as long as it acknowledges. What it does not acknowledge in time goes to the other.

    A ticket that is sent again may be at both sites: the first may have written it, and its answer got lost.
    """

    def __init__(self, sites: Sequence[str]) -> None:
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": site,
                    "enable.idempotence": True,
                    "message.timeout.ms": ACKNOWLEDGED_WITHIN_MS,
                    "linger.ms": 5,
                    "log_level": 2,
                }
            )
            for site in sites
        ]
        self._turns = 0  # the current site is that of this number, in turn
        self._has_failed = False
        # Number of a ticket → its line; in order of their numbers.
        self._waiting: dict[int, bytes] = {}

    def send(self, number: int, line: bytes) -> None:
        """Take the next ticket; returns when it may be followed by another."""
        self._waiting[number] = line
        self._produce(number, line)
        self.poll(0)
        while len(self._waiting) >= WINDOW:
            self.poll(IDLE_S)

    def poll(self, timeout_s: float) -> None:
        """Take acknowledgements, and turn to the other site where one is late."""
        for producer in self._producers:
            producer.poll(timeout_s if producer is self._current else 0)
        if self._has_failed:
            self._turn()

    def first_waiting(self, following: int) -> int:
        """The number of the first ticket that is not acknowledged; `following` where all are."""
        return next(iter(self._waiting), following)

    @property
    def _current(self) -> Producer:
        return self._producers[self._turns % len(self._producers)]

    def _turn(self) -> None:
        """Send all that is not acknowledged to the other site."""
        self._current.purge()
        self._turns += 1
        self._has_failed = False
        for number, line in self._waiting.items():
            self._produce(number, line)

    def _produce(self, number: int, line: bytes) -> None:
        concert = json.loads(line)["concert"]
        self._current.produce(TOPIC, line.rstrip(), concert, on_delivery=partial(self._delivered, self._turns, number))

    def _delivered(self, turn: int, number: int, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._waiting.pop(number, None)
        elif turn == self._turns:  # an earlier one has been answered by turning
            self._has_failed = True


def journal_lines(journal: Path) -> Iterator[bytes | None]:
    """The lines of a file that grows, and None whenever there is no other yet."""
    with journal.open("rb") as file:
        line = b""
        while True:
            line += file.readline()
            if line.endswith(b"\n"):
                yield line
                line = b""
            else:
                yield None


def acknowledged(journal: Path) -> int:
    """So many tickets from the journal's start are acknowledged, as far as it is written down."""
    path = _progress(journal)
    return int(path.read_text()) if path.exists() else 0


def write_down(journal: Path, count: int) -> None:
    new = _progress(journal).with_suffix(".new")
    new.write_text(str(count))
    new.replace(_progress(journal))


def _progress(journal: Path) -> Path:
    return journal.with_suffix(".acknowledged")


def run(journal: Path, sites: Sequence[str]) -> None:
    """Send what the journal has and gets, until the process is ended."""
    sender = TwoSites(sites)
    first = acknowledged(journal)
    following = 0
    save_at_s = time.monotonic() + SAVE_EVERY_S
    for line in journal_lines(journal):
        if line is None:
            sender.poll(IDLE_S)
        else:
            if following >= first:
                sender.send(following, line)
            following += 1
        if time.monotonic() >= save_at_s:
            write_down(journal, sender.first_waiting(following))
            save_at_s = time.monotonic() + SAVE_EVERY_S


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("python -m examples.tickets.producer JOURNAL HOME OTHER")
    run(Path(sys.argv[1]), sys.argv[2:])
