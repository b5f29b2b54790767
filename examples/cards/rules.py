"""The rules: one transaction and the card's history in, a decision and the new history out.

Plain functions over plain values, so that a rule is tested without Spark, and a corrected rule is applied to the past
by running the same transactions through it again.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field

EARTH_RADIUS_KM = 6371.0
MINUTE_MS = 60_000
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a terminal asks about; `at_ms` is the terminal's clock, ms since 1970 UTC."""

    id: str
    card: str
    merchant: str
    amount_cents: int
    at_ms: int
    latitude: float
    longitude: float


@dataclass(frozen=True)
class Rules:
    """The numbers of the rules; `version` goes into every decision."""

    version: int = 1
    most_in_a_minute: int = 5
    times_the_mean: float = 10.0
    history_needed: int = 5
    fastest_km_h: float = 900.0
    nearest_km: float = 50.0
    blocked_merchants: frozenset[str] = frozenset({"lucky-wheel"})


@dataclass(frozen=True)
class Decision:
    """The answer; `reasons` are the names of the rules that refused, and empty where it is approved."""

    id: str
    card: str
    approved: bool
    reasons: tuple[str, ...]
    rules_version: int


@dataclass
class History:
    """What is remembered of a card. Only approved transactions count for its mean and its place."""

    approved: int = 0
    total_cents: int = 0
    last_at_ms: int = 0
    last_latitude: float = 0.0
    last_longitude: float = 0.0
    asked_at_ms: list[int] = field(default_factory=list)

    def to_json(self) -> str:
        """As the state store keeps it."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> History:
        """The inverse of `to_json`."""
        return cls(**json.loads(text))


def decide(rules: Rules, history: History, asked: Transaction) -> Decision:
    """Judge a transaction; `history` is brought up to date in place.

    Transactions of a card must come in the order of its partition. A terminal's clock may go back; then the time since
    the last one counts as none.
    """
    since = asked.at_ms - MINUTE_MS
    history.asked_at_ms = [at_ms for at_ms in history.asked_at_ms if at_ms > since][-rules.most_in_a_minute :]
    reasons = [
        name
        for name, refuses in (
            ("blocked-merchant", asked.merchant in rules.blocked_merchants),
            ("velocity", len(history.asked_at_ms) >= rules.most_in_a_minute),
            ("amount", _is_far_above_mean(rules, history, asked)),
            ("impossible-travel", _is_impossible_travel(rules, history, asked)),
        )
        if refuses
    ]
    history.asked_at_ms.append(asked.at_ms)
    if not reasons:
        history.approved += 1
        history.total_cents += asked.amount_cents
        history.last_at_ms = asked.at_ms
        history.last_latitude, history.last_longitude = asked.latitude, asked.longitude
    return Decision(asked.id, asked.card, not reasons, tuple(reasons), rules.version)


def distance_km(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """Along the great circle; degrees in."""
    phi, other_phi = math.radians(latitude), math.radians(other_latitude)
    half_lambda = math.radians(other_longitude - longitude) / 2
    chord = math.sin((other_phi - phi) / 2) ** 2 + math.cos(phi) * math.cos(other_phi) * math.sin(half_lambda) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(1.0, chord)))


def _is_far_above_mean(rules: Rules, history: History, asked: Transaction) -> bool:
    if history.approved < rules.history_needed:
        return False
    return asked.amount_cents > rules.times_the_mean * history.total_cents / history.approved


def _is_impossible_travel(rules: Rules, history: History, asked: Transaction) -> bool:
    if history.approved == 0:
        return False
    way_km = distance_km(history.last_latitude, history.last_longitude, asked.latitude, asked.longitude)
    hours = max(0, asked.at_ms - history.last_at_ms) / HOUR_MS
    return way_km > rules.nearest_km and way_km > rules.fastest_km_h * hours
