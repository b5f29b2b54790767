"""One shard of the group coordinator at run time: its machine, parked requests, tasks and timer.

JoinGroup, SyncGroup and LeaveGroup run in tasks of their shard, not of the connection: if a client disconnects
meanwhile, the other clients affected by its request must still be answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock
from odradek.coordinator.group.classic.group import Completion, Moment
from odradek.coordinator.group.classic.membership import Caller
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.regex import TopicMatches
from odradek.coordinator.group.consumer.topics import TopicsView
from odradek.coordinator.group.journal import BufferedEvent, MemberIdentity
from odradek.coordinator.group.machine import GroupMachine
from odradek.coordinator.group.outcome import Outcome, PendingWrite
from odradek.coordinator.group.records import CoordinatorRecord
from odradek.coordinator.service import answer_code
from odradek.coordinator.shard import CoordinatorShard
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.statemachine.machine import Result
from odradek.statemachine.runtime import MachineLog, State
from odradek.statemachine.timeline import Timeline

_log = get_logger("coordinator.group")

T = TypeVar("T")
Operation = Callable[[], Result[CoordinatorRecord, Outcome[T]]]
MakeLog = Callable[[int, int], MachineLog[CoordinatorRecord, Any]]
FromMember = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | ConsumerGroupHeartbeatRequest
    | OffsetCommitRequest
    | TxnOffsetCommitRequest
)


def _sender(caller: Caller | None) -> tuple[str, str]:
    return (caller.client_id, caller.client_host) if caller is not None else ("", "")


class Shard(CoordinatorShard[CoordinatorRecord]):
    """One partition's machine during one leadership, with its parked requests and tasks."""

    def __init__(
        self,
        config: GroupConfig,
        clock: Clock,
        partition_id: int,
        leader_epoch: int,
        make_log: MakeLog,
        *,
        consumer_config: ConsumerGroupConfig,
        topics: Callable[[], TopicsView],
        group_configs: Callable[[str], Mapping[str, str]],
        assignment_interval_ms: Callable[[str], int],
        max_record_bytes: Callable[[], int],
        matches: TopicMatches,
        election_reason: str,
    ) -> None:
        """
        Args:
            election_reason: why this broker leads the partition, as text.
        """
        self._election_reason = election_reason
        self._clock = clock
        self._timeout_ms = config.offsets_commit_timeout_ms
        timeline = Timeline()
        self.machine = GroupMachine(
            config,
            timeline,
            consumer_config=consumer_config,
            topics=topics,
            group_configs=group_configs,
            assignment_interval_ms=assignment_interval_ms,
            max_record_bytes=max_record_bytes,
            matches=matches,
        )
        log = make_log(partition_id, leader_epoch)
        super().__init__(partition_id, leader_epoch, self.machine, log, timeline, event_log=_log)
        self._parked: dict[int, asyncio.Future[Any]] = {}
        self._next_ticket = 0
        self._wake_up: asyncio.TimerHandle | None = None
        self._wake_up_ms = 0

    def now(self) -> Moment:
        return Moment(self._clock.now_ms(), self._clock.monotonic_ms())

    async def load(self) -> None:
        """Replay the partition, then start every member's session. An unreadable log ends the leadership."""
        try:
            count = await self.runtime.load()
        except OdradekError:
            return  # `_on_failed` has logged the error
        if self.runtime.active:
            level = _log.info if count else _log.debug
            level("groups loaded", partition=self.partition_id, records=count)
            await self._apply(lambda: self.machine.loaded(self.now(), self._election_reason))

    def record_refused(self, request: FromMember, caller: Caller | None, code: ErrorCode, message: str = "") -> None:
        """Record an error response in the journal, if it is of a kind that explains the state of a group."""
        instance_id = getattr(request, "group_instance_id", None) or getattr(request, "instance_id", None)
        identity = MemberIdentity(request.member_id, instance_id, *_sender(caller))
        asked = type(request).__name__.removesuffix("Request")
        self.machine.journal.refused(request.group_id, code, self.now(), identity, message, asked=asked)

    def record_refused_leaves(self, group_id: str, response: LeaveGroupResponse, caller: Caller | None) -> None:
        """Record the error responses of a LeaveGroup's members."""
        for each in response.members:
            identity = MemberIdentity(each.member_id, each.group_instance_id, *_sender(caller))
            code = ErrorCode(each.error_code)
            self.machine.journal.refused(group_id, code, self.now(), identity, asked="LeaveGroup")

    def on_topics_deleted(self, topics: Mapping[str, UUID]) -> None:
        """Remove the offsets of deleted topics, in the background; a shard that is loading leaves them to expiry."""
        if self.runtime.active:
            self.spawn(self._apply(lambda: self.machine.commits.drop_topics(topics)))

    # ---- running operations

    def check_active(self) -> None:
        """Raises ApiError: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
        if not self.runtime.active:
            loading = self.runtime.state in (State.NEW, State.LOADING)
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR)

    async def _run_with_journal(self, operation: Operation[T]) -> Outcome[T]:
        """Run an operation; its journal entries become visible once its records are committed."""
        journal = self.machine.journal
        held: list[BufferedEvent] = []

        def decide() -> Result[CoordinatorRecord, Outcome[T]]:
            journal.hold()
            try:
                result = operation()
                held.extend(journal.pop_held())
                return result
            finally:
                journal.pop_held()

        try:
            outcome = await self.runtime.run(decide, timeout_ms=self._timeout_ms)
        except OdradekError as error:
            # The log's own error code: it is more precise than the client's.
            code = error.code if isinstance(error, ApiError) else answer_code(error)
            if code is ErrorCode.REQUEST_TIMED_OUT:
                journal.write(held)  # it is applied here, and only its commit is unknown
            elif self.runtime.active:
                journal.write_unstored(held, code)
            raise
        journal.write(held)
        return outcome

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation that answers at once and completes no parked request. Raises ApiError."""
        outcome = await self._run_with_journal(operation)
        assert outcome.response is not None and not outcome.completions
        self._schedule_wakeup()
        return outcome.response

    async def run_parked(self, operation: Callable[[int], Result[CoordinatorRecord, Outcome[T]]]) -> T:
        """Run an operation in a task of the shard and wait for its answer, or for its ticket to be completed."""
        ticket = self._next_ticket
        self._next_ticket += 1
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._parked[ticket] = future
        self.spawn(self._apply(lambda: operation(ticket), ticket))
        try:
            return await future
        finally:
            self._parked.pop(ticket, None)

    async def _apply(self, operation: Operation[Any], ticket: int | None = None) -> None:
        """Run an operation, answer its caller and the requests that it completes, and complete its write."""
        decided: list[Outcome[Any]] = []

        def decide() -> Result[CoordinatorRecord, Outcome[Any]]:
            result = operation()
            decided.append(result.response)
            return result

        code = ErrorCode.NONE
        try:
            await self._run_with_journal(decide)
        except OdradekError as error:
            code = answer_code(error)
            # A request that waits for its own write is answered when that is completed; any other answer assumed that
            # the write succeeds, so the request fails.
            if ticket is not None and not (decided and decided[-1].pending and decided[-1].response is None):
                self._fail(ticket, code, str(error))
        except Exception as error:
            _log.bug("a group operation failed", error, partition=self.partition_id)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            if ticket is not None:
                self._fail(ticket, code, type(error).__name__)
        if not self.runtime.active:
            return
        for outcome in decided:
            self._release(outcome.completions)
            if ticket is not None and outcome.response is not None:
                self._release([Completion(ticket, outcome.response)])
            if outcome.pending is not None:
                self._complete_write(outcome.pending, code)
        self._schedule_wakeup()

    def _complete_write(self, pending: PendingWrite, code: ErrorCode) -> None:
        self.spawn(self._apply(lambda: self.machine.complete_write(pending, code, self.now())))

    def _release(self, completions: Sequence[Completion]) -> None:
        for ticket, response in completions:
            future = self._parked.pop(ticket, None)
            if future is not None and not future.done():
                future.set_result(response)

    def _fail(self, ticket: int, code: ErrorCode, message: str) -> None:
        future = self._parked.pop(ticket, None)
        if future is not None and not future.done():
            future.set_exception(ApiError(code, message))

    # ---- deadlines

    def _schedule_wakeup(self) -> None:
        """Set the timer to the machine's next deadline; a deadline that moved later costs one idle wake-up."""
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is None:
            return  # also after the leadership: the machine has forgotten its deadlines
        if self._wake_up is not None:
            if self._wake_up_ms <= deadline_ms:
                return
            self._wake_up.cancel()
        delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        self._wake_up_ms = deadline_ms
        self._wake_up = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_wake_up)

    def _on_wake_up(self) -> None:
        self._wake_up = None
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self._clock.monotonic_ms():
            self.spawn(self._apply(lambda: self.machine.on_deadline(self.now())))
        else:
            self._schedule_wakeup()

    # ---- the end

    def _leadership_ended(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        for ticket in list(self._parked):
            self._fail(ticket, ErrorCode.NOT_COORDINATOR, "the coordinator has moved")
