"""Brokers and clusters for users' own tests.

Names are imported at their first use, because pytest loads the plugin in every session.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.testing.cluster import AsyncCluster, Cluster
    from odradek.testing.embedded import EmbeddedBroker
    from odradek.testing.secured import AsyncSecuredCluster, SecuredCluster

__all__ = ["AsyncCluster", "AsyncSecuredCluster", "Cluster", "EmbeddedBroker", "SecuredCluster"]

_HOMES = {
    "AsyncCluster": "cluster",
    "AsyncSecuredCluster": "secured",
    "Cluster": "cluster",
    "EmbeddedBroker": "embedded",
    "SecuredCluster": "secured",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
