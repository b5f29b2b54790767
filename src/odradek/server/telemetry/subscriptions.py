"""The subscription of a client: the client metrics resources that match it (KIP-714). Pure.

All nodes compute the same subscription id without communication, from the settings and the client instance id.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """The subscription of one client.

    Attributes:
        metrics: prefixes of names; ("*",) is all, () is none.
    """

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


class Resources:
    """The settings of all client metrics, found once for each image: ten thousand topics may have settings, too."""

    def __init__(self) -> None:
        self._seen: MetadataImage | None = None
        self._found: Sequence[Mapping[str, str]] = ()

    def of(self, image: MetadataImage) -> Sequence[Mapping[str, str]]:
        """The settings of all client metrics, ordered by the name of the resource."""
        if image is not self._seen:
            wanted = {name: each for (kind, name), each in image.configs.items() if kind == ResourceType.CLIENT_METRICS}
            self._seen, self._found = image, [each for _, each in sorted(wanted.items())]
        return self._found


def subscription_of(resources: Iterable[Mapping[str, str]], client: Mapping[str, str]) -> Subscription:
    """The subscription of a client with these values of SELECTORS."""
    metrics: dict[str, None] = {}
    interval_ms = DEFAULT_INTERVAL_MS
    for settings in resources:
        if not matches(settings.get("match", ""), client):
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
