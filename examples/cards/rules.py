"""The rules: one transaction and the card's history in, a decision and the new history out.

Plain functions over plain values, so that a rule is tested without Spark, and a corrected rule is applied to the past
by running the same transactions through it again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

EARTH_RADIUS_KM = 6371.0
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
# Why a transaction is refused that the rules cannot be asked about.
INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that a terminal asks about; `at_ms` is the terminal's clock, ms since 1970 UTC."""

    id: str
    card: str
    merchant: str
    amount_cents: int
    at_ms: int
    latitude: float
    longitude: float

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Transaction | None:
        """The transaction that a terminal sent, or None if a field is missing or is no finite number."""
        known = {name: fields[name] for name in cls.__slots__ if not is_missing(fields.get(name))}
        if len(known) < len(cls.__slots__):
            return None
        # Pandas makes floats of whole numbers where another row has none.
        return cls(**known | {name: int(known[name]) for name in ("amount_cents", "at_ms")})


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
    """The answer; `reasons` are the names of the rules that refused, and empty where it is approved.

    `id` and `card` are None where the terminal gave none.
    """

    id: str | None
    card: str | None
    approved: bool
    reasons: tuple[str, ...]
    rules_version: int


@dataclass
class History:
    """The state of a card. Only approved transactions count for its mean and its place."""

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


def is_missing(value: object) -> bool:
    """Whether a field says nothing: null, which pandas may write as NaN, or a number that is none."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def refuse(rules: Rules, fields: Mapping[str, Any]) -> Decision:
    """The answer to a transaction that lacks a field. No history changes: what is not known counts nowhere."""
    name, card = (None if is_missing(fields.get(each)) else fields[each] for each in ("id", "card"))
    return Decision(name, card, False, (INCOMPLETE,), rules.version)


def decide(rules: Rules, history: History, asked: Transaction) -> Decision:
    """Decide on a transaction; `history` is brought up to date in place.

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
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(1.0, max(0.0, chord))))


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
