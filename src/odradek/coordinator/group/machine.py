"""One shard of the group coordinator: the groups and offsets that one partition of __consumer_offsets keeps.

Durable state (committed offsets, stored generations) changes in `replay` alone. The soft state of rebalances and the
deadlines live here too, decided by plain functions with the time passed in; the service only waits until
`next_deadline_ms` and calls `on_deadline`. Transitions are in `state`, the requests in `membership` and `commits`.
"""

from __future__ import annotations

from typing import Any

from odradek.coordinator.group.commits import Commits
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.group import Moment
from odradek.coordinator.group.membership import Membership
from odradek.coordinator.group.offsets import OffsetStore
from odradek.coordinator.group.outcome import Outcome
from odradek.coordinator.group.rebalance import Rebalance, Records
from odradek.coordinator.group.records import CoordinatorRecord, GroupRecord, OffsetRecord
from odradek.coordinator.group.registry import GroupRegistry
from odradek.coordinator.group.timers import TimerKey, Timers
from odradek.statemachine.machine import Result
from odradek.statemachine.timeline import Timeline

# Bounds the work of one turn; what is left over is found by the next run, which then follows at once.
MAX_EXPIRED_PER_RUN = 1000
EXPIRY_TIMER = TimerKey("expiry", "")


class GroupMachine:
    """A `StateMachine` of `CoordinatorRecord`s."""

    def __init__(self, config: GroupConfig, timeline: Timeline) -> None:
        self._config = config
        self.timers = Timers()
        self.offsets = OffsetStore(timeline)
        self.groups = GroupRegistry(timeline, self.offsets)
        self._rebalance = Rebalance(config, self.groups, self.timers)
        self.membership = Membership(self.groups, self._rebalance)
        self.commits = Commits(config, self.groups, self.offsets, self._rebalance)

    def replay(self, record: CoordinatorRecord, offset: int) -> None:
        """Apply one record of the log."""
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record, offset)
        elif isinstance(record, GroupRecord):
            self.groups.replay(record)
        else:
            self.offsets.replay_transaction_end(record)

    def on_loaded(self) -> None:
        """Deadlines need the time: the service runs `loaded` as its first operation."""

    def on_unloaded(self) -> None:
        self.timers.clear()
        self.groups.clear()

    def loaded(self, now: Moment) -> Result[CoordinatorRecord, Outcome[None]]:
        """Give every stored member a fresh session; shrink groups that a lowered limit has made too large."""
        records: Records = []
        for group_id, value in list(self.groups.stored.items()):
            group = self.groups.find(group_id) if value.members else None
            if group is None:
                continue
            for member in group.members.values():
                self._rebalance.renew_session(group, member, now)
            if len(group.members) > self._config.max_size:
                records += self._rebalance.prepare(group, now)
        self._schedule_expiry(now, self._config.offsets_retention_check_interval_ms)
        return Result(records, Outcome(None, self._rebalance.take_completions()))

    def next_deadline_ms(self) -> int | None:
        """When `on_deadline` has something to do, on the monotonic clock; None while nobody waits for anything."""
        return self.timers.next_deadline_ms()

    def on_deadline(self, now: Moment) -> Result[CoordinatorRecord, Outcome[None]]:
        """Do what the earliest deadline at or before `now` asks for, if there is one."""
        key = self.timers.pop_expired(now.monotonic_ms)
        if key is None:
            return Result([], Outcome(None))
        if key == EXPIRY_TIMER:
            return self._expire(now)
        records: Records = []
        group = self.groups.find(key.group_id)
        if group is not None:
            if key.kind == "session":
                records = self._rebalance.on_session_timer(group, key.member_id, now)
            elif key.kind == "join":
                records = self._rebalance.on_join_timer(group, now)
            else:
                records = self._rebalance.on_sync_timer(group, now)
        return Result(records, Outcome(None, self._rebalance.take_completions()))

    def _expire(self, now: Moment) -> Result[CoordinatorRecord, Outcome[Any]]:
        result = self.commits.expire(now, MAX_EXPIRED_PER_RUN)
        full = len(result.records) >= MAX_EXPIRED_PER_RUN
        self._schedule_expiry(now, 0 if full else self._config.offsets_retention_check_interval_ms)
        return result

    def _schedule_expiry(self, now: Moment, delay_ms: int) -> None:
        self.timers.set(EXPIRY_TIMER, now.monotonic_ms + delay_ms)
