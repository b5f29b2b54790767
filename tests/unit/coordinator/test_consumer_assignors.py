"""The coordinator's assignors: complete, to subscribers alone, even, sticky; by property and by example."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coordinator.group.consumer.assignors import (
    Assignor,
    Subscriber,
    range_assignment,
    uniform_assignment,
)
from odradek.coordinator.group.consumer.state import Partitions
from odradek.coordinator.group.consumer.topics import TopicFacts


def topic(number: int, count: int, racks: tuple[frozenset[str], ...] = ()) -> TopicFacts:
    return TopicFacts(f"t{number}", UUID(int=number), count, racks)


def topics_of(*topics: TopicFacts) -> dict[UUID, TopicFacts]:
    return {each.topic_id: each for each in topics}


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, Subscriber], dict[UUID, TopicFacts]]:
    topics = topics_of(*(topic(n, draw(st.integers(1, 12))) for n in range(1, draw(st.integers(1, 4)) + 1)))
    pairs = [(each.topic_id, p) for each in topics.values() for p in range(each.partition_count)]
    gone = (UUID(int=99), 0)
    ids = st.frozensets(st.sampled_from(sorted(topics)), min_size=0)
    previous = st.frozensets(st.sampled_from([*pairs, gone]), max_size=8)
    members = {
        f"m{index}": Subscriber(draw(ids), draw(previous), draw(st.sampled_from([None, f"i{9 - index}"])))
        for index in range(draw(st.integers(1, 6)))
    }
    return members, topics


def check_complete(
    members: Mapping[str, Subscriber], topics: Mapping[UUID, TopicFacts], result: Mapping[str, Partitions]
) -> None:
    assert set(result) == set(members)
    taken = [pair for given_to in result.values() for pair in given_to]
    assert len(taken) == len(set(taken)), "a partition has two owners"
    for member_id, given_to in result.items():
        assert {topic_id for topic_id, _ in given_to} <= members[member_id].topic_ids
    wanted = {each for member in members.values() for each in member.topic_ids}
    assert set(taken) == {(each, p) for each in wanted for p in range(topics[each].partition_count)}


@pytest.mark.parametrize("assign", [uniform_assignment, range_assignment])
@given(group=groups())
@settings(max_examples=150, deadline=None)
def test_each_partition_goes_to_one_subscriber(
    assign: Assignor, group: tuple[dict[str, Subscriber], dict[UUID, TopicFacts]]
) -> None:
    members, topics = group
    result = assign(members, topics)
    check_complete(members, topics, result)
    assert assign(dict(reversed(members.items())), topics) == result, "the order of members must not matter"


@given(group=groups())
@settings(max_examples=150, deadline=None)
def test_uniform_is_even_and_settles(group: tuple[dict[str, Subscriber], dict[UUID, TopicFacts]]) -> None:
    members, topics = group
    result = uniform_assignment(members, topics)
    for donor, given_to in result.items():
        for taker, less in result.items():
            if len(less) + 2 <= len(given_to):
                movable = {each for each, _ in given_to} & members[taker].topic_ids
                assert not movable, f"{taker} has {len(less)} and {donor} {len(given_to)}"
    rebalance_completed = {
        name: Subscriber(each.topic_ids, result[name], each.instance_id) for name, each in members.items()
    }
    assert uniform_assignment(rebalance_completed, topics) == result, "an even assignment must not move"


def test_uniform_moves_only_what_a_new_member_gets() -> None:
    topics = topics_of(topic(1, 200))
    ids = frozenset(topics)
    members = {f"m{index:02}": Subscriber(ids) for index in range(49)}
    before = uniform_assignment(members, topics)
    joined = {name: Subscriber(ids, before[name]) for name in members} | {"new": Subscriber(ids)}
    after = uniform_assignment(joined, topics)
    assert {len(each) for each in after.values()} == {4}
    assert sum(len(before[name] - after[name]) for name in members) == 4, "only the new member's share moves"


def test_range_gives_neighbours_and_equal_partitions_of_equal_topics() -> None:
    topics = topics_of(topic(1, 5), topic(2, 5))
    members = {name: Subscriber(frozenset(topics)) for name in ("a", "b")}
    result = range_assignment(members, topics)
    for number in (1, 2):
        assert sorted(p for each, p in result["a"] if each == UUID(int=number)) == [0, 1, 2]
        assert sorted(p for each, p in result["b"] if each == UUID(int=number)) == [3, 4]


def test_range_goes_by_instance_id_so_that_a_restart_moves_nothing() -> None:
    topics = topics_of(topic(1, 2))
    ids = frozenset(topics)
    first = range_assignment({"x": Subscriber(ids, instance_id="1"), "a": Subscriber(ids, instance_id="2")}, topics)
    again = range_assignment({"b": Subscriber(ids, instance_id="1"), "a": Subscriber(ids, instance_id="2")}, topics)
    assert first["x"] == again["b"]
    assert first["a"] == again["a"]


def test_uniform_prefers_the_rack_of_a_replica() -> None:
    racks = (frozenset({"r1"}), frozenset({"r2"}), frozenset({"r1"}), frozenset({"r2"}))
    topics = topics_of(topic(1, 4, racks))
    ids = frozenset(topics)
    result = uniform_assignment({"a": Subscriber(ids, rack_id="r2"), "b": Subscriber(ids, rack_id="r1")}, topics)
    assert {p for _, p in result["a"]} == {1, 3}
    assert {p for _, p in result["b"]} == {0, 2}


def test_uniform_takes_first_from_a_member_what_is_not_in_its_rack() -> None:
    """The last partition is new: nothing is known of its racks yet."""
    racks = (frozenset({"r1"}), frozenset({"r2"}), frozenset({"r1"}))
    topics = topics_of(topic(1, 4, racks))
    ids = frozenset(topics)
    all_of_it = frozenset((topic_id, number) for topic_id in ids for number in range(4))
    members = {"a": Subscriber(ids, all_of_it, rack_id="r1"), "b": Subscriber(ids, rack_id="r2")}
    result = uniform_assignment(members, topics)
    assert {p for _, p in result["a"]} == {0, 2}
    assert {p for _, p in result["b"]} == {1, 3}


def test_no_members_no_assignment() -> None:
    assert uniform_assignment({}, {}) == {}
    assert range_assignment({}, {}) == {}


def test_the_assignor_visits_only_subscribed_members_of_a_partition() -> None:
    """200 members and 4,000 partitions, where every second member leaves out a topic of its own: calls are counted."""
    topics = topics_of(*(topic(number, 100) for number in range(1, 41)))
    ids = sorted(topics)
    members = {
        f"m{n:03}": Subscriber(frozenset(ids) if n % 2 else frozenset(ids) - {ids[n % 40]}, frozenset())
        for n in range(200)
    }
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        result = uniform_assignment(members, topics)
    finally:
        sys.setprofile(None)
    assert {len(each) for each in result.values()} == {20}
    assert calls < 20 * 4000
