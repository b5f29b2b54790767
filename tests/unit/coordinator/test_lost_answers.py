"""Assignments whose answer is lost: they are sent again, for some clients ask for nothing."""

from __future__ import annotations

from odradek.coordinator.group.consumer.state import RESEND_COUNT
from tests.support.models.consumer_shard import Box, owned, pairs


def test_partitions_to_revoke_are_sent_until_the_member_has_revoked_them() -> None:
    """librdkafka, where an answer is lost to its timeout, goes on with heartbeats that say nothing."""
    box = Box()
    mine = pairs(box.beat("a"))
    box.beat("a", 2, topic_partitions=owned(mine))
    box.beat("b")
    kept = pairs(box.beat("a", 2))  # the answer that is lost
    assert len(kept) == 3
    assert pairs(box.beat("a", 2)) == pairs(box.beat("a", 2, topic_partitions=owned(mine))) == kept
    answer = box.beat("a", 2, topic_partitions=owned(kept))
    assert (answer.member_epoch, answer.assignment) == (3, None)


def test_partitions_that_others_gave_up_are_sent_until_they_are_owned() -> None:
    """They come in the epoch that the member has: nothing else would ever make it ask for them."""
    box = Box()
    mine = pairs(box.beat("a"))
    box.beat("b")
    kept = pairs(box.beat("a", 2, topic_partitions=owned(mine)))
    assert box.beat("b", 3).assignment is None, "it has nothing, which it has said"
    box.beat("a", 2, topic_partitions=owned(kept))
    assert pairs(box.beat("b", 3)) == mine - kept  # the answer that is lost
    assert pairs(box.beat("b", 3)) == mine - kept
    assert pairs(box.beat("b", 3, topic_partitions=owned(frozenset(list(mine - kept)[:1])))) == mine - kept
    assert box.beat("b", 3, topic_partitions=owned(mine - kept)).assignment is None
    assert box.beat("b", 3).assignment is None


def test_another_coordinator_sends_each_member_what_it_has_a_few_times() -> None:
    """The one before may have gone between what it wrote and its answer, and the next answer be lost as well."""
    box = Box()
    mine = pairs(box.beat("a"))
    box.beat("a", 2, topic_partitions=owned(mine))
    box.restart()
    assert [pairs(box.beat("a", 2)) for _ in range(RESEND_COUNT)] == RESEND_COUNT * [mine]
    assert box.beat("a", 2).assignment is None
    box.restart()
    assert box.beat("a", 2, topic_partitions=owned(mine)).assignment is None, "it has said that it has it"
    assert box.beat("a", 2).assignment is None
