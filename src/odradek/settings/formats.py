"""Settings whose text has a format of its own, which neither its type nor Kafka's table of valid values describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.common.numbers import INT32_MAX, parse_natural


def per_ip_overrides(text: str) -> dict[str, int]:
    """Read "host:count,host:count"; the count follows the last colon, so that IPv6 addresses pass.

    Raises:
        ValueError: an entry without an address or a count.
    """
    limits = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, count_text = entry.rpartition(":")
        count = parse_natural(count_text, INT32_MAX)
        if not host or count is None:
            raise ValueError(f"must be a list of address:count, and {entry!r} is not")
        limits[host.strip("[]")] = count
    return limits


FORMATS: Mapping[str, Callable[[str], object]] = {"max.connections.per.ip.overrides": per_ip_overrides}
