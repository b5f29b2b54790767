"""Transactions that are made up, from a seed, with fraud whose kind is known. No real card is in them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict
from typing import NamedTuple

from examples.cards.rules import MINUTE_MS, Transaction

START_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC
CITIES = {"Lisbon": (38.72, -9.14), "Prague": (50.08, 14.43), "Osaka": (34.69, 135.50), "Lima": (-12.05, -77.04)}
MERCHANTS = ("corner-shop", "petrol-7", "bookstore", "grocer", "pharmacy", "cinema")
FRAUDS = ("velocity", "amount", "impossible-travel", "blocked-merchant")
ORDINARY_BEFORE_FRAUD = 8


class Labelled(NamedTuple):
    """A transaction, and which fraud it is; None where it is ordinary."""

    transaction: Transaction
    fraud: str | None

    def value(self) -> bytes:
        """As it is in the topic: the label is not in it."""
        return json.dumps(asdict(self.transaction)).encode()


def transactions(seed: int, cards: int, each: int) -> Iterator[Labelled]:
    """`each` transactions of every card, and one fraud of each card behind its eighth, in the order of time.

    An ordinary purchase costs 5 to 50, in the city of the card, an hour to a day after the one before.
    """
    source = random.Random(seed)
    found: list[Labelled] = []
    for number in range(cards):
        card = f"generated-{seed}-{number:05d}"
        city = source.choice(sorted(CITIES))
        at_ms = START_MS + source.randrange(24 * 60) * MINUTE_MS
        for turn in range(each):
            at_ms += source.randrange(60, 24 * 60) * MINUTE_MS
            found.append(Labelled(_purchase(source, card, turn, city, at_ms), None))
            if turn == ORDINARY_BEFORE_FRAUD:
                found += _fraud(source, FRAUDS[number % len(FRAUDS)], found[-1].transaction, city)
    found.sort(key=lambda labelled: (labelled.transaction.at_ms, labelled.transaction.id))
    yield from found


def _purchase(source: random.Random, card: str, turn: int, city: str, at_ms: int) -> Transaction:
    latitude, longitude = CITIES[city]
    return Transaction(
        id=f"{card}-{turn:04d}",
        card=card,
        merchant=source.choice(MERCHANTS),
        amount_cents=source.randrange(500, 5000),
        at_ms=at_ms,
        latitude=latitude + source.uniform(-0.05, 0.05),
        longitude=longitude + source.uniform(-0.05, 0.05),
    )


def _fraud(source: random.Random, kind: str, before: Transaction, city: str) -> list[Labelled]:
    """A thief's transactions behind a purchase; of a burst only those above the limit are the fraud to be found."""
    count = 8 if kind == "velocity" else 1
    away = source.choice([name for name in sorted(CITIES) if name != city]) if kind == "impossible-travel" else city
    made = []
    for number in range(count):
        at_ms = before.at_ms + 10 * MINUTE_MS + number * 1000
        purchase = _purchase(source, before.card, number, away, at_ms)
        stolen = {
            "id": f"{before.card}-fraud-{number}",
            "merchant": "lucky-wheel" if kind == "blocked-merchant" else purchase.merchant,
            "amount_cents": 900_000 if kind == "amount" else purchase.amount_cents,
        }
        transaction = Transaction(**{**asdict(purchase), **stolen})
        made.append(Labelled(transaction, kind if kind != "velocity" or number >= 5 else None))
    return made
