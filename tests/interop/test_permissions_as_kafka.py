"""Each API answers as Apache Kafka does to clients with no permission, DESCRIBE, all on some resources, or all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.permission_matrix import by_version, matrix_of, recorded, served
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka
from tests.support.nodes.node import Node

pytestmark = [pytest.mark.interop, pytest.mark.only_ours]

# Answers that differ, by API, listener, principal and version, each with the reason why ours is another one.
DIFFERENCES = {
    r"CREATE_TOPICS \w+ all 7": "a topic that is only validated has no id; Kafka answers one that no topic ever has",
    r"DESCRIBE_DELEGATION_TOKEN controller .*": "Kafka's controllers advertise it and fail; ours know the tokens",
    r"DESCRIBE_USER_SCRAM_CREDENTIALS controller .*": "Kafka's controllers advertise it and fail; ours know the users",
    r"ALTER_PARTITION controller all .*": "Kafka does not look at who asks where no partition is named; ours always do",
    r"CONTROLLER_REGISTRATION controller all .*": "Kafka registers a controller without a listener; ours refuse it",
}
# Versions that ours serve and Kafka 4.3.1 does not.
NEWER = {"API_VERSIONS broker 5", "API_VERSIONS controller 5", "DELETE_GROUPS broker 3"}
# APIs that Kafka serves and ours do not.
NOT_SERVED = r"(DESCRIBE_|ALTER_|DELETE_|INITIALIZE_|READ_|WRITE_)?(SHARE|STREAMS)_\w+"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return matrix_of(Node(tmp_path_factory.mktemp("node")))


def different(one: dict[str, str], other: dict[str, str]) -> Iterator[str]:
    """The titles of the answers to the same request that differ."""
    return (title for title in one if title in other and one[title] != other[title])


def test_each_answer_is_the_one_that_kafka_gave(ours: list[str]) -> None:
    answers, expected = by_version(ours), by_version(recorded())
    found = set(different(expected, answers))
    unexpected = [title for title in sorted(found) if not any(re.fullmatch(each, title) for each in DIFFERENCES)]
    assert not unexpected, "\n".join(
        f"{title}\n  ours  {answers[title]}\n  Kafka {expected[title]}" for title in unexpected
    )
    gone = [each for each in DIFFERENCES if not any(re.fullmatch(each, title) for title in found)]
    assert not gone, "these differ no longer"
    assert expected.keys() <= answers.keys()
    newer = {re.sub(r" \w+ (\d+)$", r" \1", title) for title in answers.keys() - expected.keys()}
    assert newer == NEWER


@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_the_apis_are_those_of_kafka(ours: list[str], listener: str) -> None:
    theirs, own = served(recorded(), listener), served(ours, listener)
    assert own <= theirs
    assert {each for each in theirs - own if not re.fullmatch(NOT_SERVED, each)} == set()


@pytest.mark.slow
@pytest.mark.java
def test_kafka_answers_as_it_did(tmp_path: Path) -> None:
    require_kafka()
    lines, before = matrix_of(ApacheKafka(tmp_path)), recorded()
    now, then = by_version(lines), by_version(before)
    assert {title: (now[title], then[title]) for title in different(now, then)} == {}
    assert now.keys() == then.keys()
    assert [line for line in lines if line.startswith("served ")] == before[:2]
