"""Every group API in every version and state answers as Apache Kafka does, line by line.

The requests go over the wire as join_group_request, sync_group_request, heartbeat_request, leave_group_request,
offset_commit_request, offset_fetch_request, describe_groups_request, list_groups_request, delete_groups_request,
offset_delete_request and find_coordinator_request.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models.group_client import Lines, record_groups
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka
from tests.support.nodes.node import Node

REPORTED = Path(__file__).parent / "data" / "groups_as_kafka.txt"


def differences(ours: Lines, theirs: Lines) -> list[str]:
    return [
        f"Kafka: {theirs_line}\n   we: {line}"
        for line, theirs_line in zip(ours, theirs, strict=True)
        if line != theirs_line
    ]


def test_groups_answer_as_the_recording_of_kafka(own_node: Node) -> None:
    ours, theirs = record_groups(own_node.port), REPORTED.read_text().splitlines()
    found = differences([line.encode("unicode_escape").decode() for line in ours], theirs)
    assert not found, f"{len(found)} of {len(theirs)} lines differ:\n" + "\n".join(found[:20])


@pytest.mark.java
@pytest.mark.slow
def test_the_recording_of_groups_is_what_kafka_answers(tmp_path: Path) -> None:
    require_kafka()
    with ApacheKafka(tmp_path / "kafka") as kafka:
        lines = record_groups(kafka.port)
    assert [line.encode("unicode_escape").decode() for line in lines] == REPORTED.read_text().splitlines()
