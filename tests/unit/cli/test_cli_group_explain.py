"""`odradek groups explain` gives its advice from events alone."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.admin.group_advice import advice, details


def event(kind: str, **fields: Any) -> dict[str, Any]:
    plain = {"at_ms": 0, "kind": kind, "member_id": "m", "instance_id": None, "client_id": "c", "client_host": "/h"}
    return plain | {"reason": "", "generation": 1, "count": 1, "took_ms": 0, "unowned_ms": 0} | fields


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([event("removed", reason="its session timed out")], "was killed, hung, or lost its network"),
        ([event("removed", reason="its session timed out"), event("joined")], "fell silent and came back"),
        ([event("removed", reason="it did not join the rebalance in time")], "max.poll.records"),
        ([event("left", reason="consumer poll timeout has expired.")], "max.poll.interval.ms"),
        ([event("left"), event("joined", at_ms=4_000, member_id="m2")], "the same client came back"),
        ([event("fenced", reason="FENCED_INSTANCE_ID: i", instance_id="i")], "two consumers use group.instance.id i"),
        ([event("refused", reason="UNRELEASED_INSTANCE_ID: i")], "another live consumer"),
        ([event("refused", reason="GROUP_MAX_SIZE_REACHED")], "group.max.size"),
        ([event("refused", reason="INCONSISTENT_GROUP_PROTOCOL")], "in two steps"),
        ([event("refused", reason="INVALID_SESSION_TIMEOUT")], "group.max.session.timeout.ms"),
        ([event("refused", reason="ILLEGAL_GENERATION (OffsetCommit): at 3")], "a rebalance began after it had read"),
        ([event("refused", reason="UNKNOWN_MEMBER_ID (TxnOffsetCommit): m")], "had gone on without it"),
        ([event("fenced", reason="FENCED_MEMBER_EPOCH (OffsetCommit): 2")], "had gone on without it"),
        ([event("refused", reason="STALE_MEMBER_EPOCH (OffsetCommit): 2")], "commits again by itself"),
        (
            [event("fenced", reason="INVALID_PRODUCER_EPOCH (TxnOffsetCommit): 1")],
            "another producer has its transactional.id",
        ),
        ([event("fenced", reason="PRODUCER_FENCED (TxnOffsetCommit): 1")], "longer than transaction.timeout.ms"),
        ([event("unstored", reason="NOT_ENOUGH_REPLICAS: joined")], "min.insync.replicas"),
        ([event("unstored", reason="MESSAGE_TOO_LARGE: joined")], "max.message.bytes"),
        ([event("rebalance", count=6)], "6 rebalances within 10 minutes"),
    ],
)
def test_each_trouble_has_its_advice(events: list[dict[str, Any]], said: str) -> None:
    (line,) = advice(events)
    assert said in line


def test_a_healthy_group_needs_no_advice() -> None:
    events = [event("joined"), event("rebalance"), event("assigned", count=4), event("left"), event("returned")]
    assert advice(events) == []
    assert advice([event("loaded"), event("refused", reason="UNKNOWN_MEMBER_ID (Heartbeat): m")]) == []


def test_an_assignment_in_words() -> None:
    text = details(event("assigned", count=4, took_ms=1500, unowned_ms=180_000))
    assert text == "4 partitions have a new owner, 1.5 s after the rebalance began; the longest without one: 3 min"
    assert details(event("fenced", reason="why", count=3)) == "why (3 times)"
