"""Recent events of each group of one shard, with reasons: the content of `odradek groups explain`.

It is soft and bounded: the last events of a group and of the shard, and how long partitions have had no owner. It
begins when the shard is loaded and ends with the leadership. No decision depends on it. A repeated event (a fenced
member that keeps sending requests) is counted, not added again. Texts of clients are cut to `MAX_TEXT`.

Operations record events while they are decided, and their records may be refused. So events are buffered until the
records are committed; if they are not, the journal shows what could not be stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.common.errors import ErrorCode
from odradek.coordinator.group.classic.group import Moment

MAX_EVENTS_PER_GROUP = 256
MAX_EVENTS = 1000
MAX_GROUPS = 500
# Limit of the partitions of one group whose missing owners are tracked; the rest is not tracked.
MAX_WATCHED = 10_000
MAX_TEXT = 256
# How many recent events are searched for one that would only be repeated.
REPEATS_AMONG = 8

Partition = tuple[str, int]

# Errors that end a membership or refuse one.
REFUSALS = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    }
)
FENCED = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    }
)


class MemberIdentity(NamedTuple):
    """A member, or a client that claims to be one. `client_host` is in Kafka's form: "/127.0.0.1"."""

    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""


NO_CLIENT = MemberIdentity()


@dataclass(slots=True)
class Event:
    """One event.

    Attributes:
        kind: joined, returned, left, away, removed, fenced, refused, rebalance, assigned, converted, unstored, loaded.
        at_ms: wall clock, of the first occurrence.
        generation: the generation or group epoch of the event; -1 for none.
        count: the number of occurrences; of "assigned" the number of partitions that got a new owner.
        took_ms: of "assigned", the time since the rebalance began.
        unowned_ms: of "assigned", the longest time for which one of these partitions had no owner.
    """

    kind: str
    at_ms: int
    identity: MemberIdentity = NO_CLIENT
    reason: str = ""
    generation: int = -1
    count: int = 1
    took_ms: int = 0
    unowned_ms: int = 0


@dataclass(slots=True)
class _Timeline:
    events: deque[Event] = field(default_factory=deque)
    dropped: int = 0
    # Partition -> the monotonic time since which it has no owner.
    unowned: dict[Partition, int] = field(default_factory=dict)
    rebalancing_since_ms: int | None = None


class Attempt(NamedTuple):
    """The intended effect of an operation, shown if its write failed."""

    group_id: str
    now: Moment
    identity: MemberIdentity
    what: str
    generation: int


@dataclass(frozen=True, slots=True)
class BufferedEvent:
    """A recorded event that is not yet visible.

    Attributes:
        tried: None if a failure of the operation is not shown.
    """

    apply: Callable[[], None]
    tried: Attempt | None


class Journal:
    """The timelines of one shard's groups; the one that changed last is at the end."""

    def __init__(self) -> None:
        self._timelines: dict[str, _Timeline] = {}
        self._event_count = 0
        # Wall-clock time at which the shard was loaded. Earlier events are unknown.
        self.since_ms = 0
        self._held: list[BufferedEvent] | None = None

    def __len__(self) -> int:
        return self._event_count

    def clear(self) -> None:
        """Remove all events: the leadership has ended."""
        self._timelines.clear()
        self._event_count = 0

    # ---- buffered events of an operation

    def hold(self) -> None:
        """Start to buffer events, until `pop_held`: an operation is being decided."""
        self._held = []

    def pop_held(self) -> list[BufferedEvent]:
        """Return the events since `hold`; later events are written at once again."""
        held, self._held = self._held, None
        return held or []

    def write(self, held: Iterable[BufferedEvent]) -> None:
        """Add the events of an operation whose records were written, or that had none."""
        for write in held:
            write.apply()

    def write_unstored(self, held: Iterable[BufferedEvent], code: ErrorCode) -> None:
        """Add the events of an operation whose write failed: what was tried, and the error."""
        for write in held:
            if (tried := write.tried) is not None:
                reason = f"{code.name}: {tried.what}"
                self.record(tried.group_id, "unstored", tried.now, tried.identity, reason, tried.generation)

    def _is_held(self, apply: Callable[[], None], tried: Attempt | None = None) -> bool:
        if self._held is None:
            return False
        self._held.append(BufferedEvent(apply, tried))
        return True

    # ---- the events

    def record(
        self,
        group_id: str,
        kind: str,
        now: Moment,
        identity: MemberIdentity = NO_CLIENT,
        reason: str = "",
        generation: int = -1,
    ) -> None:
        """Record an event. A repetition of a recent event is counted there."""
        tried = Attempt(group_id, now, identity, f"{kind}: {reason}" if reason else kind, generation)
        if self._is_held(lambda: self.record(group_id, kind, now, identity, reason, generation), tried):
            return
        timeline = self._touch(group_id)
        identity, reason = _cut(identity), reason[:MAX_TEXT]
        for event in list(timeline.events)[-REPEATS_AMONG:]:
            if (event.kind, event.identity, event.reason, event.generation) == (kind, identity, reason, generation):
                event.count += 1
                return
        self._append(timeline, Event(kind, now.wall_ms, identity, reason, generation))

    def refused(
        self,
        group_id: str,
        code: ErrorCode,
        now: Moment,
        identity: MemberIdentity,
        message: str = "",
        *,
        asked: str = "",
    ) -> None:
        """Record a refused request; not for groups without other events.

        Args:
            asked: the request's name, as "OffsetCommit".
        """
        if code in REFUSALS and group_id in self._timelines:
            reason = f"{code.name} ({asked})" if asked else code.name
            reason = f"{reason}: {message}" if message else reason
            self.record(group_id, "fenced" if code in FENCED else "refused", now, identity, reason)

    def rebalance(self, group_id: str, now: Moment, reason: str, generation: int, *, restart: bool = False) -> None:
        """Record the start of a rebalance to this generation; `restart` if the last one has ended in any case."""
        tried = Attempt(group_id, now, NO_CLIENT, f"rebalance: {reason}", generation)
        if self._is_held(lambda: self.rebalance(group_id, now, reason, generation, restart=restart), tried):
            return
        timeline = self._touch(group_id)
        if restart or timeline.rebalancing_since_ms is None:
            timeline.rebalancing_since_ms = now.monotonic_ms
        self.record(group_id, "rebalance", now, NO_CLIENT, reason, generation)

    def released(self, group_id: str, partitions: Iterable[Partition], now: Moment) -> None:
        """Record that these partitions have no owner from now on."""
        partitions = list(partitions)
        if self._is_held(lambda: self.released(group_id, partitions, now)):
            return
        unowned = self._touch(group_id).unowned
        for partition in partitions:
            if len(unowned) < MAX_WATCHED:
                unowned.setdefault(partition, now.monotonic_ms)

    def assigned(self, group_id: str, partitions: Iterable[Partition], now: Moment, generation: int) -> None:
        """Record that partitions have an owner; one event covers a whole generation."""
        partitions = list(partitions)
        if self._is_held(lambda: self.assigned(group_id, partitions, now, generation)):
            return
        timeline = self._touch(group_id)
        waited = [timeline.unowned.pop(each, now.monotonic_ms) for each in partitions]
        if not waited:
            return
        event = next((each for each in reversed(timeline.events) if each.kind == "assigned"), None)
        if event is None or event.generation != generation:
            event = Event("assigned", now.wall_ms, generation=generation, count=0)
            self._append(timeline, event)
        event.count += len(waited)
        event.unowned_ms = max(event.unowned_ms, now.monotonic_ms - min(waited))
        if timeline.rebalancing_since_ms is not None:
            event.took_ms = now.monotonic_ms - timeline.rebalancing_since_ms

    def rebalance_completed(self, group_id: str) -> None:
        """Record that the rebalance has completed."""
        if self._is_held(lambda: self.rebalance_completed(group_id)):
            return
        if (timeline := self._timelines.get(group_id)) is not None:
            timeline.rebalancing_since_ms = None

    def _touch(self, group_id: str) -> _Timeline:
        timeline = self._timelines.pop(group_id, None) or _Timeline()
        self._timelines[group_id] = timeline
        while len(self._timelines) > MAX_GROUPS:
            self._drop_oldest(group_id)
        return timeline

    def _append(self, timeline: _Timeline, event: Event) -> None:
        timeline.events.append(event)
        self._event_count += 1
        if len(timeline.events) > MAX_EVENTS_PER_GROUP:
            timeline.events.popleft()
            timeline.dropped += 1
            self._event_count -= 1
        while self._event_count > MAX_EVENTS and len(self._timelines) > 1:
            self._drop_oldest("")

    def _drop_oldest(self, keep: str) -> None:
        group_id = next(each for each in self._timelines if each != keep)
        self._event_count -= len(self._timelines.pop(group_id).events)

    # ---- reading

    def timeline(self, group_id: str, now: Moment) -> dict[str, Any] | None:
        """A group's timeline as sent over the wire, oldest event first; None if nothing is known."""
        timeline = self._timelines.get(group_id)
        if timeline is None:
            return None
        waiting = timeline.unowned.values()
        return {
            "group": group_id,
            "since_ms": self.since_ms,
            "dropped_events": timeline.dropped,
            "unowned_partitions": len(waiting),
            "unowned_longest_ms": now.monotonic_ms - min(waiting) if waiting else 0,
            "events": [_plain(event) for event in timeline.events],
        }


def _cut(identity: MemberIdentity) -> MemberIdentity:
    instance_id = None if identity.instance_id is None else identity.instance_id[:MAX_TEXT]
    return MemberIdentity(
        identity.member_id[:MAX_TEXT], instance_id, identity.client_id[:MAX_TEXT], identity.client_host[:MAX_TEXT]
    )


def _plain(event: Event) -> dict[str, Any]:
    return {
        "at_ms": event.at_ms,
        "kind": event.kind,
        "member_id": event.identity.member_id,
        "instance_id": event.identity.instance_id,
        "client_id": event.identity.client_id,
        "client_host": event.identity.client_host,
        "reason": event.reason,
        "generation": event.generation,
        "count": event.count,
        "took_ms": event.took_ms,
        "unowned_ms": event.unowned_ms,
    }
