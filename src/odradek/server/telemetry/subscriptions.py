"""Which metrics a client is asked for: the resources of client metrics that match it (KIP-714). Pure.

All nodes come to the same number of a subscription without talking about it: it follows from what was set and from the
client's id.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from odradek.common.errors import ApiError
from odradek.coordinator.expressions import matcher
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import ResourceType
from odradek.settings.client_metrics import SELECTORS, items, selector_and_pattern

ALL_METRICS = "*"
DEFAULT_INTERVAL_MS = 300_000
# Compiled patterns that are kept.
_PATTERNS = 1000


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one client is asked for.

    Attributes:
        metrics: prefixes of names; ("*",) is all, none at all is nothing.
    """

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


def subscription_of(image: MetadataImage, client: Mapping[str, str]) -> Subscription:
    """What is asked of a client, given what SELECTORS name."""
    metrics: dict[str, None] = {}
    interval_ms = DEFAULT_INTERVAL_MS
    for (kind, _), settings in sorted(image.configs.items()):
        if kind != ResourceType.CLIENT_METRICS or not matches(settings.get("match", ""), client):
            continue
        wanted = items(settings.get("metrics", ""))
        metrics |= dict.fromkeys(wanted)
        if wanted:
            interval_ms = min(interval_ms, int(settings.get("interval.ms", DEFAULT_INTERVAL_MS)))
    names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    number = zlib.crc32(f"{client['client_instance_id']} {names} {interval_ms}".encode())
    return Subscription(number - (1 << 32) if number >> 31 else number, names, interval_ms)


def matches(match: str, client: Mapping[str, str]) -> bool:
    """Whether all patterns of `selector=pattern,…` fit; one that cannot be read fits nothing."""
    return all(
        _fits(pattern)(client.get(selector, "")) for selector, pattern in map(selector_and_pattern, items(match))
    )


@lru_cache(_PATTERNS)
def _fits(pattern: str) -> Callable[[str], bool]:
    try:
        return matcher(pattern, "the pattern")
    except ApiError:
        return lambda text: False


def selectors_of(instance: UUID, client_id: str, software: str, host: str, port: int) -> dict[str, str]:
    """A client as subscriptions see it; `software` is its name and version."""
    name, _, version = software.partition(" ")
    values = (str(instance), client_id, name, version, host, str(port))
    return dict(zip(SELECTORS, values, strict=True))
