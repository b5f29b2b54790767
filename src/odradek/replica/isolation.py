"""Detects isolated leaders, which reach neither the quorum nor their followers, so that they refuse records.

Such a leader may have been replaced.
Records that such a leader accepts with acks=1 would be lost, and acks=all would wait for the end of the network
partition. A broker cannot distinguish a network partition from a quorum that is down. So a leader is isolated if
neither the controller nor any other member of the in-sync set was reached for the session timeout. A partition without
other members is not isolated, since no other broker may lead it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.log_lines import get_logger

if TYPE_CHECKING:
    from odradek.replica.partition import Partition

DEFAULT_SESSION_MS = 9_000
_log = get_logger("replica.isolation")


class Isolation:
    """Whether this broker is cut off, and which of its partitions others may lead by now."""

    def __init__(
        self,
        partitions: Iterable[Partition],
        monotonic_ms: Callable[[], int],
        *,
        session_ms: int = DEFAULT_SESSION_MS,
        exempt: frozenset[str] = frozenset(),
    ) -> None:
        """
        Args:
            session_ms: broker.session.timeout.ms: after this time the controller elects other leaders.
            exempt: topics of coordinators, which stop after a refused append, and would not start again at the end of
                the network partition.
        """
        self._partitions = partitions
        self._monotonic_ms = monotonic_ms
        self.session_ms = session_ms
        self._exempt = exempt
        self._answered_ms: int | None = None
        # The topics with an isolated partition: their leaders are not known here.
        self.topics: frozenset[str] = frozenset()

    def answered(self) -> None:
        """The controller counts this broker as serving."""
        self._answered_ms = self._monotonic_ms()

    def update(self) -> None:
        """Check each partition again; call it a few times in a session."""
        now_ms = self._monotonic_ms()
        silent = self._answered_ms is not None and now_ms - self._answered_ms > self.session_ms
        if not silent and not self.topics:
            return
        topics = set()
        for partition in self._partitions:
            leads = partition.is_leader and partition.topic not in self._exempt
            is_isolated = silent and leads and self._followers_are_silent(partition, now_ms)
            if is_isolated:
                topics.add(partition.topic)
            if is_isolated and not partition.is_isolated:
                partition.end_waits(
                    ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} may have a new leader")
                )
            partition.is_isolated = is_isolated
        if bool(topics) != bool(self.topics):
            if topics:
                _log.warning("isolated from the quorum and from followers: no records are accepted", topics=len(topics))
            else:
                _log.info("no longer isolated from the quorum or from followers")
        self.topics = frozenset(topics)

    def _followers_are_silent(self, partition: Partition, now_ms: int) -> bool:
        """Whether others are in sync, and none of them fetches."""
        states = [partition.in_sync.followers.get(each) for each in partition.isr if each != partition.broker_id]
        heard = [max(state.last_fetch_ms, state.caught_up_ms) for state in states if state is not None]
        return bool(heard) and now_ms - max(heard) > self.session_ms
