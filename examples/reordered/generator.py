"""Readings of machines that do not exist, from a seed, in the order of their arrival: not that of their time."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from typing import NamedTuple

from examples.reordered.buffer import Reading

START_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC
# Most arrive within this; one in fifty was without a network for minutes.
USUAL_DELAY_MS, LONG_DELAY_MS = 20_000, 600_000
LONG_SHARE = 0.02


class Arrival(NamedTuple):
    """A reading as it is in the topic, without a key: any partition may have it."""

    machine: str
    reading: Reading

    def value(self) -> bytes:
        return json.dumps({"machine": self.machine, **asdict(self.reading)}).encode()


def arrivals(seed: int, machines: int, each: int) -> list[Arrival]:
    """So many readings of each machine, about one a second."""
    source = random.Random(seed)
    found: list[tuple[int, Arrival]] = []
    for machine in range(machines):
        at_ms = START_MS + source.randrange(1000)
        for number in range(each):
            at_ms += source.randrange(2000)
            usual = source.random() >= LONG_SHARE
            delay_ms = source.randrange(USUAL_DELAY_MS if usual else LONG_DELAY_MS)
            reading = Reading(at_ms, number, round(source.gauss(20, 2), 2))
            found.append((at_ms + delay_ms, Arrival(f"generated-{machine:02d}", reading)))
    return [arrival for _, arrival in sorted(found)]
