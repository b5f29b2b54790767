"""Movements of accounts that do not exist, from a seed; and the names of the topics."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass

MOVEMENTS, BALANCES, DEAD = "movements", "balances", "movements-dead-letters"


@dataclass(frozen=True, slots=True)
class Movement:
    """Money that comes or goes; `number` is of all movements, from 0 without gaps."""

    number: int
    account: str
    cents: int

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def movements(seed: int, accounts: int, count: int) -> Iterator[Movement]:
    """So many movements of so many accounts."""
    source = random.Random(seed)
    for number in range(count):
        account = f"generated-{source.randrange(accounts):04d}"
        yield Movement(number, account, source.randrange(-50_000, 50_000))
