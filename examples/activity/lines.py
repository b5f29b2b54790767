"""Lines of access logs in the combined format: read from a file, made up from a seed, and sent at their own pace.

Made-up visitors have addresses that RFC 5737 keeps for documentation, and a browser called `generated`.
"""

from __future__ import annotations

import gzip
import random
import re
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Producer

from examples.topics import refuse_failure

TIME = re.compile(r"\[([^\]]+)\]")
TIME_FORMAT = "%d/%b/%Y:%H:%M:%S %z"
START = datetime(2026, 1, 1, 9, 30, tzinfo=UTC)
PAGES = ("/", "/lamps", "/chairs", "/cart", "/checkout", "/search?q=shelf", "/missing")
VISITORS = 120
SESSION_PAUSE = timedelta(hours=2)
# The servers break for five minutes: from here on, measured in the share of all visits.
OUTAGE_AT, OUTAGE_MINUTES = 0.6, 5


def generated(seed: int, visits: int, broken: int = 0) -> list[str]:
    """Lines of so many visits over a morning, in the order of time, with one outage, and some that are no such lines.

    A visitor looks at a few pages, half a minute apart, and may come back after two hours.
    """
    source = random.Random(seed)
    hits: list[tuple[datetime, str, str]] = []
    for number in range(visits):
        visitor = f"203.0.113.{number % VISITORS}"
        at = START + (number // VISITORS) * SESSION_PAUSE + timedelta(seconds=source.randrange(3600))
        for _ in range(source.randrange(1, 9)):
            hits.append((at, visitor, source.choice(PAGES)))
            at += timedelta(seconds=source.randrange(5, 60))
    hits.sort()
    outage = hits[int(len(hits) * OUTAGE_AT)][0]
    lines = []
    for at, visitor, page in hits:
        down = outage <= at < outage + timedelta(minutes=OUTAGE_MINUTES)
        status = 503 if down and source.random() < 0.7 else 404 if page == "/missing" else 200
        asked = f'"GET {page} HTTP/1.1" {status} {source.randrange(200, 90_000)}'
        lines.append(f'{visitor} - - [{at.strftime(TIME_FORMAT)}] {asked} "-" "generated/1.0"')
    for _ in range(broken):
        lines.insert(source.randrange(1, len(lines)), f"generated nonsense {source.randrange(1000)}")
    return lines


def of_file(path: Path) -> Iterator[str]:
    """The lines of a file, packed by gzip or not."""
    with gzip.open(path, "rt", errors="replace") if path.suffix == ".gz" else path.open(errors="replace") as file:
        for line in file:
            yield line.rstrip("\n")


def time_of(line: str) -> datetime | None:
    """When the request came, or None where the line does not say."""
    found = TIME.search(line)
    try:
        return datetime.strptime(found[1], TIME_FORMAT) if found else None
    except ValueError:
        return None


def send(bootstrap: str, topic: str, lines: Iterable[str], pace: float) -> int:
    """Send lines under their visitor as key, as long after one another as they say; returns how many.

    Args:
        pace: how many times as fast; 0 waits for nothing.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    began, first, count = time.monotonic(), None, 0
    for line in lines:
        at = time_of(line)
        if at is not None and pace:
            first = first or at
            while (early_s := (at - first).total_seconds() / pace - (time.monotonic() - began)) > 0:
                producer.poll(early_s)
        at_ms = int(at.timestamp() * 1000) if at else 0  # 0: now
        producer.produce(topic, line, line.split(" ", 1)[0], timestamp=at_ms, on_delivery=refuse_failure)
        producer.poll(0)
        count += 1
    producer.flush()
    return count
