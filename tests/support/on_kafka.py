"""A pytest plugin that puts Apache Kafka in the place of our node.

    pytest -p tests.support.on_kafka tests/integration/test_api_fetch.py

The expectations of our tests must hold for Kafka, too. Every `Node` that a test starts is a node of Apache Kafka then,
with the same overrides; nodes without overrides of their own are one and the same for the whole run. Tests marked
`only_ours` are left out: they are about things that Kafka does not have, or does not promise.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka
from tests.support.nodes.node import Node


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("only_ours"):
            item.add_marker(pytest.mark.skip(reason="about us alone"))


@pytest.fixture(scope="session", autouse=True)
def kafka_in_place_of_our_node() -> Iterator[None]:
    require_kafka()
    with ExitStack() as running, pytest.MonkeyPatch.context() as patch:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
        shared = running.enter_context(ApacheKafka(directory / "shared"))
        plain = set(Node(directory).overrides)
        own: dict[int, ApacheKafka] = {}

        def start(node: Node) -> Node:
            extra = {key: value for key, value in node.overrides.items() if key not in plain}
            kafka = shared
            if extra:
                kafka = own[id(node)] = ApacheKafka(node.directory, extra).start()
            node.port, node.controller_port = kafka.port, kafka.controller_port
            node.data_dir, node.output, node.process = kafka.data_dir, kafka.output, kafka.process
            return node

        def leave(node: Node, *_: Any) -> None:
            node.process = None
            if id(node) in own:
                own.pop(id(node)).stop()

        patch.setattr(Node, "start", start)
        patch.setattr(Node, "__exit__", leave)
        yield
