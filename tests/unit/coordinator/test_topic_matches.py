"""The topics that a subscription's regular expression matches, and matches that take too long for the loop."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.consumer.regex import TopicMatches
from odradek.coordinator.group.consumer.topics import TopicFacts, TopicsView


def view(version: int, *names: str) -> TopicsView:
    facts = {name: TopicFacts(name, UUID(int=number), 1) for number, name in enumerate(names, 1)}
    return TopicsView(version, facts, {each.topic_id: each for each in facts.values()})


def many(count: int, version: int = 1) -> TopicsView:
    return view(version, *(f"t{number}" for number in range(count)))


def test_an_expression_follows_what_is_made_and_deleted() -> None:
    matches = TopicMatches()
    seen = [
        matches.topics("t.*", each)
        for each in (view(1, "t2", "t1", "x"), view(1, "t9"), view(2, "t1", "t3", "xt"), view(3), view(4, "t2"))
    ]
    assert seen == [("t1", "t2"), ("t1", "t2"), ("t1", "t3"), (), ("t2",)]


def test_an_expression_must_be_one() -> None:
    with pytest.raises(ApiError) as caught:
        TopicMatches().begin("(", view(1, "t"))()
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_matches_of_another_thread_are_kept() -> None:
    matches = TopicMatches()
    large = many(51)
    assert matches.is_long("t1.*", large)
    matches.store("t1.*", matches.begin("t1.*", large)())
    assert not matches.is_long("t1.*", large)
    assert matches.topics("t1.*", large) == ("t1", *(f"t1{number}" for number in range(10)))


@pytest.mark.parametrize(
    ("known", "present", "expected"),
    [
        (None, many(50), False),
        (None, many(51), True),
        (many(60), many(110, version=2), False),
        (many(60), many(111, version=2), True),
        (many(60), many(111, version=1), False),
        (many(60), many(50, version=2), False),
    ],
    ids=["few", "many", "few are new", "many are new", "of the view that is known", "few are left"],
)
def test_only_names_that_are_new_to_the_expression_take_time(
    known: TopicsView | None, present: TopicsView, expected: bool
) -> None:
    matches = TopicMatches()
    if known is not None:
        matches.topics("t.*", known)
    assert matches.is_long("t.*", present) is expected


def test_the_least_recently_matched_expression_is_evicted() -> None:
    matches = TopicMatches()
    for number in range(1000):
        matches.topics(f"x{number}", many(51))
    assert not matches.is_long("x0", many(51))
    matches.topics("one more", many(51))
    assert matches.is_long("x0", many(51)) and not matches.is_long("x1", many(51))
