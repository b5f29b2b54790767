"""What a test asks of a link, by the command."""

from __future__ import annotations

from typing import Any

from tests.support.clients.cli import odradek


def describe(bootstrap: str, link: str = "west") -> dict[str, Any]:
    """All that the brokers say of a link."""
    found: dict[str, Any] = odradek(bootstrap, "links", "describe", link, "--json").json
    return found


def rows_of(bootstrap: str, topic: str, link: str = "west") -> list[dict[str, Any]]:
    """A mirror's partitions."""
    return [row for row in describe(bootstrap, link)["partitions"] if row["topic"] == topic]
