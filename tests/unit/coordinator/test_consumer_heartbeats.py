"""The consumer protocol over the real machine: valid requests, one owner per partition, and the same after replay."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.group import Moment
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.consumer.heartbeats import HeartbeatCaller
from odradek.coordinator.group.consumer.regex import MATCHED_AFTER_MS
from odradek.coordinator.group.consumer.state import ConsumerGroupState, Partitions
from odradek.coordinator.group.records import OffsetRecord
from odradek.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from tests.support.models.consumer_shard import Box, owned, pairs, refused, view


class TestRequests:
    @pytest.mark.parametrize(
        "fields",
        [
            {"instance_id": ""},
            {"rack_id": " "},
            {"rebalance_timeout_ms": -1},
            {"topic_partitions": None},
            {"topic_partitions": [TopicPartitions(topic_id=UUID(int=1), partitions=[0])]},
            {"subscribed_topic_names": None},
            {"epoch": -3},
            {"epoch": -2},
        ],
    )
    def test_invalid_heartbeats_are_refused(self, fields: dict[str, Any]) -> None:
        refused(ErrorCode.INVALID_REQUEST, Box(), "a", **fields)

    def test_version_1_needs_a_member_id_and_version_0_makes_one(self) -> None:
        box = Box()
        refused(ErrorCode.INVALID_REQUEST, box, "")
        assert box.beat("", version=0).member_id == "made"

    def test_unknown_groups_members_and_assignors(self) -> None:
        box = Box()
        refused(ErrorCode.GROUP_ID_NOT_FOUND, box, "a", epoch=1)
        refused(ErrorCode.GROUP_ID_NOT_FOUND, box, "a", epoch=-1)
        refused(ErrorCode.UNSUPPORTED_ASSIGNOR, box, "a", server_assignor="mine")
        box.beat("a")
        refused(ErrorCode.UNKNOWN_MEMBER_ID, box, "b", epoch=1)
        refused(ErrorCode.UNKNOWN_MEMBER_ID, box, "b", epoch=-1)

    def test_a_full_group_takes_no_more(self) -> None:
        box = Box(max_size=1)
        box.beat("a")
        refused(ErrorCode.GROUP_MAX_SIZE_REACHED, box, "b")

    def test_epochs_that_are_not_the_members_own_are_fenced(self) -> None:
        box = Box()
        epoch = box.beat("a").member_epoch
        refused(ErrorCode.FENCED_MEMBER_EPOCH, box, "a", epoch=epoch + 1)
        box.beat("b")
        box.beat("a", epoch, topic_partitions=owned(box.group.current_of("a").assigned))
        kept = box.group.current_of("a").assigned
        second = box.beat("a", epoch, topic_partitions=owned(kept)).member_epoch
        assert second > epoch
        # The answer was lost: one step behind is taken where it owns nothing that it should not.
        assert box.beat("a", epoch, topic_partitions=owned(kept)).member_epoch == second
        refused(ErrorCode.FENCED_MEMBER_EPOCH, box, "a", epoch=epoch)
        refused(ErrorCode.FENCED_MEMBER_EPOCH, box, "a", epoch=second + 1, topic_partitions=owned(kept))

    def test_a_dynamic_member_joins_again_under_its_id_whatever_its_epoch(self) -> None:
        """KAFKA-19233: a fenced member, which comes back with epoch 0, was fenced until its session had run out."""
        box = Box()
        first = Client(box, "a")
        second = Client(box, "b")
        for _ in range(4):
            first.settle()
            second.settle()
        current = box.group.current_of("a")
        assert current.previous_member_epoch > 0, "no join whose answer was lost"
        refused(ErrorCode.FENCED_MEMBER_EPOCH, box, "a", epoch=current.member_epoch + 1)
        answer = box.beat("a")
        assert (answer.member_epoch, pairs(answer)) == (current.member_epoch, current.assigned)
        assert box.group.current_of("b").assigned == second.owned

    def test_a_member_that_joins_again_has_given_up_what_it_was_to_give_up(self) -> None:
        """KAFKA-19233, in the middle of a rebalance."""
        box = Box()
        mine = pairs(box.beat("a"))
        box.beat("b")
        box.beat("a", 2, topic_partitions=owned(mine))
        refused(ErrorCode.FENCED_MEMBER_EPOCH, box, "a", epoch=7)
        kept = pairs(box.beat("a"))
        assert len(kept) == 3 and pairs(box.beat("b", 3)) == mine - kept

    def test_a_bad_regular_expression(self) -> None:
        box = Box()
        refused(ErrorCode.INVALID_REGULAR_EXPRESSION, box, "a", subscribed_topic_regex="(")
        assert not box.log


class TestAssignment:
    def test_the_first_member_gets_all_and_is_sent_it_until_it_says_so(self) -> None:
        box = Box()
        answer = box.beat("a")
        assert (answer.member_epoch, len(pairs(answer)), answer.heartbeat_interval_ms) == (2, 6, 5000)
        assert pairs(box.beat("a", 2)) == pairs(answer)
        assert box.beat("a", 2, topic_partitions=owned(pairs(answer))).assignment is None
        assert box.beat("a", 2).assignment is None
        assert box.group.state is ConsumerGroupState.STABLE

    def test_a_partition_changes_hands_only_after_it_was_given_up(self) -> None:
        box = Box()
        mine = pairs(box.beat("a"))
        assert pairs(box.beat("b")) == frozenset(), "all of it is still a's"
        assert box.beat("b", 3).assignment is None
        kept = pairs(box.beat("a", 2, topic_partitions=owned(mine)))
        assert len(kept) == 3
        assert box.group.state is ConsumerGroupState.RECONCILING
        assert box.beat("b", 3).assignment is None, "a has not confirmed"
        assert box.beat("a", 2).member_epoch == 2, "a heartbeat that says nothing confirms nothing"
        assert box.beat("a", 2, topic_partitions=owned(kept)).member_epoch == 3
        assert pairs(box.beat("b", 3)) == mine - kept
        assert box.group.state is ConsumerGroupState.STABLE

    def test_the_third_member_does_not_stop_the_others(self) -> None:
        box = Box(view(ta=200))
        members = {f"m{index:02}": Client(box, f"m{index:02}") for index in range(50)}
        for client in members.values():
            client.settle()
        for _ in range(6):
            for client in members.values():
                client.settle()
        assert {len(client.owned) for client in members.values()} == {4}
        box.topics = view(2, ta=201)
        before = {name: client.owned for name, client in members.items()}
        for _ in range(3):
            for client in members.values():
                client.settle()
        assert sum(len(before[name] - client.owned) for name, client in members.items()) == 0
        assert sum(len(client.owned - before[name]) for name, client in members.items()) == 1

    def test_a_topic_that_grows_or_comes_or_goes_makes_a_new_epoch(self) -> None:
        box = Box()
        box.beat("a", subscribed_topic_names=["ta", "tb"])
        box.topics = view(2, ta=8)
        answer = box.beat("a", 2)
        assert (answer.member_epoch, len(pairs(answer))) == (3, 8)
        box.topics = view(3, ta=8, tb=2)
        assert len(pairs(box.beat("a", 3))) == 10
        box.topics = view(4, ta=8, tb=2, tc=9)
        assert box.beat("a", 4).member_epoch == 4, "no member subscribes to that one"

    def test_a_regular_expression_follows_the_topics(self) -> None:
        box = Box(view(ta=2, tb=3, xc=4))
        epoch = box.beat("a", subscribed_topic_names=None, subscribed_topic_regex="t.*").member_epoch
        answer = box.beat("a", epoch)
        assert len(pairs(answer)) == 5
        box.topics = view(2, ta=2, tb=3, xc=4, td=1)
        answer = box.beat("a", answer.member_epoch)
        assert len(pairs(answer)) == 6
        epoch = box.beat("a", answer.member_epoch, subscribed_topic_regex="x.", topic_partitions=[]).member_epoch
        box.beat("a", epoch)
        assert list(box.group.regexes) == ["x."], "an unused expression is forgotten"

    def test_an_expression_is_kept_while_another_member_has_it(self) -> None:
        box = Box(view(ta=2, xb=3))
        epoch = box.beat("a", subscribed_topic_names=None, subscribed_topic_regex="t.*").member_epoch
        epoch = box.beat("a", epoch).member_epoch
        box.beat("b", subscribed_topic_names=None, subscribed_topic_regex="t.*")
        epoch = box.beat("a", epoch, subscribed_topic_regex="x.*", topic_partitions=[]).member_epoch
        box.beat("a", epoch)
        assert sorted(box.group.regexes) == ["t.*", "x.*"]
        box.restart()
        assert sorted(box.group.regexes) == ["t.*", "x.*"]

    def test_named_topics_come_before_matched_ones(self) -> None:
        """Kafka matches a new expression after its answer, and clients count on two assignments."""
        box = Box(view(ta=2, tb=3, xc=4))
        named = box.beat("a", subscribed_topic_names=["xc"], subscribed_topic_regex="t.*")
        assert (len(pairs(named)), named.heartbeat_interval_ms) == (4, MATCHED_AFTER_MS)
        matched = box.beat("a", named.member_epoch, topic_partitions=owned(pairs(named)))
        assert (len(pairs(matched)), matched.heartbeat_interval_ms) == (9, 5000)
        both = box.beat("b", subscribed_topic_names=[], subscribed_topic_regex="t.*")
        assert both.heartbeat_interval_ms == 5000, "it is not new to the group"
        assert len(box.group.target["b"]) >= 2

    def test_a_new_expression_takes_nothing_before_it_is_matched(self) -> None:
        box = Box(view(ta=2, tb=3))
        epoch = box.beat("a", subscribed_topic_names=None, subscribed_topic_regex="t.*").member_epoch
        held = box.beat("a", epoch)
        changed = box.beat("a", held.member_epoch, subscribed_topic_regex="tb", topic_partitions=owned(pairs(held)))
        assert (changed.member_epoch, changed.heartbeat_interval_ms) == (held.member_epoch, MATCHED_AFTER_MS)
        assert box.group.current_of("a").assigned == pairs(held)
        kept = pairs(box.beat("a", held.member_epoch, topic_partitions=owned(pairs(held))))
        assert len(kept) == 3
        epoch = box.beat("a", held.member_epoch, topic_partitions=owned(kept)).member_epoch
        box.beat("a", epoch, subscribed_topic_regex="none", topic_partitions=owned(kept))
        assert pairs(box.beat("a", epoch)) == frozenset(), "one that matches nothing counts as well"

    def test_a_new_coordinator_matches_an_expression(self) -> None:
        box = Box(view(ta=2))
        epoch = box.beat("a", subscribed_topic_names=None, subscribed_topic_regex="t.*").member_epoch
        box.restart()
        assert len(pairs(box.beat("a", epoch))) == 2

    @pytest.mark.parametrize("subscribed", [{}, {"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}])
    def test_a_change_of_topics_whose_record_is_refused_is_found_again(self, subscribed: dict[str, Any]) -> None:
        box = Box()
        box.beat("a", **subscribed)
        box.topics = view(2, ta=8, tb=1) if subscribed else view(2, ta=8)
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=2)
        caller = HeartbeatCaller("client", "/host", 1, "made")
        assert box.machine.consumer_heartbeat(request, caller, box.now).records, "which no log takes"
        assert len(pairs(box.beat("a", 2))) == (9 if subscribed else 8)

    @pytest.mark.parametrize("subscribed", [{}, {"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}])
    def test_a_change_of_topics_that_is_taken_back_is_found_again(self, subscribed: dict[str, Any]) -> None:
        """The next heartbeat sees what the one before it wrote, and finds nothing more to do."""
        box = Box()
        box.beat("a", **subscribed)
        box.timeline.mark(len(box.log))
        box.topics = view(2, ta=8, tb=1) if subscribed else view(2, ta=8)
        before = list(box.log)
        assert box.beat("a", 2).member_epoch == 3
        box.beat("a", 3)
        box.timeline.revert_to(len(before))
        box.log = before
        assert len(pairs(box.beat("a", 2))) == (9 if subscribed else 8)

    def test_the_assignor_that_most_ask_for(self) -> None:
        box = Box(view(ta=4))
        box.beat("a", server_assignor="range")
        assert box.apply(box.machine.describe_consumers(["g"]))[0].assignor_name == "range"


class TestLeaving:
    def test_a_leaving_member_frees_its_partitions(self) -> None:
        box = Box()
        box.beat("a")
        box.beat("b")
        assert box.beat("a", -1).member_epoch == -1
        assert len(pairs(box.beat("b", 3))) == 6
        box.beat("b", -1)
        assert box.group.state is ConsumerGroupState.EMPTY

    def test_a_silent_member_is_removed(self) -> None:
        box = Box(max_session_timeout_ms=100_000, min_heartbeat_interval_ms=500)
        box.beat("a")
        box.beat("b")
        box.advance(30_000)
        box.beat("b", 3)
        box.advance(20_000)
        assert list(box.group.members) == ["b"]
        box.group_configs["g"] = {"consumer.session.timeout.ms": "100000", "consumer.heartbeat.interval.ms": "700"}
        assert box.beat("b", 3).heartbeat_interval_ms == 700
        box.advance(99_000)
        assert list(box.group.members) == ["b"]

    def test_a_member_that_revokes_too_slowly_is_removed(self) -> None:
        box = Box()
        mine = pairs(box.beat("a"))
        box.beat("b")
        box.beat("a", 2, topic_partitions=owned(mine))
        box.advance(9_000)
        box.beat("a", 2, topic_partitions=owned(mine))
        box.advance(2_000)
        assert list(box.group.members) == ["b"]
        refused(ErrorCode.UNKNOWN_MEMBER_ID, box, "a", epoch=2)

    def test_a_static_member_comes_back_to_what_it_had(self) -> None:
        box = Box()
        box.beat("a", instance_id="i")
        box.beat("b")
        mine = pairs(box.beat("a", 2, topic_partitions=owned(box.group.current_of("a").assigned), instance_id="i"))
        box.beat("a", 2, topic_partitions=owned(mine), instance_id="i")
        refused(ErrorCode.UNRELEASED_INSTANCE_ID, box, "a2", instance_id="i")
        epoch = box.group.group_epoch.value
        assert box.beat("a", -2, instance_id="i").member_epoch == -2
        assert pairs(box.beat("a2", instance_id="i")) == mine
        assert box.group.group_epoch.value == epoch, "no rebalance"
        refused(ErrorCode.FENCED_INSTANCE_ID, box, "a", epoch=3, instance_id="i")
        box.restart()
        assert box.group.static_members == {"i": "a2"}

    def test_a_heartbeat_without_an_expression_has_the_members(self) -> None:
        box = Box(view(ta=2, xb=3))
        expression: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}
        box.beat("a", instance_id="i", **expression)
        box.beat("b")

        def regex_of(member_id: str, **fields: Any) -> str | None:
            request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=1, **fields)
            return box.machine.heartbeats.regex_of(request)

        assert regex_of("a") == regex_of("a", instance_id="i") == regex_of("c", instance_id="i") == "t.*"
        assert regex_of("b") is regex_of("c") is regex_of("c", instance_id="j") is None
        assert regex_of("a", subscribed_topic_regex="x.*") == "x.*"
        assert regex_of("a", subscribed_topic_regex="") is None, "it takes back its subscription"
        unknown = ConsumerGroupHeartbeatRequest(group_id="h", member_id="a", member_epoch=1)
        assert box.machine.heartbeats.regex_of(unknown) is None

    @pytest.mark.parametrize(
        ("fields", "is_given"),
        [
            ({"subscribed_topic_names": ["ta"], "rebalance_timeout_ms": 10_000, "topic_partitions": []}, True),
            ({"subscribed_topic_names": [], "rebalance_timeout_ms": 1, "topic_partitions": []}, True),
            ({"subscribed_topic_regex": "t.*", "rebalance_timeout_ms": 1, "topic_partitions": []}, True),
            ({"subscribed_topic_names": ["ta"], "topic_partitions": []}, False),
            ({"subscribed_topic_names": ["ta"], "rebalance_timeout_ms": 10_000}, False),
            ({"rebalance_timeout_ms": 10_000, "topic_partitions": []}, False),
            ({}, False),
        ],
    )
    def test_a_member_that_says_everything_is_answered_everything(self, fields: dict[str, Any], is_given: bool) -> None:
        box = Box()
        joined = box.beat("a")
        box.beat("a", joined.member_epoch, topic_partitions=owned(pairs(joined)))
        before = box.group.resend_counts.get("a")
        answer = box.beat("a", joined.member_epoch, **fields)
        assert before == 0 and (answer.assignment is not None) == is_given

    def test_a_member_that_changes_its_instance_leaves_none_behind(self) -> None:
        box = Box()
        box.beat("a", instance_id="i")
        box.beat("a", instance_id="j")
        box.restart()
        assert box.group.static_members == {"j": "a"}
        box.beat("a", -1, instance_id="j")
        assert len(pairs(box.beat("b", instance_id="i"))) == 6
        assert box.group.static_members == {"i": "b"}

    def test_a_static_member_that_did_not_leave_joins_no_second_time(self) -> None:
        """It may not join even under its own member id, as in Kafka. After a temporary leave it may."""
        box = Box()
        box.beat("a", instance_id="i")
        refused(ErrorCode.UNRELEASED_INSTANCE_ID, box, "a", instance_id="i")
        refused(ErrorCode.UNRELEASED_INSTANCE_ID, box, "b", instance_id="i")
        box.beat("a", -2, instance_id="i")
        assert len(pairs(box.beat("a", instance_id="i"))) == 6
        box.restart()
        assert list(box.group.members) == ["a"]


class TestWithOthers:
    def test_commits_and_fetches_need_the_members_epoch(self) -> None:
        box = Box()
        box.beat("a")

        def commit(member_id: str, epoch: int, version: int = 9) -> Any:
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
            request = OffsetCommitRequest(
                group_id="g",
                member_id=member_id,
                generation_id_or_member_epoch=epoch,
                topics=[OffsetCommitRequestTopic(name="ta", partitions=[partition])],
            )
            return box.apply(box.machine.commits.commit(request, version, box.now))

        assert commit("a", 2).topics[0].partitions[0].error_code == 0
        for member_id, epoch, version, code in [
            ("a", 0, 9, ErrorCode.STALE_MEMBER_EPOCH),
            ("a", 0, 8, ErrorCode.UNSUPPORTED_VERSION),
            ("b", 1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
            ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ]:
            with pytest.raises(ApiError) as raised:
                commit(member_id, epoch, version)
            assert raised.value.code is code
        with pytest.raises(ApiError) as raised:
            box.machine.commits.fetch(OffsetFetchRequestGroup(group_id="g", member_id="a", member_epoch=4), False)
        assert raised.value.code is ErrorCode.STALE_MEMBER_EPOCH
        box.beat("a", -1)
        assert commit("", -1).topics[0].partitions[0].error_code == 0

    def test_a_consumer_group_is_seen_listed_and_deleted(self) -> None:
        box = Box()
        box.beat("a")
        described = box.apply(box.machine.describe_consumers(["g", "none"]))
        assert [each.error_code for each in described] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
        assert described[0].members[0].assignment.topic_partitions[0].topic_name == "ta"
        listed = box.apply(box.machine.list_groups(["STABLE"], ["Consumer"]))
        assert [(each.group_id, each.group_type, each.group_state) for each in listed] == [("g", "consumer", "Stable")]
        assert box.apply(box.machine.list_groups([], ["classic"])) == []
        assert box.apply(box.machine.commits.delete_groups(["g"]))[0].error_code == ErrorCode.NON_EMPTY_GROUP
        box.beat("a", -1)
        assert box.apply(box.machine.commits.delete_groups(["g"]))[0].error_code == 0
        assert box.machine.consumers.find("g") is None
        box.restart()
        assert box.machine.consumers.find("g") is None

    def test_an_empty_group_of_the_other_protocol_makes_room(self) -> None:
        box = Box()
        box.beat("a")
        assert not box.apply(box.machine.make_room_for_classic("g"))
        box.beat("a", -1)
        assert box.apply(box.machine.make_room_for_classic("g"))
        box.machine.groups.get_or_create("g")
        box.beat("a")
        assert box.group.members

    def test_offsets_that_are_not_consumed_expire_by_their_age(self) -> None:
        box = Box()
        epoch = box.beat("a", subscribed_topic_names=["ta"]).member_epoch
        kept_ms = GroupConfig().offsets_retention_minutes * 60_000
        for name in ("ta", "old"):
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
            request = OffsetCommitRequest(
                group_id="g",
                member_id="a",
                generation_id_or_member_epoch=epoch,
                topics=[OffsetCommitRequestTopic(name=name, partitions=[partition])],
            )
            box.apply(box.machine.commits.commit(request, 9, box.now))
        at_ms = box.now.wall_ms

        def expired(after_ms: int, *, limit: int = 100) -> list[str]:
            found = box.machine.commits.expire(Moment(at_ms + after_ms, 0), limit).records
            return sorted(each.key.topic for each in found if isinstance(each, OffsetRecord))

        assert [expired(each) for each in (0, kept_ms - 1)] == [[], []]
        assert [expired(each) for each in (kept_ms, 10 * kept_ms)] == [["old"], ["old"]]
        asked = OffsetCommitValue(offset=5, commit_timestamp=at_ms, expire_timestamp=at_ms + 100)
        for name in ("ta", "short"):
            box.machine.replay(OffsetRecord(OffsetCommitKey(group="g", topic=name, partition=0), asked), 99)
        assert [expired(each) for each in (99, 100, kept_ms - 1)] == [[], ["short"], ["short"]]
        assert len(expired(kept_ms)) == 2 and len(expired(kept_ms, limit=1)) == 1

    @pytest.mark.parametrize(
        ("is_left", "is_old", "is_pending", "goes"),
        [
            (True, True, False, True),
            (False, True, False, False),
            (True, False, False, False),
            (True, True, True, False),
        ],
    )
    def test_a_group_goes_with_its_last_offset(self, is_left: bool, is_old: bool, is_pending: bool, goes: bool) -> None:
        """It stays while it has members, or while a transaction may commit another offset."""
        box = Box()
        box.beat("a")
        key = OffsetCommitKey(group="g", topic="other", partition=0)
        value = OffsetCommitValue(offset=5, commit_timestamp=box.now.wall_ms)
        box.machine.replay(OffsetRecord(key, value), 98)
        if is_pending:
            box.machine.replay(OffsetRecord(replace(key, topic="next"), value, producer_id=7), 99)
        if is_left:
            box.beat("a", -1)
        now = Moment(box.now.wall_ms + GroupConfig().offsets_retention_minutes * 60_000 * is_old, 0)
        found = box.machine.commits.expire(now, 100).records
        assert sum(isinstance(each, OffsetRecord) for each in found) == is_old
        assert any(not isinstance(each, OffsetRecord) for each in found) == goes

    def test_an_empty_group_expires(self) -> None:
        box = Box()
        box.beat("a")
        box.beat("a", -1)
        box.advance(601_000)
        assert box.machine.consumers.find("g") is None


class Client:
    """A consumer as the KIP has it: it owns what it was assigned, until it has given it up and said so."""

    def __init__(self, box: Box, member_id: str) -> None:
        self.box = box
        self.member_id = member_id
        self.epoch = 0
        self.owned: Partitions = frozenset()
        self.reported: Partitions = frozenset()
        self.unsure = False  # a response was lost: it sends its whole state, and so gets a whole response

    def settle(self, *, lose_answer: bool = False) -> None:
        """One heartbeat that says what it owns, and the acts that its answer asks for."""
        fields: dict[str, Any] = {"topic_partitions": owned(self.owned)}
        if self.unsure:
            fields |= {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["ta"]}
        self.unsure = lose_answer
        try:
            answer = self.box.beat(self.member_id, self.epoch, **fields)
        except ApiError as error:
            assert error.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID), error
            self.epoch, self.owned = 0, frozenset()
            if lose_answer:
                return
            answer = self.box.beat(self.member_id)
        if lose_answer:
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.reported = pairs(answer)
        self.owned = self.reported


@pytest.mark.parametrize("seed", range(40))
def test_at_most_one_owner_whatever_is_lost(seed: int) -> None:  # noqa: C901 - a case for each loss
    """Members that come, fall silent, return and lose answers, topics that grow, restarts from the log."""
    rng = random.Random(seed)
    box = Box(view(ta=5, tb=3), assignment_interval_ms=rng.choice((0, 0, 300, 2000)))
    clients: dict[str, Client] = {}
    version = 1
    for _ in range(150):
        act = rng.random()
        if act < 0.12 and len(clients) < 6:
            name = f"m{rng.randrange(9)}"
            clients.setdefault(name, Client(box, name))
        elif act < 0.17 and clients:
            gone = clients.pop(rng.choice(sorted(clients)))
            if gone.epoch > 0 and rng.random() < 0.5 and gone.member_id in box.group.members:
                box.beat(gone.member_id, -1)
            elif gone.epoch > 0:
                box.advance(46_000)  # its session is over; so are those of the others, who find out
                for client in clients.values():
                    client.epoch, client.owned, client.reported = 0, frozenset(), frozenset()
        elif act < 0.22:
            version += 1
            box.topics = view(version, ta=5 + version % 3, tb=3)
        elif act < 0.27:
            box.restart()
        elif clients:
            client = clients[rng.choice(sorted(clients))]
            client.settle(lose_answer=rng.random() < 0.2)
            box.advance(rng.randrange(100))
        taken = [pair for client in clients.values() for pair in client.owned]
        assert len(taken) == len(set(taken)), "two clients own one partition"
    for ghost in [each for each in box.group.members if each not in clients]:
        box.beat(ghost, -1)  # it left before it knew that it had joined
    for _ in range(12):
        box.advance(500)
        for client in clients.values():
            client.settle()
    if clients:
        assert box.group.state is ConsumerGroupState.STABLE
        assert {pair[1] for client in clients.values() for pair in client.owned} == set(range(5 + version % 3))


def test_the_log_says_all() -> None:
    box = Box(view(ta=4, tb=2))
    first, second = Client(box, "a"), Client(box, "b")
    for _ in range(4):
        first.settle()
        second.settle()
    before = box.apply(box.machine.describe_consumers(["g"]))
    box.restart()
    assert box.apply(box.machine.describe_consumers(["g"])) == before
    assert first.box.beat("a", first.epoch).member_epoch == first.epoch, "its epoch is known"


@pytest.mark.parametrize(("asked", "given"), [(None, 45_000), (30_000, 45_000), (50_000, 50_000), (90_000, 60_000)])
def test_a_groups_own_settings_stay_within_the_brokers_bounds(asked: int | None, given: int) -> None:
    """They were checked when they were set, by a broker that may have had other bounds."""
    box = Box()
    if asked is not None:
        box.group_configs["g"] = {
            "consumer.session.timeout.ms": str(asked),
            "consumer.heartbeat.interval.ms": str(asked // 3),
        }
    interval_ms = box.beat("a").heartbeat_interval_ms
    assert interval_ms == {None: 5000, 30_000: 10_000, 50_000: 15_000, 90_000: 15_000}[asked]
    box.advance(given - 1)
    assert list(box.group.members) == ["a"]
    box.advance(1)
    assert not box.group.members
