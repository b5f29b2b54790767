"""Events in a city, generated from a seed, and the price of a ride after each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

ZONES = 2
START_MS = 1_767_225_600_000  # 1 January 2026, UTC
HOUR_MS = 3_600_000
HOURS = 6
# So many events of a zone decide a price: how many of them ask for a car, and how many offer one.
WINDOW = 40
BASE_CENTS, LEAST_CENTS, MOST_CENTS = 1000, 500, 4000


@dataclass(frozen=True)
class Event:
    """Somebody asks for a car in a zone of a city, or a car is free there.

    Attributes:
        number: in its city, from 0.
        at_ms: when it happened, since 1970.
    """

    number: int
    zone: int
    asks: bool
    at_ms: int


@dataclass(frozen=True)
class Ride:
    """The price for the event of this number, a request for a car."""

    city: str
    number: int
    cents: int
    at_ms: int


class Zone:
    """The last WINDOW events of a zone, and the price that they make."""

    def __init__(self) -> None:
        self._asks: deque[bool] = deque(maxlen=WINDOW)

    def take(self, event: Event) -> None:
        """The next event."""
        self._asks.append(event.asks)

    @property
    def cents(self) -> int:
        """More where more ask than cars are free."""
        asking = sum(self._asks)
        free = len(self._asks) - asking
        return min(max(BASE_CENTS * (asking + 1) // (free + 1), LEAST_CENTS), MOST_CENTS)


def events(city: str, count: int) -> Iterator[Event]:
    """Events of HOURS hours; in some hours most ask, in others most cars are free."""
    random = Random(city)
    shares = [random.uniform(0.2, 0.8) for _ in range(HOURS)]
    for number in range(count):
        at_ms = START_MS + number * HOURS * HOUR_MS // count
        asks = random.random() < shares[(at_ms - START_MS) // HOUR_MS]
        yield Event(number, random.randrange(ZONES), asks, at_ms)


def priced(city: str, happened: Iterable[Event]) -> Iterator[Ride]:
    """The rides of a city, as plain Python prices them."""
    zones = [Zone() for _ in range(ZONES)]
    for event in happened:
        zones[event.zone].take(event)
        if event.asks:
            yield Ride(city, event.number, zones[event.zone].cents, event.at_ms)
