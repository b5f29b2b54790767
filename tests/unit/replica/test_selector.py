"""The replica from which a consumer reads, and the values of its setting."""

from __future__ import annotations

import pytest

from odradek.common.errors import ConfigError
from odradek.replica.selector import Candidate, leader, rack_aware, selector_named

LEADER = Candidate(1, "a", 100, True)


@pytest.mark.parametrize(
    ("rack", "others", "expected"),
    [
        ("a", [Candidate(2, "a", 200, False)], 1),
        ("b", [Candidate(2, "b", 90, False), Candidate(3, "b", 95, False)], 3),
        ("b", [Candidate(3, "b", 90, False), Candidate(2, "b", 90, False)], 2),
        ("c", [Candidate(2, "b", 90, False)], 1),
        ("b", [Candidate(2, None, 90, False)], 1),
    ],
    ids=["the leader is near", "the furthest", "of equals the lower id", "none is near", "a rack that is not known"],
)
def test_a_rack_reads_from_what_is_near(rack: str, others: list[Candidate], expected: int) -> None:
    assert rack_aware(rack, [*others, LEADER]) == expected
    assert leader(rack, [*others, LEADER]) == 1


@pytest.mark.parametrize("package", ["", "org.apache.kafka.common.replica."])
def test_kafkas_classes_are_known_with_or_without_their_package(package: str) -> None:
    assert selector_named(package + "RackAwareReplicaSelector") is rack_aware
    assert selector_named(package + "LeaderSelector") is None, "consumers are never sent elsewhere"


@pytest.mark.parametrize("name", [None, ""])
def test_without_the_setting_consumers_stay(name: str | None) -> None:
    assert selector_named(name) is None


def test_a_class_that_cannot_be_loaded_is_an_error_of_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"replica.selector.class=com.example.Mine: must be one of org.*LeaderSel"):
        selector_named("com.example.Mine")
