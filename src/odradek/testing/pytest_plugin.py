"""Fixtures for users of pytest: `odradek_broker`, `odradek_cluster` and `odradek_secured_cluster`.

They are an embedded broker, a cluster of three, and one with TLS, users and an issuer of tokens.
All run for the whole session, so use different topic names in each test. pytest finds the plugin if the package is
installed; nothing is imported or started before a test uses a fixture.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing.cluster import Cluster
    from odradek.testing.embedded import EmbeddedBroker
    from odradek.testing.secured import SecuredCluster


class _PlainImports(MetaPathFinder):
    """Finds our own modules before pytest does, which would rewrite the asserts of every one that it finds.

    pytest does so for all modules of a distribution that has a plugin. A broker is hundreds of modules, none of which
    asserts anything about a user's code, and a rewritten one takes several times as long to compile.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        ours = name.partition(".")[0] in ("odradek", "pyspark_odradek")
        return PathFinder.find_spec(name, path, target) if ours else None


sys.meta_path.insert(0, _PlainImports())


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
    """Three brokers that replicate; they are restored after each test."""
    yield odradek_cluster_of_session
    odradek_cluster_of_session.restore()


@pytest.fixture(scope="session")
def odradek_secured_cluster() -> Iterator[SecuredCluster]:
    """A broker without a listener in plain text; clients take `odradek_secured_cluster.client("SCRAM-SHA-512")`."""
    from odradek.testing.secured import SecuredCluster

    with SecuredCluster() as cluster:
        yield cluster
