"""The deadlines of a consumer group's members, which are soft: after a failover they start over.

session     the member has sent no request
revocation  the member has not confirmed that it revoked partitions (consumer protocol)
join        the member knows that it must rejoin and has not (classic protocol)
sync        the member has joined and not sent SyncGroup (classic protocol)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.coordinator.group.classic.group import Moment
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.state import ConsumerGroup, CurrentAssignment, MemberMetadata, MemberState
from odradek.coordinator.group.timers import TimerKey, Timers

SESSION = "consumer-session"
REVOCATION = "consumer-revocation"
JOIN = "consumer-join"
SYNC = "consumer-sync"
KINDS = (SESSION, REVOCATION, JOIN, SYNC)

REASONS: Mapping[str, str] = {
    SESSION: "its session timed out",
    REVOCATION: "it did not give up its partitions within its rebalance timeout",
    JOIN: "it did not join the rebalance within its rebalance timeout",
    SYNC: "it did not ask for its assignment within its rebalance timeout",
}


class Deadlines:
    """Sets and cancels the deadlines, with the timers of one shard."""

    def __init__(
        self, config: ConsumerGroupConfig, timers: Timers, overrides_of: Callable[[str], Mapping[str, str]]
    ) -> None:
        """
        Args:
            overrides_of: group id → the group's settings.
        """
        self._config = config
        self._timers = timers
        self._overrides_of = overrides_of

    def session_renewed(self, group_id: str, member_id: str, metadata: MemberMetadata, now: Moment) -> None:
        """The member sent a request: restart its session timeout."""
        if metadata.classic is not None:
            session_ms = metadata.classic.session_timeout_ms
        else:
            session_ms = self._config.session_timeout_of(self._overrides_of(group_id))
        self._timers.set(TimerKey(SESSION, group_id, member_id), now.monotonic_ms + session_ms)

    def assignment_changed(
        self,
        group_id: str,
        member_id: str,
        metadata: MemberMetadata,
        before: CurrentAssignment | None,
        after: CurrentAssignment,
        now: Moment,
    ) -> None:
        """Start or cancel the revocation timeout after a change of a consumer member's assignment."""
        self.session_renewed(group_id, member_id, metadata, now)
        key = TimerKey(REVOCATION, group_id, member_id)
        if metadata.classic is not None or after.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.cancel(key)
        elif before != after:
            self._timers.set(key, now.monotonic_ms + metadata.rebalance_timeout_ms)

    def start(self, kind: str, group_id: str, member_id: str, metadata: MemberMetadata, now: Moment) -> None:
        """Start the rebalance timeout of a classic member for one step, unless it already runs."""
        key = TimerKey(kind, group_id, member_id)
        if self._timers.get(key) is None:
            self._timers.set(key, now.monotonic_ms + metadata.rebalance_timeout_ms)

    def finish(self, kind: str, group_id: str, member_id: str) -> None:
        """Cancel a deadline: the member did the step."""
        self._timers.cancel(TimerKey(kind, group_id, member_id))

    def cancel_classic(self, group_id: str, member_id: str) -> None:
        """Cancel the classic deadlines: the member now uses the consumer protocol."""
        self.finish(JOIN, group_id, member_id)
        self.finish(SYNC, group_id, member_id)

    def cancel(self, group_id: str, member_id: str) -> None:
        """Cancel all deadlines of a removed member."""
        for kind in KINDS:
            self._timers.cancel(TimerKey(kind, group_id, member_id))

    def loaded(self, group: ConsumerGroup, now: Moment) -> None:
        """After a load, start every member's session, and the full revocation timeout of those that must revoke."""
        for member_id, metadata in group.members.items():
            self.assignment_changed(group.group_id, member_id, metadata, None, group.current_of(member_id), now)

    def is_due(self, group: ConsumerGroup, key: TimerKey) -> bool:
        """Whether the condition of an expired deadline still holds."""
        if key.member_id not in group.members:
            return False
        return key.kind != REVOCATION or group.current_of(key.member_id).state is MemberState.UNREVOKED_PARTITIONS
