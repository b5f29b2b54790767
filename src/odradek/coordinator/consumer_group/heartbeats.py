"""ConsumerGroupHeartbeat: the one request of the consumer protocol, by which members join, stay, change and leave.

    check the request -> find or make the member -> note what it says of itself -> new group epoch where something
    changed -> new target assignment where the epoch is ahead -> one step of this member towards its target

Everything that changes is a record; the deadlines alone are soft: a member that is not heard of for its session
timeout, or does not give up partitions within its rebalance timeout, is removed. Source: KIP-848, KIP-1082 (the client
makes the member id); Kafka GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.consumer_group.assignors import ASSIGNORS, Subscriber
from odradek.coordinator.consumer_group.config import ConsumerGroupConfig
from odradek.coordinator.consumer_group.queries import preferred_assignor
from odradek.coordinator.consumer_group.reconcile import next_assignment
from odradek.coordinator.consumer_group.records import (
    ConsumerGroupRecord,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    regex_record,
    regex_tombstone,
    target_epoch_record,
    target_record,
)
from odradek.coordinator.consumer_group.regex import matching_topics
from odradek.coordinator.consumer_group.registry import ConsumerGroups
from odradek.coordinator.consumer_group.state import (
    JOINING_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
    NO_PARTITIONS,
    ConsumerGroup,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    Partitions,
    ResolvedRegex,
    by_topic,
)
from odradek.coordinator.consumer_group.topics import TopicsView
from odradek.coordinator.group.group import Moment
from odradek.coordinator.group.timers import TimerKey, Timers
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

Records = list[ConsumerGroupRecord]
SESSION = "consumer-session"
REVOCATION = "consumer-revocation"
# From this version on the client makes the member id itself (KIP-1082).
CLIENT_MAKES_ID_VERSION = 1


@dataclass(frozen=True, slots=True)
class HeartbeatCaller:
    """Who sends a heartbeat. `new_member_id` is the id that a member of version 0 gets."""

    client_id: str
    client_host: str
    api_version: int
    new_member_id: str


@dataclass(frozen=True, slots=True)
class Found:
    """The member that a heartbeat speaks for.

    Attributes:
        metadata: None where it is new.
        replaces: the id that a static member had before it came back under this one.
    """

    member_id: str
    metadata: MemberMetadata | None
    current: CurrentAssignment
    replaces: str | None = None


@dataclass(slots=True)
class _Group:
    """The group as it will be once the records of this heartbeat are replayed."""

    members: dict[str, MemberMetadata]
    regexes: dict[str, ResolvedRegex]
    target: dict[str, Partitions]
    group_epoch: int
    assignment_epoch: int

    def topic_names(self, member: MemberMetadata) -> list[str]:
        resolved = self.regexes.get(member.regex) if member.regex is not None else None
        return [*member.topic_names, *(resolved.topic_names if resolved is not None else ())]


class Heartbeats:
    """The operations of the consumer protocol, over one shard's groups and timers."""

    def __init__(
        self, config: ConsumerGroupConfig, groups: ConsumerGroups, timers: Timers, topics: Callable[[], TopicsView]
    ) -> None:
        self._config = config
        self._groups = groups
        self._timers = timers
        self._topics = topics
        self._assignors = [name for name in config.assignors if name in ASSIGNORS] or list(ASSIGNORS)

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: HeartbeatCaller,
        now: Moment,
        overrides: Mapping[str, str],
    ) -> tuple[Records, ConsumerGroupHeartbeatResponse]:
        """One heartbeat of a member that joins, stays or leaves.

        Args:
            overrides: the settings of this group's own.

        Raises:
            ApiError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION, GROUP_ID_NOT_FOUND,
                GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID,
                UNRELEASED_INSTANCE_ID.
        """
        self._check(request, caller.api_version)
        if request.member_epoch < JOINING_EPOCH:
            return self._leave(request, now)
        group = self._groups.find(request.group_id)
        if group is None:
            if request.member_epoch != JOINING_EPOCH:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
            group = self._groups.new(request.group_id)
        member_id = request.member_id or caller.new_member_id
        if member_id not in group.members and len(group.members) >= self._config.max_size:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self._config.max_size} members.",
            )
        owned = _owned(request)
        found = self._find(group, member_id, request, owned)
        return self._stay(group, found, request, caller, owned, now, overrides)

    @property
    def default_assignor(self) -> str:
        """For groups whose members ask for none."""
        return self._assignors[0]

    # ---- what may be asked

    def _check(self, request: ConsumerGroupHeartbeatRequest, api_version: int) -> None:
        problem = _problem(request, api_version)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, problem)
        name = request.server_assignor
        if name is not None and name not in self._assignors:
            raise ApiError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {name} is not supported. Supported assignors: {', '.join(self._assignors)}.",
            )

    # ---- whose heartbeat it is

    def _find(
        self, group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest, owned: Partitions | None
    ) -> Found:
        if request.instance_id is not None:
            return self._find_static(group, member_id, request.instance_id, request.member_epoch, owned)
        metadata = group.members.get(member_id)
        if metadata is None:
            if request.member_epoch != JOINING_EPOCH:
                raise _unknown_member(group.group_id, member_id)
            return Found(member_id, None, CurrentAssignment())
        current = group.current_of(member_id)
        if request.member_epoch != JOINING_EPOCH:
            # A member that was fenced has given everything up and joins again under its id. Kafka lets it wait for its
            # own session to time out.
            _check_epoch(current, request.member_epoch, owned)
        return Found(member_id, metadata, current)

    def _find_static(
        self, group: ConsumerGroup, member_id: str, instance_id: str, epoch: int, owned: Partitions | None
    ) -> Found:
        holder = group.static_members.get(instance_id)
        if holder is None:
            if epoch != JOINING_EPOCH:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            return Found(member_id, None, CurrentAssignment())
        metadata, current = group.members[holder], group.current_of(holder)
        if holder == member_id:
            if epoch != JOINING_EPOCH:
                _check_epoch(current, epoch, owned)
            return Found(member_id, metadata, current)
        if epoch != JOINING_EPOCH:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is now the member {holder}")
        if current.member_epoch != LEAVING_FOR_A_WHILE_EPOCH:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by the member {holder}.",
            )
        back = replace(current, member_epoch=JOINING_EPOCH, previous_member_epoch=JOINING_EPOCH)
        return Found(member_id, metadata, back, replaces=holder)

    # ---- joining and staying

    def _stay(
        self,
        group: ConsumerGroup,
        found: Found,
        request: ConsumerGroupHeartbeatRequest,
        caller: HeartbeatCaller,
        owned: Partitions | None,
        now: Moment,
        overrides: Mapping[str, str],
    ) -> tuple[Records, ConsumerGroupHeartbeatResponse]:
        group_id, member_id = group.group_id, found.member_id
        view = self._topics()
        records: Records = []
        after = _Group(
            dict(group.members),
            dict(group.regexes),
            dict(group.target),
            group.group_epoch.value,
            group.assignment_epoch.value,
        )
        if found.replaces is not None:
            records += self._replace(after, found, group_id)
        metadata = _updated(found.metadata or MemberMetadata(), request, caller)
        if found.metadata != metadata or found.replaces is not None:
            records.append(member_record(group_id, member_id, metadata))
        after.members[member_id] = metadata
        records += _resolve_regexes(group, after, found.metadata, metadata, view, now.wall_ms)
        bumped = self._maybe_bump(group, after, found.metadata, metadata, view)
        if bumped is not None:
            records.append(bumped)
        if after.group_epoch > after.assignment_epoch:
            records += self._assign(group_id, after, view, now.wall_ms)
        current = next_assignment(
            found.current,
            target=after.target.get(member_id, NO_PARTITIONS),
            target_epoch=after.assignment_epoch,
            owned=owned,
            is_free=lambda partition: group.owner(partition) in (None, member_id, found.replaces),
        )
        if current != found.current or found.metadata is None or found.replaces is not None:
            records.append(current_record(group_id, member_id, current))
        self._set_timers(group_id, member_id, metadata, found.current, current, now, overrides)
        return records, self._answer(request, found.current, current, member_id, overrides)

    def _replace(self, after: _Group, found: Found, group_id: str) -> Records:
        """The static member takes over, under its new id, all that it had under the old one."""
        old_id, new_id = found.replaces, found.member_id
        assert old_id is not None and found.metadata is not None
        del after.members[old_id]
        after.members[new_id] = found.metadata
        after.target[new_id] = after.target.pop(old_id, NO_PARTITIONS)
        self._cancel_timers(group_id, old_id)
        return [*member_tombstones(group_id, old_id), target_record(group_id, new_id, after.target[new_id])]

    def _maybe_bump(
        self,
        group: ConsumerGroup,
        after: _Group,
        before: MemberMetadata | None,
        metadata: MemberMetadata,
        view: TopicsView,
    ) -> ConsumerGroupRecord | None:
        """A new group epoch where a subscription, or a topic that somebody subscribes to, is not what it was."""
        changed = before is None or set(before.topic_names) != set(metadata.topic_names)
        changed = changed or (before is not None and before.regex != metadata.regex)
        if not changed and group.checked_version == view.version:
            return None
        names = [name for member in after.members.values() for name in after.topic_names(member)]
        metadata_hash = view.metadata_hash(names)
        group.checked_version = view.version
        if not changed and metadata_hash == group.metadata_hash.value:
            return None
        after.group_epoch += 1
        return epoch_record(group.group_id, after.group_epoch, metadata_hash)

    def _assign(self, group_id: str, after: _Group, view: TopicsView, now_ms: int) -> Records:
        """A target for the present group epoch; a record for each member whose part changes."""
        subscribers: dict[str, Subscriber] = {}
        for member_id, member in after.members.items():
            topics = (view.by_name.get(name) for name in after.topic_names(member))
            subscribers[member_id] = Subscriber(
                frozenset(topic.topic_id for topic in topics if topic is not None),
                after.target.get(member_id, NO_PARTITIONS),
                member.instance_id,
                member.rack_id,
            )
        wanted = {topic_id for each in subscribers.values() for topic_id in each.topic_ids}
        assign = ASSIGNORS[preferred_assignor(after.members.values(), self.default_assignor)]
        assigned = assign(subscribers, {topic_id: view.by_id[topic_id] for topic_id in sorted(wanted)})
        records: Records = []
        for member_id, partitions in assigned.items():
            if after.target.get(member_id) != partitions:
                records.append(target_record(group_id, member_id, partitions))
                after.target[member_id] = partitions
        after.assignment_epoch = after.group_epoch
        records.append(target_epoch_record(group_id, after.assignment_epoch, now_ms))
        return records

    def _answer(
        self,
        request: ConsumerGroupHeartbeatRequest,
        before: CurrentAssignment,
        after: CurrentAssignment,
        member_id: str,
        overrides: Mapping[str, str],
    ) -> ConsumerGroupHeartbeatResponse:
        """The assignment goes along where it changed, and to a member that says everything of itself."""
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=self._config.heartbeat_interval_of(overrides),
        )
        if request.member_epoch == JOINING_EPOCH or _is_full(request) or before.assigned != after.assigned:
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=ids)
                    for topic_id, ids in by_topic(after.assigned).items()
                ]
            )
        return response

    # ---- leaving

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, now: Moment
    ) -> tuple[Records, ConsumerGroupHeartbeatResponse]:
        group = self._groups.find(request.group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        member_id = request.member_id
        response = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
        if request.instance_id is not None:
            holder = group.static_members.get(request.instance_id)
            if holder is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
            if holder != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{request.instance_id} is now the member {holder}")
        if member_id not in group.members:
            raise _unknown_member(group.group_id, member_id)
        if request.member_epoch == LEAVING_FOR_A_WHILE_EPOCH:
            # Its partitions stay its own until it is back or its session times out.
            current = group.current_of(member_id)
            away = replace(
                current,
                member_epoch=LEAVING_FOR_A_WHILE_EPOCH,
                previous_member_epoch=current.member_epoch,
                state=MemberState.STABLE,
                pending_revocation=NO_PARTITIONS,
            )
            self._timers.cancel(TimerKey(REVOCATION, group.group_id, member_id))
            return [current_record(group.group_id, member_id, away)], response
        return self.remove(group, member_id), response

    def remove(self, group: ConsumerGroup, member_id: str) -> Records:
        """The member is gone: its partitions are free, and the others get a new target."""
        self._cancel_timers(group.group_id, member_id)
        records = member_tombstones(group.group_id, member_id)
        metadata = group.members[member_id]
        others = [each for other_id, each in group.members.items() if other_id != member_id]
        if metadata.regex is not None and all(each.regex != metadata.regex for each in others):
            records.append(regex_tombstone(group.group_id, metadata.regex))
        names = [name for each in others for name in group.topics_of(each)]
        metadata_hash = self._topics().metadata_hash(names)
        records.append(epoch_record(group.group_id, group.group_epoch.value + 1, metadata_hash))
        return records

    # ---- deadlines

    def loaded(self, now: Moment, overrides_of: Callable[[str], Mapping[str, str]]) -> None:
        """Give every member a fresh session, and those that were to give something up as long as before."""
        for group in self._groups:
            overrides = overrides_of(group.group_id)
            for member_id, metadata in group.members.items():
                current = group.current_of(member_id)
                self._set_timers(group.group_id, member_id, metadata, None, current, now, overrides)

    def on_deadline(self, key: TimerKey) -> tuple[Records, str | None]:
        """A session or a revocation timed out: the records that remove the member, and why in words."""
        group = self._groups.find(key.group_id)
        if group is None or key.member_id not in group.members:
            return [], None
        if key.kind == SESSION:
            return self.remove(group, key.member_id), "its session timed out"
        if group.current_of(key.member_id).state is not MemberState.UNREVOKED_PARTITIONS:
            return [], None
        return self.remove(group, key.member_id), "it did not give up its partitions within its rebalance timeout"

    def _set_timers(
        self,
        group_id: str,
        member_id: str,
        metadata: MemberMetadata,
        before: CurrentAssignment | None,
        after: CurrentAssignment,
        now: Moment,
        overrides: Mapping[str, str],
    ) -> None:
        session_ms = self._config.session_timeout_of(overrides)
        self._timers.set(TimerKey(SESSION, group_id, member_id), now.monotonic_ms + session_ms)
        key = TimerKey(REVOCATION, group_id, member_id)
        if after.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.cancel(key)
        elif before != after:
            self._timers.set(key, now.monotonic_ms + metadata.rebalance_timeout_ms)

    def _cancel_timers(self, group_id: str, member_id: str) -> None:
        self._timers.cancel(TimerKey(SESSION, group_id, member_id))
        self._timers.cancel(TimerKey(REVOCATION, group_id, member_id))


def _problem(request: ConsumerGroupHeartbeatRequest, api_version: int) -> str | None:
    """What is wrong with the request itself; None where nothing is."""
    if not request.group_id:
        return "GroupId can't be empty."
    if request.instance_id is not None and not request.instance_id.strip():
        return "InstanceId can't be empty."
    if request.rack_id is not None and not request.rack_id.strip():
        return "RackId can't be empty."
    names_itself = api_version >= CLIENT_MAKES_ID_VERSION or request.member_epoch != JOINING_EPOCH
    if names_itself and not request.member_id.strip():
        return "MemberId can't be empty."
    if request.member_epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if request.topic_partitions is None or request.topic_partitions:
            return "TopicPartitions must be empty when (re-)joining."
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be set in first request."
    elif request.member_epoch == LEAVING_FOR_A_WHILE_EPOCH:
        if request.instance_id is None:
            return "InstanceId can't be null."
    elif request.member_epoch < LEAVING_FOR_A_WHILE_EPOCH:
        return f"MemberEpoch is invalid: {request.member_epoch}."
    return None


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return frozenset((topic.topic_id, each) for topic in request.topic_partitions for each in topic.partitions)


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether a member says everything of itself: it asks to be told everything too."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return subscribes and request.rebalance_timeout_ms != -1 and request.topic_partitions is not None


def _check_epoch(current: CurrentAssignment, epoch: int, owned: Partitions | None) -> None:
    """A member may be one step behind where the answer that told it the new epoch was lost.

    Raises:
        ApiError: FENCED_MEMBER_EPOCH.
    """
    if epoch == current.member_epoch:
        return
    lost_answer = epoch == current.previous_member_epoch and owned is not None and owned <= current.assigned
    if epoch > current.member_epoch or not lost_answer:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has an epoch ({epoch}) that is not the one known by the group coordinator "
            f"({current.member_epoch}). The member must abandon all its partitions and rejoin.",
        )


def _unknown_member(group_id: str, member_id: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def _updated(before: MemberMetadata, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller) -> MemberMetadata:
    """What a member says of itself, on top of what it said before; a field that is not set stays as it was."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return MemberMetadata(
        instance_id=request.instance_id if request.instance_id is not None else before.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else before.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topic_names=before.topic_names if names is None else tuple(names),
        regex=before.regex if regex is None else (regex or None),
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=request.server_assignor if request.server_assignor is not None else before.server_assignor,
    )


def _resolve_regexes(
    group: ConsumerGroup,
    after: _Group,
    before: MemberMetadata | None,
    metadata: MemberMetadata,
    view: TopicsView,
    now_ms: int,
) -> Records:
    """Match the member's regular expression against the present topics; forget one that nobody uses any more."""
    records: Records = []
    regex = metadata.regex
    if regex is not None:
        known = after.regexes.get(regex)
        if known is None or group.matched_versions.get(regex) != view.version:
            names = matching_topics(regex, view)
            group.matched_versions[regex] = view.version
            if known is None or known.topic_names != names:
                after.regexes[regex] = ResolvedRegex(names, view.version, now_ms)
                records.append(regex_record(group.group_id, regex, after.regexes[regex]))
    left = before.regex if before is not None else None
    if left is not None and left != regex and all(each.regex != left for each in after.members.values()):
        after.regexes.pop(left, None)
        group.matched_versions.pop(left, None)
        records.append(regex_tombstone(group.group_id, left))
    return records
