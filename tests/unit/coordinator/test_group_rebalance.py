"""Rebalances of classic groups, on virtual time: which members wait, which answer each gets, and when."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic import state as states
from odradek.coordinator.group.classic.group import ClassicGroup, Moment
from odradek.coordinator.group.classic.state import TRANSITIONS, GroupState
from tests.support.models.transitions import check_every_pair, written_transitions


def refused(shard: Any, *arguments: Any, **settings: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        shard.begin_sync(*arguments, **settings)
    return caught.value.code


def test_every_state_can_end_and_dead_is_final() -> None:
    assert set(TRANSITIONS) == set(GroupState)
    assert TRANSITIONS[GroupState.DEAD] == frozenset()
    assert all(GroupState.DEAD in TRANSITIONS[state] for state in GroupState if state is not GroupState.DEAD)


def test_classic_group_states_change_only_as_the_table_says() -> None:
    def move(before: GroupState, after: GroupState) -> None:
        group = ClassicGroup("g")
        group.state = before
        group.transition_to(after, Moment(5, 5))
        assert (group.previous_state, group.state) == (before, after)

    check_every_pair(TRANSITIONS, move)


def test_the_head_of_the_module_lists_these_transitions() -> None:
    assert states.__doc__ is not None
    written = written_transitions(states.__doc__, {state.value: state for state in GroupState})
    assert written == {state: set(TRANSITIONS[state]) for state in GroupState}


def test_a_new_member_is_given_its_id_and_must_come_back_with_it(shard: Any) -> None:
    answer = shard.join("")
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id == "client-id1"
    assert shard.group().state is GroupState.EMPTY
    ticket = shard.begin_join(answer.member_id)
    assert ticket not in shard.answers
    assert shard.group().state is GroupState.PREPARING_REBALANCE


def test_before_version_4_a_member_joins_with_the_first_request(shard: Any) -> None:
    ticket = shard.begin_join("", version=3)
    shard.advance(3000)
    assert shard.answers[ticket].error_code == ErrorCode.NONE
    assert shard.answers[ticket].member_id == "client-id1"


def test_a_member_id_that_was_never_used_expires(shard: Any) -> None:
    answer = shard.join("", session_ms=6000)
    shard.advance(5999)
    assert answer.member_id in shard.group().pending_joins
    shard.advance(1)
    assert shard.machine.groups.find("g") is None, "nothing of the invented group may be left"
    assert shard.join(answer.member_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_initial_rebalance_delay_ends_with_the_rebalance_timeout(shard: Any) -> None:
    _, first = shard.enter(rebalance_ms=8000)
    shard.advance(2900)
    _, second = shard.enter(rebalance_ms=8000)
    shard.advance(200)
    assert first not in shard.answers, "the second member extends the delay"
    shard.advance(2700)
    _, third = shard.enter(rebalance_ms=8000)
    shard.advance(2000)
    assert third not in shard.answers
    shard.advance(300)
    assert {shard.answers[t].generation_id for t in (first, second, third)} == {1}


def test_without_newcomers_the_first_rebalance_takes_the_initial_delay(shard: Any) -> None:
    _, ticket = shard.enter()
    shard.advance(2999)
    assert ticket not in shard.answers
    shard.advance(1)
    assert shard.answers[ticket].generation_id == 1
    assert shard.answers[ticket].leader == shard.answers[ticket].member_id


def test_only_the_leader_is_reported_the_members(shard: Any) -> None:
    (leader, first), (follower, second) = shard.enter(), shard.enter()
    shard.advance(6000)
    assert [each.member_id for each in shard.answers[first].members] == [leader, follower]
    assert shard.answers[first].members[0].metadata == b"meta"
    assert shard.answers[second].members == []
    assert shard.answers[second].leader == leader


def test_each_member_gets_its_own_assignment_once_the_leader_has_sent_them(shard: Any) -> None:
    members, generation_id = shard.stable(3)
    group = shard.group()
    assert group.state is GroupState.STABLE
    assert {m: group.members[m].assignment for m in members} == {m: m.encode() for m in members}
    assert shard.sync(members[2], generation_id).assignment == members[2].encode()


def test_no_one_gets_an_assignment_before_it_is_stored(shard: Any) -> None:
    (leader, _), (follower, _) = shard.enter(), shard.enter()
    shard.advance(6000)
    shard.hold_writes = True
    tickets = [shard.begin_sync(follower, 1), shard.begin_sync(leader, 1, {follower: b"mine"})]
    assert not set(tickets) & set(shard.answers)
    assert shard.group().state is GroupState.COMPLETING_REBALANCE
    shard.release_writes()
    assert shard.answers[tickets[0]].assignment == b"mine"
    assert shard.answers[tickets[1]].assignment == b"", "a member that the leader left out owns nothing"


def test_a_failed_write_of_the_assignment_makes_everyone_join_again(shard: Any) -> None:
    (leader, _), (follower, _) = shard.enter(), shard.enter()
    shard.advance(6000)
    shard.fail_writes = ErrorCode.COORDINATOR_NOT_AVAILABLE
    tickets = [shard.begin_sync(follower, 1), shard.begin_sync(leader, 1, {follower: b"mine"})]
    assert [shard.answers[t].error_code for t in tickets] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert shard.answers[tickets[0]].assignment == b""
    assert shard.group().state is GroupState.PREPARING_REBALANCE
    assert shard.log == []


def test_a_member_that_joins_while_the_assignment_is_written_wins(shard: Any) -> None:
    leader, _ = shard.enter()
    shard.advance(3000)
    shard.hold_writes = True
    waiting = shard.begin_sync(leader, 1, {leader: b"old"})
    shard.enter()
    assert shard.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    shard.release_writes()
    assert shard.group().state is GroupState.PREPARING_REBALANCE
    assert shard.group().members[leader].assignment == b""


def test_a_new_member_makes_the_others_join_again(shard: Any) -> None:
    members, generation_id = shard.stable(2)
    _newcomer, ticket = shard.enter()
    assert [shard.heartbeat(m, generation_id) for m in members] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    rejoined = [shard.begin_join(m) for m in members]
    assert {shard.answers[t].generation_id for t in [ticket, *rejoined]} == {generation_id + 1}
    assert shard.answers[rejoined[0]].leader == members[0]


def test_a_pending_member_holds_the_rebalance_open(shard: Any) -> None:
    (member,), _ = shard.stable(1)
    shard.begin_join(member, protocols=[("range", b"new")])
    shard.advance(10)
    pending = shard.join("").member_id
    other, _ = shard.enter()
    ticket = shard.begin_join(member)
    assert ticket not in shard.answers, "the member with an id in its hands may still come"
    assert shard.leave((pending, None)).members[0].error_code == ErrorCode.NONE
    assert shard.answers[ticket].error_code == ErrorCode.NONE
    assert other in shard.group().members


def test_an_id_that_was_given_back_has_no_session(shard: Any) -> None:
    pending = shard.join("").member_id
    assert shard.machine.next_deadline_ms() == 10_000
    assert shard.leave((pending, None)).members[0].error_code == ErrorCode.NONE
    assert shard.machine.next_deadline_ms() > 10_000, "expired offsets are looked for some day"
    assert shard.leave((pending, None)).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_rejoin_in_time_are_out(shard: Any) -> None:
    (first, second), generation_id = shard.stable(2, session_ms=30_000, rebalance_ms=20_000)
    ticket = shard.begin_join(first, session_ms=30_000, rebalance_ms=20_000)
    shard.advance(19_999)
    assert shard.heartbeat(second, generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    assert ticket not in shard.answers
    shard.advance(1)
    assert shard.answers[ticket].generation_id == generation_id + 1
    assert list(shard.group().members) == [first]
    assert shard.heartbeat(second, generation_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_timeout_counts(shard: Any) -> None:
    slow, _ = shard.enter(rebalance_ms=50_000, session_ms=100_000)
    quick, _ = shard.enter(rebalance_ms=5_000, session_ms=100_000)
    shard.advance(9000)
    shard.sync(slow, 1, {})
    ticket = shard.begin_join(slow, rebalance_ms=50_000, session_ms=100_000)
    shard.advance(49_999)
    assert ticket not in shard.answers
    shard.advance(1)
    assert shard.answers[ticket].generation_id == 2
    assert quick not in shard.group().members


def test_a_silent_member_is_removed_after_its_session_timeout(shard: Any) -> None:
    (first, second), generation_id = shard.stable(2, session_ms=10_000)
    for _ in range(3):
        shard.advance(4000)
        code = shard.heartbeat(first, generation_id)
    assert code == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(shard.group().members) == [first]
    ticket = shard.begin_join(first)
    assert shard.answers[ticket].generation_id == generation_id + 1
    assert second not in shard.group().members


def test_a_member_that_waits_for_the_rebalance_does_not_time_out(shard: Any) -> None:
    (first, second), generation_id = shard.stable(2, session_ms=10_000)
    ticket = shard.begin_join(first)
    for _ in range(5):
        shard.advance(9000)
        assert shard.heartbeat(second, generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    assert first in shard.group().members
    shard.begin_join(second)
    assert shard.answers[ticket].error_code == ErrorCode.NONE


def test_a_new_member_whose_client_is_gone_is_given_up_after_five_minutes(shard: Any) -> None:
    """KAFKA-7610, KAFKA-9752: a parked JoinGroup does not show that its client is there."""
    shard.stable(1, rebalance_ms=1_000_000, session_ms=1_000_000)
    member, ticket = shard.enter(rebalance_ms=1_000_000)
    shard.advance(299_999)
    assert member in shard.group().members
    shard.advance(1)
    assert shard.answers[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member not in shard.group().members


def test_members_that_never_sync_are_out_after_the_rebalance_timeout(shard: Any) -> None:
    """KAFKA-12890: a group was stuck in CompletingRebalance."""
    (leader, _), (follower, _) = shard.enter(rebalance_ms=20_000), shard.enter(rebalance_ms=20_000)
    shard.advance(6000)
    shard.sync(leader, 1, {leader: b"all"})
    for _ in range(2):
        shard.advance(9900)
        shard.heartbeat(leader, 1), shard.heartbeat(follower, 1)
    assert follower in shard.group().members
    shard.advance(200)
    assert list(shard.group().members) == [leader]
    assert shard.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_does_not_hold_the_group_forever(shard: Any) -> None:
    """KAFKA-12890, where it is the leader."""
    (leader, _), (follower, _) = shard.enter(rebalance_ms=20_000), shard.enter(rebalance_ms=20_000)
    shard.advance(6000)
    waiting = shard.begin_sync(follower, 1)
    for _ in range(3):
        shard.advance(7000)
        shard.heartbeat(leader, 1)
    assert shard.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in shard.group().members
    assert shard.group().leader_id == follower


def test_when_the_last_member_leaves_the_group_is_empty_and_that_is_stored(shard: Any) -> None:
    (member,), generation_id = shard.stable(1)
    assert shard.leave((member, None)).members[0].error_code == ErrorCode.NONE
    assert shard.group().state is GroupState.EMPTY
    assert shard.log[-1].value.generation == generation_id + 1
    assert shard.log[-1].value.members == []
    assert shard.log[-1].value.protocol_type == "consumer"


def test_a_follower_that_rejoins_unchanged_keeps_its_generation(shard: Any) -> None:
    (leader, follower), generation_id = shard.stable(2)
    again = shard.join(follower)
    assert (again.error_code, again.generation_id, again.members) == (ErrorCode.NONE, generation_id, [])
    assert shard.group().state is GroupState.STABLE
    assert shard.begin_join(leader) not in shard.answers, "a leader that rejoins asks for a rebalance"
    assert shard.group().state is GroupState.PREPARING_REBALANCE


def test_changed_metadata_begins_a_rebalance(shard: Any) -> None:
    (_, follower), _ = shard.stable(2)
    ticket = shard.begin_join(follower, protocols=[("range", b"other topics")])
    assert ticket not in shard.answers
    assert shard.group().state is GroupState.PREPARING_REBALANCE


def test_a_retried_join_after_a_lost_answer_repeats_the_answer(shard: Any) -> None:
    (leader, first), (follower, second) = shard.enter(), shard.enter()
    shard.advance(6000)
    assert shard.join(leader) == shard.answers[first]
    assert shard.join(follower) == shard.answers[second]
    assert shard.group().generation_id == 1


def test_a_second_join_of_a_waiting_member_replaces_the_first(shard: Any) -> None:
    member, first = shard.enter()
    second = shard.begin_join(member)
    assert shard.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    shard.advance(10_000)
    assert shard.answers[second].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("choices", "chosen"),
    [
        ([["range", "sticky"], ["range", "sticky"]], "range"),
        ([["sticky", "range"], ["range", "sticky"], ["range", "sticky"]], "range"),
        ([["range", "sticky"], ["sticky"]], "sticky"),
        ([["a", "b", "c"], ["b", "c"], ["c", "b"]], "b"),
    ],
)
def test_members_vote_among_the_protocols_that_all_support(shard: Any, choices: list[list[str]], chosen: str) -> None:
    tickets = [shard.enter(protocols=[(name, name.encode()) for name in names])[1] for names in choices]
    shard.advance(30_000)
    answers = [shard.answers[ticket] for ticket in tickets]
    assert {answer.protocol_name for answer in answers} == {chosen}
    assert {each.metadata for each in answers[0].members} == {chosen.encode()}


@pytest.mark.parametrize(
    "settings",
    [
        {"protocol_type": "connect"},
        {"protocols": [("unheard-of", b"")]},
        {"protocols": []},
        {"protocol_type": ""},
    ],
)
def test_a_member_without_a_common_protocol_is_refused(shard: Any, settings: dict[str, Any]) -> None:
    members, generation_id = shard.stable(2)
    for member_id in ("", members[1]):
        assert shard.join(member_id, **settings).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shard.heartbeat(members[0], generation_id) == ErrorCode.NONE


@pytest.mark.parametrize("settings", [{"protocol_type": ""}, {"protocols": []}])
def test_a_first_member_must_name_its_protocols(shard: Any, settings: dict[str, Any]) -> None:
    assert shard.join("", **settings).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shard.machine.groups.find("g") is None


def test_sync_is_refused_with_the_code_of_each_state(shard: Any) -> None:
    assert refused(shard, "unknown", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    members, generation_id = shard.stable(2)
    assert refused(shard, "unknown", generation_id) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(shard, members[0], generation_id - 1) == ErrorCode.ILLEGAL_GENERATION
    assert refused(shard, members[0], generation_id, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID
    wrong = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert refused(shard, members[0], generation_id, protocol_name="sticky") == wrong
    assert refused(shard, members[0], generation_id, protocol_type="connect") == wrong
    assert shard.sync(members[0], generation_id, protocol_name="range", protocol_type="consumer").error_code == 0
    shard.enter()
    assert refused(shard, members[0], generation_id) == ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeat_is_answered_in_every_state(shard: Any) -> None:
    assert shard.heartbeat("unknown", 0) == ErrorCode.UNKNOWN_MEMBER_ID
    member, _ = shard.enter()
    assert shard.heartbeat(member, 0) == ErrorCode.REBALANCE_IN_PROGRESS
    shard.advance(3000)
    assert shard.group().state is GroupState.COMPLETING_REBALANCE
    assert shard.heartbeat(member, 1) == ErrorCode.NONE
    shard.sync(member, 1, {})
    assert shard.heartbeat(member, 1) == ErrorCode.NONE
    assert shard.heartbeat(member, 0) == ErrorCode.ILLEGAL_GENERATION
    assert shard.heartbeat("other", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    shard.leave((member, None))
    assert shard.heartbeat(member, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_answers_for_each_member(shard: Any) -> None:
    assert shard.leave(("x", None)).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    (first, second), _ = shard.stable(2)
    answers = shard.leave((first, None), ("unknown", None), ("", None), ("", "no such instance")).members
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE, unknown, unknown, unknown]
    assert list(shard.group().members) == [second]
    assert shard.group().state is GroupState.PREPARING_REBALANCE


def test_a_leaving_member_ends_the_wait_of_the_others(shard: Any) -> None:
    (first, second), generation_id = shard.stable(2)
    ticket = shard.begin_join(first)
    shard.leave((second, None))
    assert shard.answers[ticket].generation_id == generation_id + 1


def test_the_group_does_not_grow_above_its_limit(make_shard: Any) -> None:
    """KAFKA-7641: group.max.size."""
    shard = make_shard(max_size=2)
    members, generation_id = shard.stable(2)
    assert shard.join("").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shard.heartbeat(members[0], generation_id) == ErrorCode.NONE
    rejoined = [shard.begin_join(members[0]), shard.begin_join(members[1])]
    assert {shard.answers[t].error_code for t in rejoined} == {ErrorCode.NONE}


def test_a_lowered_limit_drops_the_members_that_rejoin_last(make_shard: Any) -> None:
    before = make_shard()
    members, _ = before.stable(3)
    after = make_shard(max_size=2)
    for offset, record in enumerate(before.log):
        after.machine.replay(record, offset)
    after.apply(after.machine.loaded(after.now))
    assert after.group().state is GroupState.PREPARING_REBALANCE
    kept = [after.begin_join(member) for member in members[:2]]
    assert after.join(members[2]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {after.answers[ticket].error_code for ticket in kept} == {ErrorCode.NONE}
    assert list(after.group().members) == members[:2]


def test_ids_that_no_one_uses_are_bounded(shard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-7610: ids that were given out and not used were not counted."""
    monkeypatch.setattr("odradek.coordinator.group.classic.membership.MAX_PENDING_JOINS", 3)
    codes = [shard.join("").error_code for _ in range(4)]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_ten_thousand_ids_may_be_unused(shard: Any) -> None:
    """One short of what others are given, as the ids themselves take a second to ask for."""
    shard.join("")
    shard.group().pending_joins.update((f"unused-{number}", None) for number in range(9_998))
    codes = [shard.join("").error_code for _ in range(2)]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_an_empty_group_is_live_while_its_emptiness_is_not_stored(shard: Any) -> None:
    (member,), generation_id = shard.stable(1)
    shard.leave((member, None))
    stored = shard.group().generation_id
    assert stored == generation_id + 1

    def asks_and_gives_up() -> bool:
        pending = shard.join("").member_id
        shard.leave((pending, None))
        return bool([*shard.machine.groups._live])

    assert not asks_and_gives_up(), "it would be made again just the same"
    (member,), generation_id = shard.stable(1)
    shard.fail_writes = ErrorCode.COORDINATOR_NOT_AVAILABLE
    shard.leave((member, None))
    shard.fail_writes = None
    assert asks_and_gives_up(), "made again, it would have its member back"


def test_groups_that_exist_in_memory_alone_are_bounded(shard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.coordinator.group.registry.MAX_UNSTORED_GROUPS", 3)
    for number in range(3):
        shard.join("", group=f"invented-{number}")
    assert shard.code(lambda: shard.begin_join("", group="one more")) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    shard.advance(10_000)
    assert shard.join("", group="one more").error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_groups_that_the_log_knows_do_not_count_as_in_memory_alone(shard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.coordinator.group.registry.MAX_UNSTORED_GROUPS", 3)
    for number in range(5):
        for offset in range(2):  # the second one finds what the first one made
            assert shard.commit(offset, group=f"simple-{number}") == ErrorCode.NONE
        shard.stable(1, group=f"stored-{number}")
    assert len(list(shard.machine.groups._live)) == 10
    assert shard.join("", group="new").error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_stored_groups_that_no_one_asked_for_make_no_room(shard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        (member,), _ = shard.stable(1, group=f"stored-{number}")
        shard.leave((member, None), group=f"stored-{number}")
    monkeypatch.setattr("odradek.coordinator.group.registry.MAX_UNSTORED_GROUPS", 3)
    after = shard.restarted()
    assert after.machine.groups.made("stored-0") is None and not list(after.machine.groups._live)
    for number in range(3):
        after.join("", group=f"invented-{number}")
    assert after.code(lambda: after.begin_join("", group="one more")) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_session_that_ran_out_while_the_member_waited_begins_again(shard: Any) -> None:
    (first, second), generation_id = shard.stable(2, session_ms=10_000, rebalance_ms=200_000)
    shard.begin_join(first, rebalance_ms=200_000)
    for _ in range(3):
        shard.advance(9_000)
        shard.heartbeat(second, generation_id)
    shard.begin_join(second, rebalance_ms=200_000)
    assert shard.group().state is GroupState.COMPLETING_REBALANCE
    shard.advance(9_999)
    assert shard.heartbeat(second, generation_id + 1) == ErrorCode.NONE
    assert first in shard.group().members
    shard.advance(1)
    assert first not in shard.group().members, "it joined and was never heard of again"


def test_in_a_rebalance_upon_a_rebalance_no_one_owns_anything(shard: Any) -> None:
    members, _ = shard.stable(2)
    for member in members:
        shard.begin_join(member)
    assert [each.assignment for each in shard.group().members.values()] == [m.encode() for m in members]
    shard.enter()
    assert [each.assignment for each in shard.group().members.values()] == [b""] * 3


def test_members_with_and_without_an_instance_share_a_group(shard: Any) -> None:
    """KAFKA-14422: a static member that joined old clients, which know of no instances, left the rebalance stuck."""
    old = shard.begin_join("", version=2, rebalance_ms=20_000)
    static = shard.begin_join("", version=9, instance="i", rebalance_ms=20_000)
    shard.advance(6_000)
    answers = [shard.answers[ticket] for ticket in (old, static)]
    assert [each.error_code for each in answers] == [ErrorCode.NONE, ErrorCode.NONE]
    members = [each.member_id for each in answers]
    assert answers[0].leader == members[0] and len(answers[0].members) == 2
    waiting = shard.begin_sync(members[1], 1, instance="i")
    shard.sync(members[0], 1, {each: each.encode() for each in members})
    assert shard.answers[waiting].assignment == members[1].encode()
    shard.begin_join(members[0], version=2, rebalance_ms=20_000)  # the leader asks for another one
    shard.advance(9_000)
    again = shard.begin_join(members[1], version=9, instance="i", rebalance_ms=20_000)
    assert shard.answers[again].error_code == ErrorCode.NONE
    assert shard.group().state is GroupState.COMPLETING_REBALANCE


class TestMetadata:
    """The metadata of members must fit into the record of a generation."""

    def test_no_member_joins_whose_group_could_not_be_stored(self, shard: Any) -> None:
        large = (("range", b"m" * 600_000),)
        member, _ = shard.enter(protocols=large)
        assert shard.join("", protocols=large).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert list(shard.group().members) == [member]
        small, _ = shard.enter(protocols=(("range", b"m" * 400_000),))
        assert list(shard.group().members) == [member, small]

    def test_a_member_that_joins_again_counts_once(self, shard: Any) -> None:
        (member,), _ = shard.stable(1, protocols=(("range", b"m" * 600_000),))
        for size, code in ((600_000, ErrorCode.NONE), (1_100_000, ErrorCode.UNKNOWN_SERVER_ERROR)):
            assert shard.join(member, protocols=(("range", b"n" * size),)).error_code == code
        assert list(shard.group().members) == [member]

    def test_a_static_member_that_comes_back_counts_once(self, shard: Any) -> None:
        large = (("range", b"m" * 600_000),)
        shard.begin_join("", protocols=large, instance="one")
        shard.begin_join("", protocols=large, instance="one")
        assert len(shard.group().members) == 1

    def test_a_join_too_large_to_store_leaves_no_group(self, shard: Any) -> None:
        assert shard.join("", protocols=(("range", b"m" * 2_000_000),)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        several = tuple((f"p{number}", b"m" * 1_000_000) for number in range(5))
        assert shard.join("", protocols=several).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        one = (("range", b"m"), ("sticky", b"m" * 2_000_000))
        assert shard.join("", protocols=one).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert shard.machine.groups.find("g") is None
