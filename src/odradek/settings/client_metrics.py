"""The settings of a client metrics subscription (KIP-714), and their validation."""

from __future__ import annotations

import re
from collections.abc import Mapping

from odradek.common.numbers import parse_natural

# With their defaults.
KEYS = {"interval.ms": "300000", "match": "", "metrics": ""}
DOCS = {
    "interval.ms": "How often clients push.",
    "match": "Which clients push, as `client_id=app.*`; all without.",
    "metrics": "Beginnings of names of metrics that clients push; `*` is all, none where it is empty.",
}
INTERVAL_MS = range(100, 3_600_001)
# The selectors of a match.
SELECTORS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def items(text: str) -> list[str]:
    """The parts of a list."""
    return [item.strip() for item in text.split(",") if item.strip()]


def selector_and_pattern(item: str) -> tuple[str, str]:
    """The two sides of `client_id=app.*`."""
    selector, _, pattern = item.partition("=")
    return selector.strip(), pattern.strip()


def client_metrics_problems(_name: str, settings: Mapping[str, str]) -> list[str]:
    """One line for each thing that is wrong, as Kafka words it."""
    problems = [f"Unknown client metrics config {key}" for key in settings if key not in KEYS]
    interval = settings.get("interval.ms", KEYS["interval.ms"])
    if parse_natural(interval, INTERVAL_MS[-1]) not in INTERVAL_MS:
        problems.append(f"Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)")
    problems += [
        f"Illegal client matching pattern: {each}" for each in items(settings.get("match", "")) if _is_bad(each)
    ]
    return problems


def _is_bad(item: str) -> bool:
    selector, pattern = selector_and_pattern(item)
    if "=" not in item or selector not in SELECTORS:
        return True
    try:
        re.compile(pattern)
    except re.error:
        return True
    return False
