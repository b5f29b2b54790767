"""A group's timeline: members that came and went and why, partitions without an owner, and bounds that hold."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from odradek.common.errors import ErrorCode
from odradek.coordinator.group.classic.group import Moment
from odradek.coordinator.group.classic.membership import Caller
from odradek.coordinator.group.consumer.heartbeats import HeartbeatCaller
from odradek.coordinator.group.journal import (
    MAX_EVENTS,
    MAX_EVENTS_PER_GROUP,
    MAX_GROUPS,
    MAX_TEXT,
    MAX_WATCHED,
    Journal,
    MemberIdentity,
)
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from tests.support.models.mixed_groups import GROUP, START_MS, ClassicClient, MixedShard, NewClient, topics_view


def at(ms: int) -> Moment:
    return Moment(START_MS + ms, ms)


def events(shard: MixedShard, kind: str = "") -> list[dict[str, Any]]:
    timeline = shard.machine.journal.timeline(GROUP, shard.now)
    assert timeline is not None
    assert json.loads(json.dumps(timeline)) == timeline
    return [event for event in timeline["events"] if kind in ("", event["kind"])]


def rounds(clients: list[Any], count: int = 10, ms: int = 100) -> None:
    for _ in range(count):
        for client in clients:
            client.settle()
        clients[0].shard.advance(ms)


def test_a_timeline_says_since_when_it_is_kept() -> None:
    """It begins when this coordinator was loaded; the coordinator before has the earlier events."""
    shard = MixedShard(topics_view(ta=4))
    client = ClassicClient(shard, "c", ["ta"])
    rounds([client])
    timeline = shard.machine.journal.timeline(GROUP, shard.now)
    assert timeline is not None and timeline["since_ms"] == START_MS
    shard.advance(700)
    shard.restart()
    assert shard.machine.journal.since_ms == shard.now.wall_ms


def test_the_timeline_of_a_classic_group_has_members_and_waits() -> None:
    shard = MixedShard(topics_view(ta=4))
    clients = [ClassicClient(shard, f"c{n}", ["ta"]) for n in range(2)]
    rounds(clients)
    assert [(each["client_id"], each["client_host"]) for each in events(shard, "joined")] == [
        ("c0", "/127.0.0.1"),
        ("c1", "/127.0.0.1"),
    ]
    assert events(shard, "assigned")[-1]["count"] == 4
    silent = clients.pop()
    for _ in range(6):
        rounds(clients, 1, 3_000)
    rounds(clients)
    (removed,) = events(shard, "removed")
    assert removed["client_id"] == "c1" and "session timeout of 10000 ms" in removed["reason"]
    assert "timed out" in events(shard, "rebalance")[-1]["reason"]
    last = events(shard, "assigned")[-1]
    assert last["count"] == 4 and last["unowned_ms"] >= last["took_ms"] > 0
    silent.settle()
    silent.settle()
    clients[0].leave()
    assert events(shard, "left")[-1]["member_id"] == clients[0].member_id
    timeline = shard.machine.journal.timeline(GROUP, shard.now)
    assert timeline is not None and timeline["unowned_partitions"] == 4


def test_a_consumer_group_says_each_epochs_cause_and_the_conversion() -> None:
    shard = MixedShard(topics_view(ta=4))
    clients: list[Any] = [ClassicClient(shard, "c", ["ta"]), NewClient(shard, "n", ["ta"])]
    rounds(clients[:1])
    rounds(clients)
    assert [each["kind"] for each in events(shard) if each["kind"] == "converted"] == ["converted"]
    assert "member n joined" in [each["reason"] for each in events(shard, "rebalance")]
    moved = events(shard, "assigned")[-1]
    assert moved["count"] >= 2 and moved["unowned_ms"] <= moved["took_ms"] and moved["took_ms"] > 0
    shard.topics = topics_view(2, ta=6)
    rounds(clients)
    assert "grew" in events(shard, "rebalance")[-1]["reason"]
    for _ in range(20):
        shard.advance(3_000)
        rounds(clients[:1], 1)
    assert "session" in events(shard, "removed")[-1]["reason"]
    assert "to a classic group" in events(shard, "converted")[-1]["reason"]


def test_a_static_member_that_is_replaced_and_one_that_is_away() -> None:
    shard = MixedShard(topics_view(ta=2))
    old = NewClient(shard, "old", ["ta"], instance_id="i")
    old.settle()
    old._beat(-2)
    NewClient(shard, "new", ["ta"], instance_id="i").settle()
    assert [each["member_id"] for each in events(shard, "away")] == ["old"]
    (back,) = events(shard, "returned")
    assert (back["member_id"], back["instance_id"]) == ("new", "i") and "old" in back["reason"]


def test_a_refusal_counts_its_repeats_and_makes_no_group_known() -> None:
    journal = Journal()
    identity = MemberIdentity("m", "i", "client", "/10.0.0.1")
    journal.refused("unknown", ErrorCode.UNKNOWN_MEMBER_ID, at(0), identity)
    assert journal.timeline("unknown", at(0)) is None
    journal.record("g", "joined", at(0), identity)
    for n in range(500):
        journal.refused("g", ErrorCode.FENCED_INSTANCE_ID, at(n), identity, "i is now another member")
    journal.refused("g", ErrorCode.REBALANCE_IN_PROGRESS, at(500), identity)
    timeline = journal.timeline("g", at(500))
    assert timeline is not None
    assert [(each["kind"], each["count"]) for each in timeline["events"]] == [("joined", 1), ("fenced", 500)]


def test_the_journal_is_bounded() -> None:
    journal = Journal()
    for n in range(2 * MAX_EVENTS_PER_GROUP):
        journal.record("one", "joined", at(n), MemberIdentity(f"m{n}"))
    timeline = journal.timeline("one", at(0))
    assert timeline is not None
    assert len(timeline["events"]) == MAX_EVENTS_PER_GROUP and timeline["dropped_events"] == MAX_EVENTS_PER_GROUP
    assert len(journal) == MAX_EVENTS_PER_GROUP
    for n in range(100_000):
        journal.record(f"g{n}", "joined", at(n), MemberIdentity("m", None, "x" * 40_000, "/h"), "r" * 40_000)
    assert len(journal) <= MAX_EVENTS
    assert sum(journal.timeline(f"g{n}", at(0)) is not None for n in range(100_000)) <= MAX_GROUPS
    last = journal.timeline("g99999", at(0))
    assert last is not None
    assert len(last["events"][0]["client_id"]) == len(last["events"][0]["reason"]) == MAX_TEXT
    journal.released("g99999", [("t", n) for n in range(MAX_WATCHED + 5)], at(0))
    last = journal.timeline("g99999", at(7))
    assert last is not None and (last["unowned_partitions"], last["unowned_longest_ms"]) == (MAX_WATCHED, 7)
    journal.clear()
    assert len(journal) == 0


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_groups_whose_members_never_come_back_leave_nothing(count: int) -> None:
    """Ids that are given out and not used: no group, no deadline, nothing in the journal."""
    shard = MixedShard(topics_view(ta=1))
    machine = shard.machine
    for number in range(count):
        group_id = f"group-{number}"
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        machine.join(request, Caller("c", "/h", 9, number, str(number)), shard.now)
    assert len(list(machine.groups._live)) == count and not shard.log
    shard.advance(10_001)
    assert not list(machine.groups.ids()) and not list(machine.groups._live)
    assert len(machine.timers) == 1, "the look for expired offsets"
    assert len(machine.journal) == 0


def test_abandoned_groups_leave_no_timelines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each id becomes a group with a record; when its member is gone and the offsets' time is up, so is the group."""
    count = 1000
    caplog.set_level(logging.INFO)
    shard = MixedShard(topics_view(ta=1))
    for number in range(count):
        request = ConsumerGroupHeartbeatRequest(group_id=f"group-{number}", member_id="m", rebalance_timeout_ms=1000)
        request.topic_partitions, request.subscribed_topic_names = [], ["ta"]
        shard.apply(shard.machine.consumer_heartbeat(request, HeartbeatCaller("c", "/h", 1, ""), shard.now))
    assert len(list(shard.machine.consumers)) == count
    shard.advance(45_001)
    assert not any(group.members for group in shard.machine.consumers)
    shard.advance(660_000)
    assert not list(shard.machine.consumers) and not list(shard.machine.groups.ids())
    assert len(shard.machine.timers) == 1, "the look for expired offsets"
    assert len(shard.machine.journal) <= MAX_EVENTS
    assert not caplog.records, "a line for each would flood the log"
