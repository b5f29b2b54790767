"""Orders, customers and articles that do not exist, from a seed: all are called `generated-…`."""

from __future__ import annotations

import json
import random
from typing import NamedTuple


class Record(NamedTuple):
    """A key and a value; no value where a row is gone."""

    key: str
    value: bytes | None


def orders(seed: int, count: int, customers: int = 30, articles: int = 12) -> list[Record]:
    """So many orders, under their own name as key; a few are of unknown customers."""
    source = random.Random(seed)
    made = []
    for number in range(count):
        order = {
            "order": f"generated-order-{number:06d}",
            "customer": f"generated-customer-{source.randrange(customers + 1):03d}",
            "article": f"generated-article-{source.randrange(articles):02d}",
            "pieces": source.randrange(1, 5),
        }
        made.append(Record(str(order["order"]), json.dumps(order).encode()))
    return made


def customers(seed: int, count: int = 30) -> list[Record]:
    """Customers and the cities where they live; the first one moved twice."""
    source = random.Random(seed)
    numbers = [*range(count), 0, 0]
    return [
        _record("customer", f"generated-customer-{number:03d}", city=source.choice(["Lima", "Osaka", "Prague"]))
        for number in numbers
    ]


def articles(seed: int, count: int = 12) -> list[Record]:
    """Articles and their prices; the last one is not sold any more, and its row is gone."""
    source = random.Random(seed)
    made = [
        _record("article", f"generated-article-{number:02d}", cents=source.randrange(100, 9999))
        for number in range(count)
    ]
    return [*made, Record(made[-1].key, None)]


def _record(kind: str, name: str, **fields: object) -> Record:
    return Record(name, json.dumps({kind: name, **fields}).encode())
