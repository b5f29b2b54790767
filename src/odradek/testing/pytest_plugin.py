"""Fixtures for users of pytest: `odradek_broker`, one embedded broker, and `odradek_cluster`, three of them.

Both live for the whole session, so give topics names of their own. The plugin is found by itself where the package is
installed, and nothing is imported or started before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing.cluster import Cluster
    from odradek.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def odradek_broker() -> Iterator[EmbeddedBroker]:
    """A running broker; clients take `odradek_broker.bootstrap_servers`."""
    from odradek.testing.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def odradek_cluster_of_session() -> Iterator[Cluster]:
    """The cluster behind `odradek_cluster`."""
    from odradek.testing.cluster import Cluster

    with Cluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def odradek_cluster(odradek_cluster_of_session: Cluster) -> Iterator[Cluster]:
    """Three brokers that replicate; whatever a test does to them is put right after it."""
    yield odradek_cluster_of_session
    odradek_cluster_of_session.restore()
