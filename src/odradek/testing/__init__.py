"""Brokers and clusters for users' own tests."""

from odradek.testing.cluster import AsyncCluster, Cluster
from odradek.testing.embedded import EmbeddedBroker

__all__ = ["AsyncCluster", "Cluster", "EmbeddedBroker"]
