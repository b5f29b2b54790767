"""Static members (KIP-345): they come back to their place without a rebalance, and fence its present holder."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.group.timers import TimerKey


def stable_static(shard: Any, *instances: str, version: int = 9) -> list[str]:
    """A stable group of static members, each assigned its instance id; returns the member ids."""
    tickets = [shard.begin_join("", instance=instance, version=version) for instance in instances]
    shard.advance(6_000)
    members = [shard.answers[ticket].member_id for ticket in tickets]
    for member, instance in list(zip(members, instances, strict=True))[1:]:
        shard.begin_sync(member, 1, instance=instance)
    shard.sync(members[0], 1, dict(zip(members, [i.encode() for i in instances], strict=True)), instance=instances[0])
    assert shard.group().state is GroupState.STABLE
    return members


def test_a_static_member_needs_no_second_request_for_its_id(shard: Any) -> None:
    members = stable_static(shard, "one", "two")
    assert members == ["one-id1", "two-id2"]


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_member_that_bounces_takes_its_place_without_a_rebalance(shard: Any, version: int) -> None:
    leader, follower = stable_static(shard, "one", "two")
    written = len(shard.log)
    back = shard.join("", instance="two", version=version)
    assert (back.error_code, back.generation_id) == (ErrorCode.NONE, 1)
    assert back.member_id not in (leader, follower)
    assert not back.skip_assignment, "it does not lead, so it is given its assignment as ever"
    assert shard.machine.timers.get(TimerKey("session", "g", follower)) is None
    assert shard.group().state is GroupState.STABLE
    assert shard.heartbeat(leader, 1, instance="one") == ErrorCode.NONE
    assert shard.sync(back.member_id, 1, instance="two").assignment == b"two"
    assert len(shard.log) == written + 1, "the new id is stored"
    assert back.member_id in shard.restarted().group().members


def test_the_leader_that_bounces_is_reported_to_skip_the_assignment(shard: Any) -> None:
    leader, follower = stable_static(shard, "one", "two")
    back = shard.join("", instance="one", version=9)
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert {each.member_id for each in back.members} == {back.member_id, follower}
    again = shard.join("", instance="one", version=8)
    assert not again.skip_assignment
    assert again.leader == back.member_id, "to an older client another member leads, so it does not assign"
    assert again.members == []
    assert shard.group().leader_id == again.member_id
    assert leader not in shard.group().members


def test_the_old_id_is_fenced_everywhere(shard: Any) -> None:
    _, old = stable_static(shard, "one", "two")
    shard.join("", instance="two")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert shard.heartbeat(old, 1, instance="two") == fenced
    assert shard.heartbeat(old, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.join(old, instance="two").error_code == fenced
    assert shard.commit(1, member_id=old, generation_id=1, instance="two") == fenced
    assert shard.leave((old, "two")).members[0].error_code == fenced
    with pytest.raises(ApiError) as caught:
        shard.begin_sync(old, 1, instance="two")
    assert caught.value.code == fenced


def test_a_parked_join_and_sync_of_the_old_id_are_fenced(shard: Any) -> None:
    waiting = shard.begin_join("", instance="one")
    replacing = shard.begin_join("", instance="one")
    assert shard.answers[waiting].error_code == ErrorCode.FENCED_INSTANCE_ID
    shard.advance(6_000)
    first = shard.answers[replacing].member_id
    other = shard.begin_join("", instance="two")
    shard.begin_join(first, instance="one")
    follower = shard.answers[other].member_id
    parked = shard.begin_sync(follower, 2, instance="two")
    shard.begin_join("", instance="two")
    assert shard.answers[parked].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert shard.group().state is GroupState.PREPARING_REBALANCE, "the leader may hold the old id in its assignment"


def test_a_bounce_that_changes_the_chosen_protocol_begins_a_rebalance(shard: Any) -> None:
    _leader, _ = stable_static(shard, "one", "two")
    ticket = shard.begin_join("", instance="two", protocols=[("range", b"meta")], version=9)
    assert ticket in shard.answers
    refused = shard.join("", instance="two", protocols=[("sticky", b"meta")])
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_bounce_that_makes_another_protocol_win_begins_a_rebalance(shard: Any) -> None:
    both = [("range", b""), ("sticky", b"")]
    tickets = [shard.begin_join("", instance=name, protocols=both) for name in ("one", "two")]
    shard.advance(6_000)
    members = [shard.answers[ticket].member_id for ticket in tickets]
    shard.sync(members[0], 1, {}, instance="one")
    ticket = shard.begin_join("", instance="two", protocols=[("sticky", b"")])
    assert ticket not in shard.answers
    assert shard.group().state is GroupState.PREPARING_REBALANCE


def test_a_failed_write_of_the_new_id_brings_the_old_one_back(shard: Any) -> None:
    _, old = stable_static(shard, "one", "two")
    shard.fail_writes = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = shard.join("", instance="two", protocols=[("range", b"changed")])
    shard.fail_writes = None
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shard.heartbeat(old, 1, instance="two") == ErrorCode.NONE
    assert shard.group().members[old].protocols == (("range", b"meta"),)
    assert shard.group().least_metadata_bytes == 2 * len(b"meta")
    assert shard.restarted().heartbeat(old, 1, instance="two") == ErrorCode.NONE


def test_a_new_id_that_was_not_written_has_no_session(shard: Any) -> None:
    stable_static(shard, "one", "two")
    shard.fail_writes = ErrorCode.COORDINATOR_NOT_AVAILABLE
    shard.join("", instance="two", session_ms=6_000)
    assert shard.machine.next_deadline_ms() == shard.clock_ms + 10_000, "the sessions of the two members"


def test_a_rebalance_that_begins_during_the_write_answers_the_bounce(shard: Any) -> None:
    leader, _ = stable_static(shard, "one", "two")
    shard.hold_writes = True
    ticket = shard.begin_join("", instance="two")
    assert ticket not in shard.answers
    rejoined = shard.begin_join(leader, instance="one")
    assert shard.answers[ticket].generation_id == shard.answers[rejoined].generation_id == 2
    shard.release_writes()


def test_a_bounce_that_a_rebalance_answered_stays_though_its_write_fails(shard: Any) -> None:
    leader, old = stable_static(shard, "one", "two")
    shard.hold_writes = True
    ticket = shard.begin_join("", instance="two")
    shard.begin_join(leader, instance="one")
    new = shard.answers[ticket].member_id
    shard.release_writes(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert new in shard.group().members and old not in shard.group().members


def test_a_silent_static_member_stays_until_its_session_ends(shard: Any) -> None:
    leader, silent = stable_static(shard, "one", "two")
    ticket = shard.begin_join(leader, instance="one", rebalance_ms=5000)
    shard.group().members[silent].rebalance_timeout_ms = 5000
    shard.advance(60_000)
    assert shard.answers[ticket].error_code == ErrorCode.NONE
    assert silent not in shard.group().members, "its session ended"


def test_static_members_that_all_stay_silent_are_waited_for(shard: Any) -> None:
    tickets = [shard.begin_join("", instance=name, session_ms=1_000_000, rebalance_ms=5000) for name in ("one", "two")]
    shard.advance(5000)
    members = [shard.answers[ticket].member_id for ticket in tickets]
    shard.sync(members[0], 1, {}, instance="one")
    shard.sync(members[1], 1, instance="two")
    dynamic, _ = shard.enter(rebalance_ms=5000)
    assert shard.group().state is GroupState.PREPARING_REBALANCE
    shard.leave((dynamic, None))
    shard.advance(6_000)
    assert shard.group().state is GroupState.PREPARING_REBALANCE
    assert list(shard.group().members) == members
    ticket = shard.begin_join(members[1], instance="two", session_ms=1_000_000, rebalance_ms=5000)
    shard.advance(5000)
    assert shard.answers[ticket].leader == members[1], "who joined leads"
    shard.sync(members[1], shard.group().generation_id, {}, instance="two")
    assert shard.restarted().group().leader_id == members[1]
    assert list(shard.group().members) == members


def test_an_administrator_removes_a_static_member_by_its_instance(shard: Any) -> None:
    leader, follower = stable_static(shard, "one", "two")
    answer = shard.leave(("", "two")).members[0]
    assert (answer.error_code, answer.member_id, answer.group_instance_id) == (ErrorCode.NONE, "", "two")
    assert follower not in shard.group().members
    assert shard.heartbeat(leader, 1, instance="one") == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_back_with_its_id_is_no_news(shard: Any) -> None:
    _, follower = stable_static(shard, "one", "two")
    answer = shard.join(follower, instance="two")
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
    assert shard.group().state is GroupState.STABLE


def test_a_static_member_that_bounces_while_it_waits_is_no_new_member(shard: Any) -> None:
    (waited_for,), generation_id = shard.stable(1)
    shard.begin_join("", instance="one", session_ms=10_000)
    shard.begin_join("", instance="one", session_ms=10_000)
    for _ in range(3):
        shard.advance(9_000)
        assert shard.heartbeat(waited_for, generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    assert "one" in shard.group().static_members, "a member that waits for us does not time out"


def test_counts_of_protocols_follow_the_members(shard: Any) -> None:
    both, one = (("range", b"four"), ("sticky", b"five5")), (("range", b"meta"),)

    def counted() -> tuple[list[str], int]:
        group = shard.group()
        return sorted(group.candidate_protocols()), group.least_metadata_bytes

    first, second = (shard.enter(protocols=both)[0] for _ in range(2))
    assert counted() == (["range", "sticky"], 8)
    shard.begin_join(second, protocols=one)
    assert counted() == (["range"], 8), "a member that joins again may have other protocols"
    shard.begin_join(first, protocols=(*one, ("sticky", b"x")))
    assert counted() == (["range"], 5)
    shard.leave((second, None))
    assert counted() == (["range", "sticky"], 1), "and one that left counts no more"
