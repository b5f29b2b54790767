"""The interval between assignments of a group, and the commits of members that have not received the newest."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.state import ConsumerGroupState, Partitions
from odradek.log.producer_state import ProducerState
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.models.consumer_shard import Box, owned, pairs, view


def test_without_settings_the_intervals_and_bounds_are_kafkas() -> None:
    config = ConsumerGroupConfig()
    assert (config.min_session_timeout_ms, config.session_timeout_ms, config.max_session_timeout_ms) == (
        45_000,
        45_000,
        60_000,
    )
    assert (config.min_heartbeat_interval_ms, config.heartbeat_interval_ms, config.max_heartbeat_interval_ms) == (
        5_000,
        5_000,
        15_000,
    )


@pytest.mark.parametrize(
    ("wanted", "session_ms", "heartbeat_ms"),
    [
        (None, 45_000, 5_000),
        (50_000, 50_000, 15_000),
        (1, 45_000, 5_000),
        (10_000, 45_000, 10_000),
        (10**6, 60_000, 15_000),
    ],
)
def test_a_groups_own_settings_stay_within_the_brokers_bounds(
    wanted: int | None, session_ms: int, heartbeat_ms: int
) -> None:
    names = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
    overrides = {} if wanted is None else dict.fromkeys(names, str(wanted))
    config = ConsumerGroupConfig()
    assert config.session_timeout_of(overrides) == session_ms
    assert config.heartbeat_interval_of(overrides) == heartbeat_ms


class TestInterval:
    """KIP-1263: changes that come together cost one assignment."""

    def test_a_group_that_was_assigned_nothing_waits_for_nothing(self) -> None:
        """A new expression counts from the second heartbeat on: the first assignment is empty."""
        box = Box(view(ta=3, xb=1), assignment_interval_ms=1000)
        epoch = box.beat("a", subscribed_topic_names=None, subscribed_topic_regex="t.*").member_epoch
        answer = box.beat("a", epoch)
        assert (len(pairs(answer)), answer.heartbeat_interval_ms) == (3, 5000)
        deferred = box.beat("b", subscribed_topic_names=["xb"])
        assert (pairs(deferred), deferred.heartbeat_interval_ms) == (frozenset(), 1000)

    def test_a_join_within_the_assignment_interval_is_deferred(self) -> None:
        box = Box(assignment_interval_ms=1000)
        assert len(pairs(box.beat("a"))) == 6, "the first assignment waits for nothing"
        box.advance(400)
        for member_id in "bc":
            answer = box.beat(member_id)
            assert (answer.member_epoch, pairs(answer), answer.heartbeat_interval_ms) == (2, frozenset(), 600)
        assert (box.group.group_epoch.value, box.group.assignment_epoch.value) == (4, 2)
        assert box.group.state is ConsumerGroupState.ASSIGNING
        box.advance(599)
        assert box.beat("b", 2).heartbeat_interval_ms == 1
        box.restart()
        assert box.beat("b", 2).member_epoch == 2, "a restart does not shorten it"
        box.advance(1)
        assert box.beat("c", 2).heartbeat_interval_ms == 5000
        assert box.group.assignment_epoch.value == 4, "one assignment for both"
        assert {len(each) for each in box.group.target.values()} == {2}

    def test_a_groups_own_interval_counts_within_the_bounds(self) -> None:
        box = Box(assignment_interval_ms=1000, max_assignment_interval_ms=3000)
        box.group_configs["g"] = {"consumer.assignment.interval.ms": "2500"}
        box.beat("a")
        box.advance(2000)
        assert box.beat("b").heartbeat_interval_ms == 500
        box.group_configs["g"] = {"consumer.assignment.interval.ms": "20000"}
        assert box.beat("b", 2).heartbeat_interval_ms == 1000
        box.group_configs["g"] = {"consumer.assignment.interval.ms": "0"}
        assert box.beat("b", 2).member_epoch == 3

    def test_unsubscribed_topics_are_revoked_at_once(self) -> None:
        """KAFKA-19431: the target may be of subscriptions that were."""
        box = Box(view(ta=3, tb=3), assignment_interval_ms=1000)
        mine = pairs(box.beat("a", subscribed_topic_names=["ta", "tb"]))
        kept = pairs(box.beat("a", 2, subscribed_topic_names=["tb"], topic_partitions=owned(mine)))
        assert {topic_id for topic_id, _ in kept} == {box.topics.by_name["tb"].topic_id}
        assert box.group.current_of("a").pending_revocation == mine - kept
        assert box.group.assignment_epoch.value == 2, "without another assignment"
        assert box.beat("a", 2, topic_partitions=owned(kept)).member_epoch == 2
        assert box.group.current_of("a").held == kept, "and it does not come back with the old target"
        box.advance(1000)
        assert box.beat("a", 2).member_epoch == 3
        assert box.group.current_of("a").held == kept

    def test_more_is_given_up_by_a_member_that_is_giving_up_already(self) -> None:
        box = Box(view(ta=3, tb=3), assignment_interval_ms=1000)
        mine = pairs(box.beat("a", subscribed_topic_names=["ta", "tb"]))
        box.advance(1000)
        box.beat("b", subscribed_topic_names=["ta", "tb"])
        kept = pairs(box.beat("a", 2, topic_partitions=owned(mine)))
        (topic_id, _), *_ = kept
        other = "tb" if box.topics.by_name["ta"].topic_id == topic_id else "ta"
        less = pairs(box.beat("a", 2, subscribed_topic_names=[other], topic_partitions=owned(mine)))
        assert less < kept and topic_id not in {each for each, _ in less}
        assert box.group.current_of("a").pending_revocation == mine - less

    def test_an_empty_group_or_a_clock_set_back_defers_no_assignment(self) -> None:
        box = Box(assignment_interval_ms=1000)
        box.beat("a")
        box.beat("a", -1)
        assert len(pairs(box.beat("b"))) == 6
        box.clock_ms -= 500
        box.beat("c")
        assert box.group.assignment_epoch.value == box.group.group_epoch.value


class TestCommits:
    def test_a_commit_of_an_older_epoch_counts_for_owned_partitions(self) -> None:
        """KIP-1251: a consumer commits in the epoch that it knows of, and a new one may be on its way to it."""
        box = Box()
        mine = pairs(box.beat("a"))
        box.beat("b")
        kept = pairs(box.beat("a", 2, topic_partitions=owned(mine)))

        def commit(member_id: str, epoch: int, partitions: Iterable[int]) -> ErrorCode:
            asked = [OffsetCommitRequestPartition(partition_index=each, committed_offset=5) for each in partitions]
            topic = OffsetCommitRequestTopic(name="ta", topic_id=box.topics.by_name["ta"].topic_id, partitions=asked)
            request = OffsetCommitRequest(
                group_id="g", member_id=member_id, generation_id_or_member_epoch=epoch, topics=[topic]
            )
            try:
                box.apply(box.machine.commits.commit(request, 9, box.now))
            except ApiError as error:
                return error.code
            return ErrorCode.NONE

        def numbers(partitions: Partitions) -> list[int]:
            return sorted(each for _, each in partitions)

        box.beat("a", 2, topic_partitions=owned(kept))
        assert box.group.current_of("a").member_epoch == 3
        got = pairs(box.beat("b", 3))
        box.beat("b", -1)
        for _ in range(2):
            box.restart()
            assert commit("a", 2, numbers(kept)) is commit("a", 3, numbers(kept)) is ErrorCode.NONE
            assert commit("a", 1, numbers(kept)) is ErrorCode.STALE_MEMBER_EPOCH, "not before it had them"
            assert commit("a", 9, numbers(kept)) is ErrorCode.STALE_MEMBER_EPOCH
            # The other member had these meanwhile.
            assert commit("a", 2, numbers(got)) is ErrorCode.STALE_MEMBER_EPOCH
            assert commit("a", 2, numbers(mine)) is ErrorCode.STALE_MEMBER_EPOCH, "one that is not refuses all"
            box.beat("a", box.group.current_of("a").member_epoch, topic_partitions=owned(kept))
        assert box.group.current_of("a").assigned == mine, "they are its own again, and not since then"

    def test_transactional_commits_need_a_valid_member_or_none(self) -> None:
        """KIP-447: a producer that names a member commits for it alone. Those of older clients name none."""
        box = Box()
        box.beat("a")
        box.beat("b")
        producers = ProducerState()
        verified = producers.begin_verification(7, 0, supports_epoch_bump=True)

        def commit(member_id: str, epoch: int, instance_id: str | None = None) -> str:
            partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
            topic_id = box.topics.by_name["ta"].topic_id
            request = TxnOffsetCommitRequest(
                transactional_id="x",
                group_id="g",
                producer_id=7,
                producer_epoch=0,
                member_id=member_id,
                generation_id_or_member_epoch=epoch,
                group_instance_id=instance_id,
                topics=[TxnOffsetCommitRequestTopic(name="ta", topic_id=topic_id, partitions=[partition])],
            )
            try:
                box.machine.commits.commit_in_transaction(request, producers, verified, box.now)
            except ApiError as error:
                return error.code.name
            return "NONE"

        assert commit("a", 2) == commit("", -1) == "NONE"
        assert commit("b", 2) == commit("a", 1) == commit("a", 3) == "ILLEGAL_GENERATION", "and not STALE_MEMBER_EPOCH"
        assert commit("c", 2) == commit("", -1, "i") == "UNKNOWN_MEMBER_ID"
        box.beat("a", -1)
        assert commit("a", 2) == "UNKNOWN_MEMBER_ID", "it is gone, and another may have its partitions"
