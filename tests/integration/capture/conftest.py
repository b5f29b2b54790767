"""A node, a PostgreSQL server, and a database and a capture for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.nodes.captured import SETTINGS, Captured, own_database
from tests.support.nodes.node import Node
from tests.support.nodes.postgres import Postgres


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres(*SETTINGS) as running:
        yield running


@pytest.fixture
def database(server: Postgres, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A connection in autocommit to a database of the test's own."""
    with own_database(server, request.node.name) as connection:
        yield connection


@pytest.fixture
def captured(node: Node, server: Postgres, database: Any) -> Iterator[Captured]:
    found = Captured(node, server, database)
    with found.open:
        yield found
