"""Requests of invented people about accounts, from a seed. About a third of them is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator

from examples.accounts.model import CLOSE, DEPOSIT, OPEN, WITHDRAW, Command

START_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC
OWNERS = ("Ada", "Bohumil", "Chiyo", "Dolores", "Emeka")


def commands(seed: int, accounts: int, count: int) -> Iterator[Command]:
    """So many wishes about so many accounts, in the order of time, a minute apart on average."""
    source = random.Random(seed)
    at_ms = START_MS
    for _ in range(count):
        at_ms += source.randrange(120_000)
        account = f"generated-{source.randrange(accounts):04d}"
        ask = source.choices([OPEN, DEPOSIT, WITHDRAW, CLOSE], [3, 10, 8, 1])[0]
        if ask == OPEN:
            yield Command(account, ask, at_ms, owner=f"generated {source.choice(OWNERS)}")
        else:
            yield Command(account, ask, at_ms, 0 if ask == CLOSE else source.randrange(1, 50_000))
