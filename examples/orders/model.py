"""The events of an order, and its state: all events before, applied in order. No Kafka in here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

OPEN = "open"
# What each kind of event asks of the order, and leaves it as. None: there is no such order.
STATUSES: dict[str, tuple[str | None, str]] = {
    "created": (None, OPEN),
    "updated": (OPEN, OPEN),
    "cancelled": (OPEN, "cancelled"),
    "closed": (OPEN, "closed"),
}


class OutOfOrderError(Exception):
    """An event that cannot follow what came before it: one is missing, or one came twice."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to an order.

    Attributes:
        number: of this event among those of its order, from 1 without gaps: the producer of an order gives it.
        items: what was ordered, by article; empty where nothing changes.
    """

    order: str
    customer: str
    kind: str
    number: int
    at_ms: int
    items: dict[str, int]

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_json(value: bytes | None) -> Event:
        return Event(**json.loads(value or b"{}"))


@dataclass(frozen=True, slots=True)
class Order:
    """An order after its events up to `number`."""

    order: str
    customer: str
    status: str
    number: int
    items: dict[str, int]

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    @staticmethod
    def from_json(value: bytes | None) -> Order:
        return Order(**json.loads(value or b"{}"))


def apply(order: Order | None, event: Event) -> Order:
    """The order after one more event; None is an order that does not exist. Raises OutOfOrderError."""
    number, status = (order.number, order.status) if order is not None else (0, None)
    needs, becomes = STATUSES[event.kind]
    if event.number != number + 1 or status != needs:
        raise OutOfOrderError(f"{event.order}: event {event.number} ({event.kind}) after event {number} ({status})")
    items = event.items or (order.items if order is not None else {})
    return Order(event.order, event.customer, becomes, event.number, items)
