"""Groups with members of both protocols answer as Apache Kafka does, line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models.mixed_client import record_mixed_groups
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka
from tests.support.nodes.node import Node

REPORTED = Path(__file__).parent / "data" / "mixed_as_kafka.txt"
# (the begin of a line, Kafka's text in it, our text), and the reason.
OTHERWISE = (
    # A downgrade leaves one generation free, so that a crash does not forget the rebalance that is due.
    ("converted back: JoinGroup NONE", "NONE 5", "NONE 6"),
    # The member says that it does not own what it was assigned: it is sent it again.
    ("after it: ConsumerGroupHeartbeat", "NONE 4 None", "NONE 4 [1]"),
    # Kafka throws.
    ("no subscription: JoinGroup", "UNKNOWN_SERVER_ERROR", "INCONSISTENT_GROUP_PROTOCOL"),
)
SETTINGS = {"group.initial.rebalance.delay.ms": 0}


def escaped(lines: list[str]) -> list[str]:
    return [line.encode("unicode_escape").decode() for line in lines]


def expected(line: str) -> str:
    for beginning, theirs, ours in OTHERWISE:
        if line.startswith(beginning):
            return line.replace(theirs, ours)
    return line


def test_mixed_groups_answer_as_the_recording_of_kafka(tmp_path: Path) -> None:
    with Node(tmp_path, SETTINGS) as node:
        ours = escaped(record_mixed_groups(node.port))
    theirs = REPORTED.read_text().splitlines()
    assert len(ours) == len(theirs)
    found = [f"Kafka: {b}\n   we: {a}" for a, b in zip(ours, theirs, strict=True) if a != expected(b)]
    assert not found, f"{len(found)} of {len(theirs)} lines differ:\n" + "\n".join(found)


@pytest.mark.java
@pytest.mark.slow
def test_the_recording_of_mixed_groups_is_what_kafka_answers(tmp_path: Path) -> None:
    require_kafka()
    with ApacheKafka(tmp_path / "kafka", SETTINGS) as kafka:
        lines = escaped(record_mixed_groups(kafka.port))
    assert lines == REPORTED.read_text().splitlines()
