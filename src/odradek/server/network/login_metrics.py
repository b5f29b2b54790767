"""Metrics of logins, by listener and mechanism."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.common.metrics import Family, Sample
from odradek.server.network.listeners import ListenerSpec


def login_families(specs: Iterable[ListenerSpec]) -> Iterator[Family]:
    """The counters of the listeners with SASL."""
    listeners = [spec.sasl for spec in specs if spec.sasl is not None]
    counted = [
        (counts, (("listener", each.name), ("mechanism", mechanism)))
        for each in listeners
        for mechanism, counts in ((name, each.counts_of(name)) for name in each.mechanisms)
    ]

    def family(name: str, text: str, attribute: str) -> Family:
        return Family(name, "counter", text, tuple(Sample(getattr(each, attribute), at) for each, at in counted))

    yield family("odradek_logins", "Clients that have logged in.", "succeeded")
    yield family("odradek_logins_failed", "Logins that failed.", "failed")
    yield family("odradek_logins_again", "Logins of clients that were logged in.", "reauthentications")
    yield family(
        "odradek_logins_again_failed", "Logins of clients that were logged in which failed.", "reauthentications_failed"
    )
    yield Family(
        "odradek_sessions_expired",
        "counter",
        "Connections that were closed: the client did not log in again.",
        tuple(Sample(each.sessions_expired, (("listener", each.name),)) for each in listeners),
    )
