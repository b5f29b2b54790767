"""Events of made-up orders, from a seed: orders and customers are named `generated-…`."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

from examples.orders.model import Event

START_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC
ARTICLES = ("lamp", "chair", "kettle", "shelf", "carpet")
OPEN_AT_ONCE = 50
LAST_KINDS = ("closed", "closed", "closed", "cancelled")


def events(seed: int, orders: int) -> Iterator[Event]:
    """All events of so many orders: those of each in order, those of fifty at a time mixed with one another."""
    source = random.Random(seed)
    waiting = (_life(source, f"generated-{seed}-{number:06d}") for number in range(orders))
    running = list(itertools.islice(waiting, OPEN_AT_ONCE))
    at_ms = START_MS
    while running:
        turn = source.randrange(len(running))
        at_ms += source.randrange(1, 2000)
        yield replace(running[turn].pop(0), at_ms=at_ms)
        if not running[turn]:
            del running[turn]
            running += itertools.islice(waiting, 1)


def _life(source: random.Random, order: str) -> list[Event]:
    """The future events of one order: created, updated up to four times, and mostly closed or cancelled."""
    customer = f"generated-customer-{source.randrange(40):03d}"
    changes = ["created", *["updated"] * source.randrange(5)]
    life = [Event(order, customer, kind, turn, 0, _items(source)) for turn, kind in enumerate(changes, 1)]
    if source.random() < 0.9:
        life.append(Event(order, customer, source.choice(LAST_KINDS), len(life) + 1, 0, {}))
    return life


def _items(source: random.Random) -> dict[str, int]:
    return {article: source.randrange(1, 4) for article in source.sample(ARTICLES, source.randrange(1, 4))}
