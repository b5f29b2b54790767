"""Thousands of partitions: created in one request, written, started over; and the memory and files of the process.

Each broker creates its own, in a new directory in each round: if one of them fails, the other is still measured, and
nothing of it is left in the next round. A broker that accepts no record within `GIVE_UP_S` counts as one that took so
long.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.one_home import OneHome

FIRST, MANY = "first", "many"
GIVE_UP_S = 120.0
# The measurements of one broker, in this order.
MADE, CLEAN, KILLED, MEMORY, FILES = range(5)
GAVE_UP = (AssertionError, OSError, subprocess.SubprocessError, KafkaException)
NewHome = Callable[[Path], OneHome]


def cells(count: int) -> Sequence[tuple[str, str]]:
    """(name, unit) of what `measure` gives, in its order."""
    return (
        (f"{count:,} partitions made in one request, and a record written to each", "s"),
        (f"start with {count:,} partitions after a clean stop", "s"),
        ("the same after kill -9, with as many partitions", "s"),
        ("memory of the process then", "MiB"),
        ("open files of the process then", "files"),
    )


def measure(new_home: NewHome, folder: Path, who: str, count: int) -> list[float | None]:
    """Measure all cells of one broker in one round: `GIVE_UP_S` for one that it did not finish, None for later ones.

    Args:
        new_home: makes a home over a directory that does not exist yet.
    """
    seen: list[float | None] = [None] * len(cells(count))
    with new_home(folder) as home:
        try:
            home.kafka.format()
            home.launch(who)
            _create_first(home)
            seen[MADE] = GIVE_UP_S
            seen[MADE] = _make(home, count)
            home.stop()
            seen[CLEAN] = GIVE_UP_S
            seen[CLEAN] = home.seconds_to_serve(who, MANY, timeout_s=GIVE_UP_S)
            home.kill()
            seen[KILLED] = GIVE_UP_S
            seen[KILLED] = home.seconds_to_serve(who, MANY, timeout_s=GIVE_UP_S)
            seen[MEMORY] = home.resident_bytes() / 2**20
            seen[FILES] = float(home.open_files())
        except GAVE_UP as error:
            print(f"bench-log: {who} with {count:,} partitions: {error!r}", file=sys.stderr, flush=True)
    return seen


def _create_first(home: OneHome) -> None:
    """Create a topic with one partition once the node is there, so that the measurement begins with a serving node."""
    deadline = time.monotonic() + GIVE_UP_S
    admin = AdminClient({"bootstrap.servers": home.bootstrap, "log_level": 0})
    while True:
        try:
            admin.create_topics([NewTopic(FIRST, 1, 1)])[FIRST].result(30)
            return
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return  # it was made, and the answer lost
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)


def _make(home: OneHome, count: int) -> float:
    began = time.monotonic()
    admin = AdminClient({"bootstrap.servers": home.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(MANY, count, 1)], request_timeout=GIVE_UP_S)[MANY].result(GIVE_UP_S)
    settings = {"acks": "all", "linger.ms": 5, "log_level": 0, "message.timeout.ms": int(GIVE_UP_S * 1000)}
    producer = Producer({"bootstrap.servers": home.bootstrap, **settings})
    for partition in range(count):
        producer.produce(MANY, b"v" * 100, partition=partition)
        producer.poll(0)
    assert producer.flush(GIVE_UP_S) == 0, "not everything was written"
    return time.monotonic() - began
