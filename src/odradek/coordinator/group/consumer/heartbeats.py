"""ConsumerGroupHeartbeat: the one request of the consumer protocol, by which members join, stay, change and leave.

    check the request -> find or create the member -> store its metadata, with all consequences (`group_update`)
    -> one step of this member towards its target

Every change is a record; only deadlines are soft: a member that sends no heartbeat for its session timeout, or does not
revoke partitions within its rebalance timeout, is removed. Source: KIP-848, KIP-1082 (the client
makes the member id); Kafka GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.group import ClassicGroup, Moment
from odradek.coordinator.group.consumer.access import check_max_size
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.deadlines import REVOCATION, Deadlines
from odradek.coordinator.group.consumer.group_update import GroupUpdate
from odradek.coordinator.group.consumer.migration import Change, Migration, identity_of
from odradek.coordinator.group.consumer.records import current_record
from odradek.coordinator.group.consumer.regex import EVERY_TOPIC, MATCHED_AFTER_MS, TopicFilter, TopicMatches
from odradek.coordinator.group.consumer.registry import ConsumerGroups
from odradek.coordinator.group.consumer.state import (
    JOINING_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
    NO_PARTITIONS,
    ConsumerGroup,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    Partitions,
    by_topic,
)
from odradek.coordinator.group.consumer.topics import TopicsView
from odradek.coordinator.group.journal import Journal
from odradek.coordinator.group.outcome import StoreMembers
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.settings.rules import ASSIGNOR_NAMES

# From this version on the client generates the member id (KIP-1082).
CLIENT_MAKES_ID_VERSION = 1


@dataclass(frozen=True, slots=True)
class HeartbeatCaller:
    """The sender of a heartbeat.

    Attributes:
        new_member_id: the id for a new member of version 0.
        may_describe: which topics its regular expression can match.
    """

    client_id: str
    client_host: str
    api_version: int
    new_member_id: str
    may_describe: TopicFilter = EVERY_TOPIC


@dataclass(frozen=True, slots=True)
class HeartbeatMember:
    """The member of a heartbeat.

    Attributes:
        metadata: None for a new member.
        replaces: the former id of a static member that returned under this one.
    """

    member_id: str
    metadata: MemberMetadata | None
    current: CurrentAssignment
    replaces: str | None = None


class Heartbeats:
    """The operations of the consumer protocol, for one shard's groups and timers."""

    def __init__(
        self,
        config: ConsumerGroupConfig,
        groups: ConsumerGroups,
        deadlines: Deadlines,
        migration: Migration,
        topics: Callable[[], TopicsView],
        journal: Journal,
        assignment_interval_ms: Callable[[str], int],
        matches: TopicMatches,
    ) -> None:
        """
        Args:
            assignment_interval_ms: group id → minimum age in ms of its assignment before the next one is made.
            matches: the topics that the expressions of subscriptions match.
        """
        self._matches = matches
        self._journal = journal
        self._config = config
        self._groups = groups
        self._deadlines = deadlines
        self._migration = migration
        self._topics = topics
        self._assignment_interval_ms = assignment_interval_ms
        self._assignors = [ASSIGNOR_NAMES[name] for name in config.assignors]

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: HeartbeatCaller,
        now: Moment,
        overrides: Mapping[str, str],
        classic: ClassicGroup | None = None,
    ) -> tuple[Change, ConsumerGroupHeartbeatResponse]:
        """Handle a heartbeat of a member that joins, stays or leaves.

        Args:
            overrides: the group's settings.
            classic: the classic group of this id, if any.

        Raises:
            ApiError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION, GROUP_ID_NOT_FOUND,
                GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID,
                UNRELEASED_INSTANCE_ID.
        """
        check_request(request, caller.api_version)
        self._check_assignor(request.server_assignor)
        group = self._groups.find(request.group_id)
        if group is None and request.member_epoch != JOINING_EPOCH:
            problem = "not found" if classic is None else "is not a consumer group"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {problem}.")
        if group is not None and request.member_epoch < JOINING_EPOCH:
            response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
            return self._leave(group, request, now), response
        before = Change([])
        if group is None and classic is not None:
            group, before = self._migration.upgrade(classic, now)
        elif group is None:
            group = self._groups.new(request.group_id)
        member_id = request.member_id or caller.new_member_id
        check_max_size(group, member_id, self._config.max_size)
        owned = _owned(request)
        found = self._find(group, member_id, request, owned)
        draft = self._draft(group, now, caller.may_describe)
        current = self._keep_alive(draft, found, request, caller, owned, now)
        self._record_in_journal(draft, found, current, now)
        if classic is not None:
            self._migration.retire(classic, group, now)
        interval_ms = self._config.heartbeat_interval_of(overrides)
        if draft.delay_ms:
            # The first heartbeat after the delay makes the next assignment: this member's at the latest.
            interval_ms = min(interval_ms, draft.delay_ms)
        if draft.is_unresolved:
            interval_ms = min(interval_ms, MATCHED_AFTER_MS)
        changed = found.current.assigned != current.assigned
        sends = group.must_send_assignment(member_id, current.assigned, owned, changed)
        sends = sends or request.member_epoch == JOINING_EPOCH or _is_full(request)
        response = _answer(current, member_id, interval_ms, sends)
        pending = StoreMembers(group.group_id) if found.replaces is not None else before.pending
        return Change([*before.records, *draft.records], pending), response

    @property
    def default_assignor(self) -> str:
        """The assignor of groups whose members request none."""
        return self._assignors[0]

    def regex_of(self, request: ConsumerGroupHeartbeatRequest) -> str | None:
        """The regular expression of the member's subscription, if any."""
        group = self._groups.find(request.group_id)
        if request.subscribed_topic_regex is not None or group is None:
            return request.subscribed_topic_regex or None
        holder = group.static_members.get(request.instance_id) if request.instance_id is not None else None
        member = group.members.get(holder or request.member_id)
        return None if member is None else member.regex

    def _draft(self, group: ConsumerGroup, now: Moment, may_describe: TopicFilter) -> GroupUpdate:
        interval_ms = self._assignment_interval_ms(group.group_id)
        return GroupUpdate(
            group, self._topics(), self.default_assignor, now.wall_ms, interval_ms, self._matches, may_describe
        )

    # ---- validation

    def _check_assignor(self, name: str | None) -> None:
        if name is not None and name not in self._assignors:
            raise ApiError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {name} is not supported. Supported assignors: {', '.join(self._assignors)}.",
            )

    # ---- finding the member

    def _find(
        self, group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest, owned: Partitions | None
    ) -> HeartbeatMember:
        if request.instance_id is not None:
            return self._find_static(group, member_id, request.instance_id, request.member_epoch, owned)
        metadata = group.members.get(member_id)
        if metadata is None:
            if request.member_epoch != JOINING_EPOCH:
                raise _unknown_member(group.group_id, member_id)
            return HeartbeatMember(member_id, None, CurrentAssignment())
        current = group.current_of(member_id)
        if request.member_epoch != JOINING_EPOCH:
            # A fenced member has revoked all partitions and rejoins with its id, at its stored epoch (KAFKA-19233).
            # Ids are
            # random: a client that knows one is the member.
            _check_epoch(current, request.member_epoch, owned)
        return HeartbeatMember(member_id, metadata, current)

    def _find_static(
        self, group: ConsumerGroup, member_id: str, instance_id: str, epoch: int, owned: Partitions | None
    ) -> HeartbeatMember:
        holder = group.static_members.get(instance_id)
        if holder is None:
            if epoch != JOINING_EPOCH:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            return HeartbeatMember(member_id, None, CurrentAssignment())
        metadata, current = group.members[holder], group.current_of(holder)
        if holder == member_id and epoch != JOINING_EPOCH:
            _check_epoch(current, epoch, owned)
            return HeartbeatMember(member_id, metadata, current)
        if epoch != JOINING_EPOCH:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is now the member {holder}")
        # This also refuses the member itself if it did not get the answer to its join, as in Kafka.
        if metadata.classic is None and current.member_epoch != LEAVING_FOR_A_WHILE_EPOCH:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by the member {holder}.",
            )
        back = replace(current, member_epoch=JOINING_EPOCH, previous_member_epoch=JOINING_EPOCH)
        return HeartbeatMember(member_id, metadata, back, replaces=holder if holder != member_id else None)

    # ---- joining and staying

    def _keep_alive(
        self,
        draft: GroupUpdate,
        found: HeartbeatMember,
        request: ConsumerGroupHeartbeatRequest,
        caller: HeartbeatCaller,
        owned: Partitions | None,
        now: Moment,
    ) -> CurrentAssignment:
        group_id, member_id = draft.group.group_id, found.member_id
        if found.replaces is not None:
            draft.replace_static(found.replaces, member_id)
        metadata = _updated(found.metadata or MemberMetadata(), request, caller)
        draft.put(member_id, found.metadata, metadata)
        current = draft.step(member_id, found.current, owned, found.replaces)
        if found.replaces is not None:
            self._deadlines.cancel(group_id, found.replaces)
        self._deadlines.cancel_classic(group_id, member_id)
        self._deadlines.assignment_changed(group_id, member_id, metadata, found.current, current, now)
        return current

    def _record_in_journal(
        self, draft: GroupUpdate, found: HeartbeatMember, current: CurrentAssignment, now: Moment
    ) -> None:
        group_id, member_id = draft.group.group_id, found.member_id
        identity = identity_of(member_id, draft.members[member_id])
        if found.replaces is not None:
            self._journal.record(group_id, "returned", now, identity, f"it takes the place of {found.replaces}")
        elif found.metadata is None:
            self._journal.record(group_id, "joined", now, identity, "", draft.group_epoch)
        draft.record_in_journal(self._journal, now, found.current, current)

    # ---- leaving

    def _leave(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, now: Moment) -> Change:
        member_id = request.member_id
        if request.instance_id is not None:
            holder = group.static_members.get(request.instance_id)
            if holder is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
            if holder != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{request.instance_id} is now the member {holder}")
        if member_id not in group.members:
            raise _unknown_member(group.group_id, member_id)
        if request.member_epoch == LEAVING_FOR_A_WHILE_EPOCH:
            # The member keeps its partitions until it returns or its session expires.
            current = group.current_of(member_id)
            away = replace(
                current,
                member_epoch=LEAVING_FOR_A_WHILE_EPOCH,
                previous_member_epoch=current.member_epoch,
                state=MemberState.STABLE,
                pending_revocation=NO_PARTITIONS,
            )
            self._deadlines.finish(REVOCATION, group.group_id, member_id)
            identity = identity_of(member_id, group.members[member_id])
            self._journal.record(group.group_id, "away", now, identity, "a static member that keeps its partitions")
            return Change([current_record(group.group_id, member_id, away)])
        return self._migration.remove(group, {member_id: ""}, now, "left")


def _answer(
    current: CurrentAssignment, member_id: str, interval_ms: int, with_assignment: bool
) -> ConsumerGroupHeartbeatResponse:
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id, member_epoch=current.member_epoch, heartbeat_interval_ms=interval_ms
    )
    if with_assignment:
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=ids)
                for topic_id, ids in by_topic(current.assigned).items()
            ]
        )
    return response


def check_request(request: ConsumerGroupHeartbeatRequest, api_version: int) -> None:
    """Validate what holds for every request in any group. Raises ApiError: INVALID_REQUEST."""
    problem = _validate(request, api_version)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)


def _validate(request: ConsumerGroupHeartbeatRequest, api_version: int) -> str | None:
    """The error text of an invalid request; None if it is valid."""
    if not request.group_id:
        return "GroupId can't be empty."
    if _is_blank(request.instance_id):
        return "InstanceId can't be empty."
    if _is_blank(request.rack_id):
        return "RackId can't be empty."
    names_itself = api_version >= CLIENT_MAKES_ID_VERSION or request.member_epoch != JOINING_EPOCH
    if names_itself and _is_blank(request.member_id):
        return "MemberId can't be empty."
    if request.member_epoch == JOINING_EPOCH:
        return _problem_of_joining(request)
    if request.member_epoch == LEAVING_FOR_A_WHILE_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    if request.member_epoch < LEAVING_FOR_A_WHILE_EPOCH:
        return f"MemberEpoch is invalid: {request.member_epoch}."
    return None


def _is_blank(text: str | None) -> bool:
    """Whether the text is present and only white space."""
    return text is not None and not text.strip()


def _problem_of_joining(request: ConsumerGroupHeartbeatRequest) -> str | None:
    """The error text of an invalid join: all fields are required, and no partition is owned yet."""
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be set in first request."
    return None


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return frozenset((topic.topic_id, each) for topic in request.topic_partitions for each in topic.partitions)


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether a request has all fields: then its answer has all fields too."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return subscribes and request.rebalance_timeout_ms != -1 and request.topic_partitions is not None


def _check_epoch(current: CurrentAssignment, epoch: int, owned: Partitions | None) -> None:
    """Check a member epoch: it may be one step behind if the response with the new epoch was lost.

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
    """The member's metadata after a request; a field that is not set keeps its value."""
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
        classic=None,
    )
