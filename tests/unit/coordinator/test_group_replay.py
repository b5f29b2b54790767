"""A shard finds the state of the one before: after any history, replaying the log gives the same state."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.group.timers import TimerKey, Timers
from odradek.coordinator.hashing import MAX_CACHED_CHARACTERS, cached_hash, java_string_hash, partition_for
from tests.unit.coordinator.conftest import VirtualShard, subscription


def durable(shard: VirtualShard) -> dict[str, Any]:
    """The state that a restart must bring back."""
    return {
        "offsets": {group: dict(shard.machine.offsets.of_group(group)) for group in shard.machine.offsets.group_ids()},
        "groups": {group: repr(value) for group, value in shard.machine.groups.stored.items()},
    }


def test_members_keep_their_generation_over_a_restart(shard: VirtualShard) -> None:
    """KAFKA-5600: groups that were loaded again did not replace those that were there before."""
    members, generation_id = shard.stable(3, session_ms=10_000, protocols=[("range", subscription("t"))])
    shard.commit(17, member_id=members[0], generation_id=generation_id)
    shard.advance(9_999)
    silent = shard.restarted()
    silent.advance(10_000)
    assert silent.group().members == {}, "no member sent a heartbeat since the restart"
    after = shard.restarted()
    assert after.group().rebalance_timeout_ms == 60_000
    after.advance(9_999)
    assert [after.heartbeat(member, generation_id) for member in members] == [ErrorCode.NONE] * 3
    assert [after.sync(member, generation_id).assignment for member in members] == [m.encode() for m in members]
    assert after.group().leader_id == members[0]
    assert after.group().subscribed_topics == {"t"}
    assert after.committed() == 17
    after.advance(10_000)
    assert after.group().state is not GroupState.STABLE, "the fresh session ends too"


def test_a_rebalance_that_was_not_finished_leaves_the_last_generation(shard: VirtualShard) -> None:
    members, generation_id = shard.stable(2)
    shard.enter()
    shard.begin_join(members[0])
    after = shard.restarted()
    assert after.group().state is GroupState.STABLE
    assert after.heartbeat(members[1], generation_id) == ErrorCode.NONE
    assert after.join(members[1]).generation_id == generation_id


def test_an_unwritten_empty_group_stays_empty(shard: VirtualShard) -> None:
    (member,), _ = shard.stable(1)
    shard.fail_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    shard.leave((member, None))
    shard.fail_writes = None
    shard.join("", protocols=[])
    assert shard.group().members == {}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "join_static", "rejoin", "sync", "leave", "commit", "wait", "delete", "fail", "beat"]),
        st.integers(0, 5),
        st.integers(0, 2),
    ),
    max_size=60,
)


def _member(shard: VirtualShard, group_id: str, choice: int) -> tuple[str, str | None] | None:
    group = shard.machine.groups.find(group_id)
    if group is None or not group.members:
        return None
    member = list(group.members.values())[choice % len(group.members)]
    return member.member_id, member.group_instance_id


def _act(shard: VirtualShard, step: str, choice: int, group_id: str) -> None:  # noqa: C901 - a case for each step
    member = _member(shard, group_id, choice)
    protocols = [("range", subscription("t")), ("sticky", subscription("t", version=choice % 3))]
    if step == "join":
        asked = shard.join("", group=group_id, protocols=protocols)
        if asked.member_id:
            shard.begin_join(asked.member_id, group=group_id, protocols=protocols)
    elif step == "join_static":
        shard.begin_join("", group=group_id, protocols=protocols, instance=f"i{choice % 3}")
    elif step == "wait":
        shard.advance([1, 500, 3000, 9000, 60_000, 700_000_000][choice])
    elif step == "delete":
        shard.apply(shard.machine.commits.delete_groups([group_id]))
    elif member is None:
        shard.commit(choice, group=group_id, partition=choice)
    elif step == "rejoin":
        shard.begin_join(member[0], instance=member[1], group=group_id, protocols=protocols)
    elif step == "sync":
        group = shard.group(group_id)
        given_out = {each: f"{each}-{group.generation_id}".encode() for each in group.members}
        shard.begin_sync(member[0], group.generation_id, given_out, group=group_id, instance=member[1])
    elif step == "leave":
        shard.leave(member, group=group_id)
    elif step == "beat":
        shard.heartbeat(member[0], shard.group(group_id).generation_id, group=group_id, instance=member[1])
    else:
        generation_id = shard.group(group_id).generation_id
        shard.commit(choice, group=group_id, member_id=member[0], generation_id=generation_id, instance=member[1])


def _check(shard: VirtualShard) -> None:
    """Invariants of every group at every moment."""
    for group_id in list(shard.machine.groups.ids()):
        group = shard.group(group_id)
        assert set(group.static_members.values()) <= set(group.members)
        assert (
            (group.leader_id in group.members)
            if group.members
            else group.is_in(GroupState.EMPTY, GroupState.PREPARING_REBALANCE)
        )
        if group.is_in(GroupState.EMPTY):
            assert not group.members
        if group.is_in(GroupState.PREPARING_REBALANCE):
            assert shard.machine.timers.get(TimerKey("join", group_id)) is not None, "nothing would end the rebalance"
        for member in group.members.values():
            assert all(
                member.awaiting_join != other.awaiting_join or member is other or member.awaiting_join is None
                for other in group.members.values()
            )
            watched = shard.machine.timers.get(TimerKey("session", group_id, member.member_id)) is not None
            assert watched or member.awaiting_join is not None or member.awaiting_sync is not None, (
                "a member that nothing watches"
            )
            assert member.awaiting_sync is None or group.is_in(GroupState.COMPLETING_REBALANCE)
            assert member.awaiting_join is None or group.is_in(GroupState.PREPARING_REBALANCE)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_replaying_the_log_gives_the_live_state(steps: list[tuple[str, int, int]]) -> None:
    shard = VirtualShard()
    for step, choice, number in steps:
        fails = step == "fail"
        shard.fail_writes = ErrorCode.COORDINATOR_NOT_AVAILABLE if fails else None
        with contextlib.suppress(ApiError):
            _act(
                shard,
                ["sync", "leave", "commit", "join_static", "wait", "delete"][choice] if fails else step,
                choice,
                f"group-{number}",
            )
        _check(shard)
    after = shard.restarted()
    assert durable(after) == durable(shard)
    for group_id, value in shard.machine.groups.stored.items():
        group, loaded = shard.group(group_id), after.group(group_id)
        assert loaded.generation_id == value.generation <= group.generation_id
        if group.is_in(GroupState.STABLE):
            assert dict(loaded.assignments()) == dict(group.assignments())
            assert loaded.leader_id == group.leader_id


def test_describe_shows_protocol_and_metadata_of_a_stable_group_alone(shard: VirtualShard) -> None:
    def describe(version: int = 5, group: str = "g") -> Any:
        return shard.apply(shard.machine.describe_classics([group], version))[0]

    assert (describe().group_state, describe().error_code, describe().error_message) == ("Dead", 0, None)
    assert (describe(6).error_code, describe(6).error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
    members, _ = shard.stable(2)
    stable = describe()
    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == ("Stable", "consumer", "range")
    assert [(m.member_id, m.member_metadata, m.member_assignment) for m in stable.members] == [
        (member, b"meta", member.encode()) for member in members
    ]
    assert (stable.members[0].client_id, stable.members[0].client_host) == ("client", "/127.0.0.1")
    shard.begin_join(members[0])
    moving = describe()
    assert (moving.group_state, moving.protocol_data) == ("PreparingRebalance", "")
    assert [m.member_metadata for m in moving.members] == [b"", b""]


def test_list_filters_by_state_and_type(shard: VirtualShard) -> None:
    def listed(states: list[str], types: list[str]) -> list[str]:
        return [each.group_id for each in shard.apply(shard.machine.list_groups(states, types))]

    shard.commit(1, group="simple")
    shard.stable(1, group="busy")
    assert listed([], []) == ["busy", "simple"]
    assert listed(["stable"], []) == ["busy"]
    assert listed(["Empty", "STABLE"], ["Classic"]) == ["busy", "simple"]
    assert listed([], ["consumer"]) == []
    assert listed(["no such state"], []) == []
    found = shard.apply(shard.machine.list_groups([], []))[0]
    assert (found.protocol_type, found.group_state, found.group_type) == ("consumer", "Stable", "classic")


def test_group_names_hash_as_in_java() -> None:
    assert java_string_hash("") == 0
    assert java_string_hash("hello") == 99162322
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert java_string_hash("caf\u00e9") == 3045921
    assert java_string_hash("\U0001f600") == 1772899
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22


def test_hashes_of_long_group_names_are_not_kept() -> None:
    cached_hash.cache_clear()
    kept, long = "g" * MAX_CACHED_CHARACTERS, "g" * (MAX_CACHED_CHARACTERS + 1)
    assert partition_for(kept, 1000) == abs(java_string_hash(kept)) % 1000
    assert partition_for(long, 1000) == abs(java_string_hash(long)) % 1000
    assert cached_hash.cache_info().currsize == 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 50))), max_size=60))
def test_timers_fire_once_in_order_at_their_last_deadline(changes: list[tuple[int, int | None]]) -> None:
    timers = Timers()
    model: dict[TimerKey, int] = {}
    for number, deadline in changes:
        key = TimerKey("session", "g", str(number))
        if deadline is None:
            timers.cancel(key)
            model.pop(key, None)
        else:
            timers.set(key, deadline)
            model[key] = deadline
        assert timers.next_deadline_ms() == min(model.values(), default=None)
    fired = []
    for now in range(52):
        while (due := timers.pop_expired(now)) is not None:
            fired.append((now, due))
    assert sorted(fired) == sorted((deadline, key) for key, deadline in model.items())
    assert fired == sorted(fired, key=lambda each: each[0])
    assert len(timers) == 0


def test_loading_expires_no_offset_of_members_that_are_there(shard: VirtualShard) -> None:
    """KAFKA-8069: offsets were removed right after they were loaded, by the age of their last commit."""
    settings = {"session_ms": 1_800_000, "protocols": [("range", subscription("t"))]}
    (member,), generation_id = shard.stable(1, **settings)
    shard.commit(17, member_id=member, generation_id=generation_id)
    for _ in range(400):  # eight days
        shard.advance(1_728_000)
        assert shard.heartbeat(member, generation_id) == ErrorCode.NONE
    after = shard.restarted()
    after.advance(700_000)
    assert after.committed() == 17
