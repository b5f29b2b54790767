"""Made-up payments, from a seed; accounts are called `generated-…`."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass

SENT_TWICE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Payment:
    """A payment; its id is assigned where it originates, and goes with it everywhere."""

    id: str
    account: str
    amount_cents: int

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def payments(seed: int, count: int) -> Iterator[Payment]:
    """So many payments; one in ten comes again later, as from a producer without idempotence that tries again."""
    source = random.Random(seed)
    again: list[Payment] = []
    for number in range(count):
        account = f"generated-{source.randrange(50):04d}"
        payment = Payment(f"payment-{number:07d}", account, source.randrange(1, 100_000))
        yield payment
        if source.random() < SENT_TWICE_SHARE:
            again.append(payment)
        if again and source.random() < SENT_TWICE_SHARE:
            yield again.pop(source.randrange(len(again)))
    yield from again
