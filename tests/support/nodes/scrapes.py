"""Metrics of nodes whose `odradek.metrics.listener` has any port, read as Prometheus reads them."""

from __future__ import annotations

import re
import urllib.request
from typing import Protocol

from prometheus_client.parser import text_string_to_metric_families

from tests.support.waiting import PATIENCE_S

ANY_PORT = {"odradek.metrics.listener": "127.0.0.1:0"}


class Logs(Protocol):
    """A node in a process."""

    def log_text(self) -> str:
        """The log of the node so far."""
        ...


Labels = frozenset[tuple[str, str]]


def metrics_address(node: Logs) -> str:
    """`host:port`; ConnectionRefusedError before the node listens there."""
    found = re.findall(r'metrics are served"?,? "?address"?[=:] ?"?([\w.:]+)', node.log_text())
    if not found:
        raise ConnectionRefusedError
    return str(found[-1])


def scrape(address: str) -> dict[str, dict[Labels, float]]:
    """Name -> labels -> value."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as page:
        text = page.read().decode()
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found
