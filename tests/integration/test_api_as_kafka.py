"""Long random conversations go on our node as on Apache Kafka, answer by answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.models.random_walks import Facts, walk_fetch_sessions, walk_producers, walk_times
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka
from tests.support.nodes.node import Node

Walk = Callable[[int, int, int], Facts]
WALKS: dict[str, tuple[Walk, int]] = {
    "fetch sessions": (walk_fetch_sessions, 400),
    "idempotent producers": (walk_producers, 400),
    "offsets by time": (walk_times, 400),
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    require_kafka()
    with ApacheKafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_is_the_same_each_time(node: Node, name: str) -> None:
    walk, _ = WALKS[name]
    assert walk(node.port, 1, 60) == walk(node.port, 1, 60), "or it could not be compared"


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize("name", WALKS)
@pytest.mark.parametrize("seed", range(3))
def test_the_same_answers_as_kafka(node: Node, kafka: ApacheKafka, name: str, seed: int) -> None:
    walk, steps = WALKS[name]
    ours, theirs = walk(node.port, seed, steps), walk(kafka.port, seed, steps)
    different = [
        f"step {step}\n  ours  {one}\n  Kafka {other}"
        for step, (one, other) in enumerate(zip(ours, theirs, strict=True))
        if one != other
    ]
    assert not different, f"{len(different)} of {len(ours)} differ:\n" + "\n".join(different[:5])
