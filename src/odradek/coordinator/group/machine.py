"""The state machine of one shard of the group coordinator: groups and offsets of one partition of __consumer_offsets.

Only `replay` changes durable state (committed offsets, stored generations). The soft state of rebalances and the
deadlines are here too; plain functions decide them, with the time as an argument. The service waits until
`next_deadline_ms` and calls `on_deadline`. Transitions are in `state`, the requests in `membership` and `commits`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.log_lines import get_logger
from odradek.coordinator.group.classic.group import Moment
from odradek.coordinator.group.classic.membership import Caller, Membership, join_error
from odradek.coordinator.group.classic.rebalance import Rebalance, Records
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.consumer.classic_members import ClassicMembers
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.deadlines import KINDS as CONSUMER_KINDS
from odradek.coordinator.group.consumer.deadlines import REASONS, Deadlines
from odradek.coordinator.group.consumer.heartbeats import HeartbeatCaller, Heartbeats
from odradek.coordinator.group.consumer.migration import Change, Migration
from odradek.coordinator.group.consumer.queries import describe_consumer_groups, list_consumer_groups
from odradek.coordinator.group.consumer.records import ConsumerGroupRecord, group_tombstones
from odradek.coordinator.group.consumer.regex import TopicMatches
from odradek.coordinator.group.consumer.registry import ConsumerGroups
from odradek.coordinator.group.consumer.state import ConsumerGroup
from odradek.coordinator.group.consumer.topics import TopicsView
from odradek.coordinator.group.journal import NO_CLIENT, Journal
from odradek.coordinator.group.offsets.commits import Commits
from odradek.coordinator.group.offsets.store import OffsetStore
from odradek.coordinator.group.outcome import Outcome, PendingWrite, ResponseT, StoreMembers
from odradek.coordinator.group.queries import describe_groups, list_classic_groups
from odradek.coordinator.group.records import CoordinatorRecord, GroupRecord, OffsetRecord
from odradek.coordinator.group.registry import GroupRegistry
from odradek.coordinator.group.timers import TimerKey, Timers
from odradek.protocol.messages.consumer_group_describe_response import DescribedGroup as DescribedConsumerGroup
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.describe_groups_response import DescribedGroup
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.protocol.messages.list_groups_response import ListedGroup
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.statemachine.machine import Result
from odradek.statemachine.timeline import Timeline

_log = get_logger("coordinator.group")

# Bounds the work of one run; the next run, which follows soon, handles the rest. It does not follow at once: while
# the log refuses appends (NOT_ENOUGH_REPLICAS) the same scan would repeat without a pause.
MAX_EXPIRED_PER_RUN = 1000
EXPIRY_PAUSE_MS = 100
# The default of message.max.bytes.
MAX_RECORD_BYTES = 1_048_588
EXPIRY_TIMER = TimerKey("expiry", "")


class GroupMachine:
    """A `StateMachine` of `CoordinatorRecord`s."""

    def __init__(
        self,
        config: GroupConfig,
        timeline: Timeline,
        *,
        consumer_config: ConsumerGroupConfig | None = None,
        topics: Callable[[], TopicsView] = TopicsView,
        group_configs: Callable[[str], Mapping[str, str]] = lambda group_id: {},
        assignment_interval_ms: Callable[[str], int] | None = None,
        max_record_bytes: Callable[[], int] = lambda: MAX_RECORD_BYTES,
        matches: TopicMatches | None = None,
    ) -> None:
        """
        Args:
            topics: returns the present topics of the cluster.
            group_configs: group id → the group's settings.
            assignment_interval_ms: group id → minimum age of an assignment before the next one; by default from
                `consumer_config`.
            max_record_bytes: the largest record that the offsets topic accepts.
            matches: the topics that expressions of subscriptions match, as far as computed.
        """
        self._config = config
        fixed = self._consumer_config = consumer_config or ConsumerGroupConfig()
        interval_of = assignment_interval_ms or (lambda group_id: fixed.assignment_interval_of(group_configs(group_id)))
        self._topics = topics
        self._group_configs = group_configs
        self.timers = Timers()
        self.offsets = OffsetStore(timeline)
        self.consumers = ConsumerGroups(timeline)
        self.groups = GroupRegistry(timeline, self.offsets, self.consumers)
        self.journal = Journal()
        self._rebalance = Rebalance(config, self.groups, self.timers, self.journal)
        self.membership = Membership(self.groups, self._rebalance, max_record_bytes)
        self.commits = Commits(config, self.groups, self.consumers, self.offsets, self._rebalance, max_record_bytes)
        deadlines = Deadlines(self._consumer_config, self.timers, group_configs)
        self._deadlines = deadlines
        self._migration = Migration(
            self._consumer_config, self.consumers, self.groups, self._rebalance, deadlines, topics, self.journal
        )
        self.heartbeats = Heartbeats(
            self._consumer_config,
            self.consumers,
            deadlines,
            self._migration,
            topics,
            self.journal,
            interval_of,
            matches or TopicMatches(),
        )
        default = self.heartbeats.default_assignor
        self._classic_members = ClassicMembers(
            self._consumer_config, default, deadlines, self._migration, topics, self.journal, interval_of
        )

    def replay(self, record: CoordinatorRecord, offset: int) -> None:
        """Apply one record of the log."""
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record, offset)
        elif isinstance(record, GroupRecord):
            self.groups.replay(record)
        elif isinstance(record, ConsumerGroupRecord):
            self.consumers.replay(record)
        else:
            self.offsets.replay_transaction_end(record)

    def on_loaded(self) -> None:
        """Does nothing: deadlines need the time, so the service runs `loaded` as its first operation."""

    def on_unloaded(self) -> None:
        self.timers.clear()
        self.groups.clear()
        self.journal.clear()

    def loaded(self, now: Moment, why: str = "") -> Result[CoordinatorRecord, Outcome[None]]:
        """Start the session of every stored member; shrink groups that exceed a lowered limit.

        Args:
            why: the reason for which this broker coordinates the groups, as text for the journal.
        """
        self.journal.since_ms = now.wall_ms
        records: Records = []
        for group_id, value in list(self.groups.stored.items()):
            group = self.groups.find(group_id) if value.members else None
            if group is None:
                continue
            for member in group.members.values():
                self._rebalance.renew_session(group, member, now)
            self._record_loaded(group_id, len(group.members), group.generation_id, why, now)
            if len(group.members) > self._config.max_size:
                records += self._rebalance.prepare(group, now, "the group is larger than group.max.size")
        for consumers in self.consumers:
            self._deadlines.loaded(consumers, now)
            self._record_loaded(consumers.group_id, len(consumers.members), consumers.group_epoch.value, why, now)
        self._schedule_expiry(now, self._config.offsets_retention_check_interval_ms)
        return Result(records, Outcome(None, self._rebalance.pop_completions()))

    def _record_loaded(self, group_id: str, members: int, generation: int, why: str, now: Moment) -> None:
        if why and members:
            reason = f"{why}; {members} member{'' if members == 1 else 's'}, each with a fresh session"
            self.journal.record(group_id, "loaded", now, NO_CLIENT, reason, generation)

    # ---- consumer groups

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, now: Moment
    ) -> Result[CoordinatorRecord, Outcome[ConsumerGroupHeartbeatResponse]]:
        """ConsumerGroupHeartbeat; a classic group is upgraded if a member joins and the policy allows it.

        Raises:
            ApiError: as `Heartbeats.heartbeat`.
        """
        classic = self.groups.find(request.group_id)
        overrides = self._group_configs(request.group_id)
        change, response = self.heartbeats.heartbeat(request, caller, now, overrides, classic)
        return self._changed(change, response)

    def _changed(self, change: Change, response: ResponseT | None) -> Result[CoordinatorRecord, Outcome[ResponseT]]:
        outcome = Outcome(response, self._rebalance.pop_completions(), change.pending)
        return Result(change.records, outcome)

    # ---- members of the classic protocol, in groups of either kind

    def join(
        self, request: JoinGroupRequest, caller: Caller, now: Moment
    ) -> Result[CoordinatorRecord, Outcome[JoinGroupResponse]]:
        """JoinGroup."""
        group = self._consumers_with_members(request.group_id)
        if group is None:
            return self.membership.join(request, caller, now)
        try:
            return self._changed(*self._classic_members.join(group, request, caller, now))
        except ApiError as error:
            member_id = error.message if error.code is ErrorCode.MEMBER_ID_REQUIRED else ""
            return Result([], Outcome(join_error(error.code, member_id)))

    def sync(
        self, request: SyncGroupRequest, caller: Caller, now: Moment
    ) -> Result[CoordinatorRecord, Outcome[SyncGroupResponse]]:
        """SyncGroup. Raises ApiError as `Membership.sync`."""
        group = self._consumers_with_members(request.group_id)
        if group is None:
            return self.membership.sync(request, caller, now)
        return Result([], Outcome(self._classic_members.sync(group, request, now)))

    def classic_heartbeat(
        self, request: HeartbeatRequest, now: Moment
    ) -> Result[CoordinatorRecord, Outcome[HeartbeatResponse]]:
        """Heartbeat. Raises ApiError as `Membership.heartbeat`."""
        group = self._consumers_with_members(request.group_id)
        if group is None:
            return self.membership.heartbeat(request, now)
        return Result([], Outcome(self._classic_members.heartbeat(group, request, now)))

    def leave(self, request: LeaveGroupRequest, now: Moment) -> Result[CoordinatorRecord, Outcome[LeaveGroupResponse]]:
        """LeaveGroup."""
        group = self._consumers_with_members(request.group_id)
        if group is None:
            return self.membership.leave(request, now)
        return self._changed(*self._classic_members.leave(group, request, now))

    def _consumers_with_members(self, group_id: str) -> ConsumerGroup | None:
        group = self.consumers.find(group_id)
        return group if group is not None and group.members else None

    def complete_write(
        self, pending: PendingWrite, error: ErrorCode, now: Moment
    ) -> Result[CoordinatorRecord, Outcome[None]]:
        """Complete a write that is committed (`error` NONE) or failed."""
        if not isinstance(pending, StoreMembers):
            return self.membership.complete_write(pending, error, now)
        self._migration.complete_write(pending, error, now)
        return Result([], Outcome(None, self._rebalance.pop_completions()))

    # ---- empty consumer groups, and descriptions

    def make_room_for_classic(self, group_id: str) -> Result[CoordinatorRecord, Outcome[bool]]:
        """Remove a consumer group without members so that a classic member can use its id; its offsets stay."""
        group = self.consumers.find(group_id)
        if group is None or group.members:
            return Result([], Outcome(False))
        return Result(group_tombstones(group), Outcome(True))

    def describe_classics(
        self, group_ids: Sequence[str], api_version: int
    ) -> Result[CoordinatorRecord, Outcome[list[DescribedGroup]]]:
        """DescribeGroups, in the order requested."""
        return describe_groups(self.groups, group_ids, api_version, lambda each: self.consumers.find(each) is not None)

    def describe_consumers(
        self, group_ids: Sequence[str]
    ) -> Result[CoordinatorRecord, Outcome[list[DescribedConsumerGroup]]]:
        """ConsumerGroupDescribe, in the order requested."""
        default = self.heartbeats.default_assignor
        described = describe_consumer_groups(
            self.consumers, group_ids, self._topics(), default, lambda each: self.groups.find(each) is not None
        )
        return Result([], Outcome(described))

    def list_groups(
        self, states: Sequence[str], types: Sequence[str]
    ) -> Result[CoordinatorRecord, Outcome[list[ListedGroup]]]:
        """All groups in one of the states and of one of the types, in any case; an empty filter accepts all."""
        wanted_states, wanted_types = [each.lower() for each in states], [each.lower() for each in types]
        listed = list_classic_groups(self.groups, wanted_states, wanted_types)
        return Result([], Outcome(listed + list_consumer_groups(self.consumers, wanted_states, wanted_types)))

    def next_deadline_ms(self) -> int | None:
        """The monotonic time at which `on_deadline` is due; None if there is no deadline."""
        return self.timers.next_deadline_ms()

    def on_deadline(self, now: Moment) -> Result[CoordinatorRecord, Outcome[None]]:
        """Handle the earliest deadline at or before `now`, if any."""
        key = self.timers.pop_expired(now.monotonic_ms)
        if key is None:
            return Result([], Outcome(None))
        if key == EXPIRY_TIMER:
            return self._expire(now)
        if key.kind in CONSUMER_KINDS:
            return self._on_consumer_deadline(key, now)
        records: Records = []
        group = self.groups.find(key.group_id)
        if group is not None:
            if key.kind == "session":
                records = self._rebalance.on_session_timer(group, key.member_id, now)
            elif key.kind == "join":
                records = self._rebalance.on_join_timer(group, now)
            else:
                records = self._rebalance.on_sync_timer(group, now)
        return Result(records, Outcome(None, self._rebalance.pop_completions()))

    def _on_consumer_deadline(self, key: TimerKey, now: Moment) -> Result[CoordinatorRecord, Outcome[None]]:
        group = self.consumers.find(key.group_id)
        if group is None or not self._deadlines.is_due(group, key):
            return Result([], Outcome(None))
        _log.debug("consumer removed", group=key.group_id, member=key.member_id, reason=REASONS[key.kind])
        gone = {key.member_id: REASONS[key.kind]}
        return self._changed(self._migration.remove(group, gone, now, "removed"), None)

    def _expire(self, now: Moment) -> Result[CoordinatorRecord, Outcome[None]]:
        result = self.commits.expire(now, MAX_EXPIRED_PER_RUN)
        full = len(result.records) >= MAX_EXPIRED_PER_RUN
        self._schedule_expiry(now, EXPIRY_PAUSE_MS if full else self._config.offsets_retention_check_interval_ms)
        return result

    def _schedule_expiry(self, now: Moment, delay_ms: int) -> None:
        self.timers.set(EXPIRY_TIMER, now.monotonic_ms + delay_ms)
