"""Describes the events of a group's timeline, and derives advice from them.

The advice follows from the events alone; each line names the event that it follows from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# A member whose client joins again within this time after it left was not stopped: it did not poll.
BACK_WITHIN_MS = 15 * 60 * 1000
# More rebalances than this within the span are reported.
MANY_REBALANCES = 5
REBALANCES_WITHIN_MS = 10 * 60 * 1000

Event = dict[str, Any]


def details(event: dict[str, Any]) -> str:
    """An event as text, without the member."""
    if event["kind"] == "assigned":
        text = f"{event['count']} partitions have a new owner"
        if event["took_ms"]:
            text += f", {seconds_text(event['took_ms'])} after the rebalance began"
        return f"{text}; the longest without one: {seconds_text(event['unowned_ms'])}"
    text = str(event["reason"])
    if event["count"] > 1:
        text = f"{text} ({event['count']} times)".strip()
    return text


def advice(events: list[dict[str, Any]]) -> list[str]:
    """The advice for a timeline, in the order of the events; each line once."""
    lines: dict[str, None] = {}
    for position, event in enumerate(events):
        of_kind = _ADVICE.get(event["kind"])
        line = of_kind(event, events[position + 1 :]) if of_kind is not None else None
        if line is not None:
            lines[line] = None
    rebalances = [event for event in events if event["kind"] == "rebalance"]
    if rebalances:
        last_ms = rebalances[-1]["at_ms"]
        recent = sum(event["count"] for event in rebalances if last_ms - event["at_ms"] <= REBALANCES_WITHIN_MS)
        if recent > MANY_REBALANCES:
            minutes = REBALANCES_WITHIN_MS // 60_000
            lines[
                f"{recent} rebalances within {minutes} minutes: members that are restarted need a group.instance.id, "
                "and group.protocol=consumer (or partition.assignment.strategy=cooperative-sticky) lets the others "
                "read on"
            ] = None
    return list(lines)


_POLL = "Raise max.poll.interval.ms, or lower max.poll.records so that less is done between two polls"


def _of_removal(event: Event, later: list[Event]) -> str:
    if "session" not in event["reason"]:
        return (
            f"{_member(event)} was too slow to follow a rebalance: it works too long between two polls. Lower "
            "max.poll.records, or raise max.poll.interval.ms"
        )
    if _is_back(event, later):
        return (
            f"{_member(event)} fell silent and came back: its process was paused or cut off, or it did not poll in "
            f"time. {_POLL}"
        )
    return (
        f"{_member(event)} sent no heartbeat: its process was killed, hung, or lost its network. If it was "
        "restarted on purpose, close the consumer first, or give it a group.instance.id and a "
        "session.timeout.ms longer than a restart"
    )


def _of_leaving(event: Event, later: list[Event]) -> str | None:
    if "poll" in event["reason"]:
        return f"{_member(event)} left because it did not poll in time: {_POLL}"
    if _is_back(event, later):
        return (
            f"{_member(event)} left and the same client came back: unless it was restarted, it did not poll in time. "
            f"{_POLL}"
        )
    return None


def _of_fencing(event: Event, later: list[Event]) -> str | None:
    if "INSTANCE" in event["reason"]:
        return (
            f"two consumers use group.instance.id {event['instance_id']}; the one that was there first is fenced "
            f"({event['client_id']} at {event['client_host']}): give each process an id of its own"
        )
    return _of_refusal(event, later)


def _of_refusal(event: Event, _: list[Event]) -> str | None:
    reason = event["reason"]
    if "OffsetCommit)" in reason:
        for name, line in _COMMITS.items():
            if reason.startswith(name):
                return f"a commit of {_member(event)} was refused: {line}. Records since its last one are read again"
    for name, line in _REFUSALS.items():
        if reason.startswith(name):
            return f"{_member(event)} was refused: {line}"
    return None


def _of_unstored(event: Event, _: list[Event]) -> str:
    if "TOO_LARGE" in event["reason"]:
        return (
            "the group is larger than a record of __consumer_offsets may be: raise its max.message.bytes, or let "
            "members subscribe to fewer topics, by a regular expression"
        )
    return (
        "what happened to the group could not be stored: look after the replicas of __consumer_offsets "
        "(odradek topics describe), fewer of which are in sync than min.insync.replicas, or whose leader is gone"
    )


_TOO_LATE = f"the group had gone on without it before it committed. {_POLL}"
_FENCED_PRODUCER = (
    "another producer has its transactional.id by now, or its transaction took longer than transaction.timeout.ms and "
    "was aborted: the broker's log says which (`transactional id taken over`, `producer fenced`)"
)
_COMMITS = {
    "INVALID_PRODUCER_EPOCH": _FENCED_PRODUCER,
    "PRODUCER_FENCED": _FENCED_PRODUCER,
    "ILLEGAL_GENERATION": f"a rebalance began after it had read. If that happens often: {_POLL}",
    "UNKNOWN_MEMBER_ID": _TOO_LATE,
    "FENCED_MEMBER_EPOCH": _TOO_LATE,
    "STALE_MEMBER_EPOCH": "its assignment had changed since it read, and it has not received it yet. A client commits "
    "again by itself; if it does not, update it",
}
_REFUSALS = {
    "UNRELEASED_INSTANCE_ID": "another live consumer has its group.instance.id: give each process an id of its own",
    "GROUP_MAX_SIZE_REACHED": "the group is full: raise group.max.size or group.consumer.max.size, or run fewer "
    "members",
    "INCONSISTENT_GROUP_PROTOCOL": "it has no partition.assignment.strategy in common with the members: roll in two "
    "steps, first adding the new strategy to all, then removing the old one",
    "INVALID_SESSION_TIMEOUT": "its session.timeout.ms is outside group.min.session.timeout.ms and "
    "group.max.session.timeout.ms",
}


# Kind of event → advice, from the event and the later ones.
_ADVICE: dict[str, Callable[[Event, list[Event]], str | None]] = {
    "removed": _of_removal,
    "left": _of_leaving,
    "fenced": _of_fencing,
    "refused": _of_refusal,
    "unstored": _of_unstored,
}


def _is_back(event: dict[str, Any], later: list[dict[str, Any]]) -> bool:
    same = ("client_id", "client_host", "instance_id")
    return any(
        each["kind"] == "joined"
        and each["at_ms"] - event["at_ms"] <= BACK_WITHIN_MS
        and all(each[key] == event[key] for key in same)
        for each in later
    )


def _member(event: dict[str, Any]) -> str:
    name = event["instance_id"] or event["member_id"]
    return f"member {name} ({event['client_id']} at {event['client_host']})"


def seconds_text(ms: int) -> str:
    """A duration as text."""
    return f"{ms / 1000:.1f} s" if ms < 120_000 else f"{ms / 60_000:.0f} min"
