"""Brokers for users' own tests."""

from odradek.testing.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker"]
