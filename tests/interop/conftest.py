"""Fixtures of the interop tier."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.brokers import start_broker
from tests.support.nodes.apache_kafka import ApacheKafka
from tests.support.nodes.node import Node


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node | ApacheKafka]:
    """The broker under test, one for each test module."""
    with start_broker(tmp_path_factory.mktemp("broker"), {"auto.create.topics.enable": "true"}) as running:
        yield running
