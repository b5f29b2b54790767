"""A leader's followers: their positions, the in-sync set, and the changes of it that are requested from the controller.

Pure. `isr` is the committed set. A change in flight is `pending`: until the response, or newer metadata, shows its
result, the members of both sets count for the high watermark (`maximal_isr`), and the size of the committed set counts
for min.insync.replicas. One change is in flight at a time. Source: KIP-497, KIP-841, KIP-903, KIP-966.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum

from odradek.common.errors import ErrorCode
from odradek.replica.isr import FollowerState, is_caught_up_to_leader, out_of_sync

# A refused change is not requested again before this: the controller has metadata that is not applied here yet.
REFUSED_PAUSE_MS = 500


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A requested in-sync set: the members and their broker epochs, -1 if unknown."""

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    joining: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OutOfSync:
    """A follower that is not in sync.

    Attributes:
        reason: "stuck" (it does not fetch), "slow" (it fetches, and stays behind), "fenced" (the controller took it
            out), "new" (it was never in sync under this leader).
        since_ms: monotonic: since when it was not caught up, as far as this leader can tell.
        removal_count: how often it fell out under this leader.
    """

    reason: str
    since_ms: int
    removal_count: int = 1


class Outcome(Enum):
    """The outcome of a requested change."""

    DONE = "done"
    RETRY = "no decision: ask again"
    REFUSED = "what is committed stays"
    OVERTAKEN = "the controller is ahead: metadata will tell"


_REFUSED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
_OVERTAKEN = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)


def outcome_of(error_code: int) -> Outcome:
    """The outcome of a change by the partition's error code in the AlterPartition response."""
    if not error_code:
        return Outcome.DONE
    if error_code in _REFUSED:
        return Outcome.REFUSED
    return Outcome.OVERTAKEN if error_code in _OVERTAKEN else Outcome.RETRY


@dataclass(slots=True)
class IsrCounts:
    """The numbers of shrinks and expansions of in-sync sets, over all partitions of a broker."""

    shrinks: int = 0
    expansions: int = 0


class InSync:
    """The followers of one leadership."""

    __slots__ = (
        "_refused_until_ms",
        "counts",
        "followers",
        "isr",
        "leader_id",
        "pending",
        "removed",
    )

    def __init__(self, leader_id: int, counts: IsrCounts | None = None) -> None:
        self.leader_id = leader_id
        self.isr: tuple[int, ...] = ()
        self.followers: dict[int, FollowerState] = {}
        self.pending: IsrChange | None = None
        self.removed: dict[int, OutOfSync] = {}
        self.counts = counts or IsrCounts()
        self._refused_until_ms = -1

    @property
    def maximal_isr(self) -> Collection[int]:
        """The replicas that are in the set, or may be in it by now."""
        if self.pending is None:
            return self.isr
        return (*self.isr, *(each for each in self.pending.isr if each not in self.isr))

    def have_all_below(self, offset: int) -> bool:
        """Whether every follower that may be in the set has all records below `offset` (exclusive)."""
        followers = self.followers
        return all(
            each == self.leader_id or (each in followers and followers[each].log_end_offset >= offset)
            for each in self.maximal_isr
        )

    def begin(self, replicas: Collection[int], isr: tuple[int, ...], now_ms: int) -> None:
        """A leadership begins: nothing is known of any. In-sync replicas have replica.lag.time.max.ms to fetch."""
        self.followers = {}
        self.removed = {}
        self.isr = ()
        self.pending = None
        self._refused_until_ms = -1
        self.commit(replicas, isr, now_ms)

    def commit(self, replicas: Collection[int], isr: tuple[int, ...], now_ms: int) -> None:
        """Apply the replicas and the in-sync set of the controller; a change in flight is complete."""
        assert all(each in replicas for each in isr), f"in sync {isr}, replicas {replicas}"
        self._update_replicas(replicas, isr, now_ms)
        left = [each for each in self.isr if each not in isr and each in self.followers]
        joined = [each for each in isr if each not in self.isr and each != self.leader_id]
        asked = () if self.pending is None else self.pending.leaving
        for replica_id in left:
            if replica_id not in asked:
                self._mark_out_of_sync(replica_id, "fenced", now_ms)
        if self.isr:
            self.counts.shrinks += bool(left)
            self.counts.expansions += bool(joined)
        self.isr, self.pending = isr, None

    def _update_replicas(self, replicas: Collection[int], isr: tuple[int, ...], now_ms: int) -> None:
        """Replicas come, those that are no more go."""
        for replica_id in replicas:
            if replica_id != self.leader_id and replica_id not in self.followers:
                in_sync = replica_id in isr
                self.followers[replica_id] = FollowerState(caught_up_ms=now_ms if in_sync else -1)
                if not in_sync:
                    self.removed[replica_id] = OutOfSync("new", now_ms, 0)
        for replica_id in tuple(self.followers):
            if replica_id not in replicas:
                del self.followers[replica_id]
                self.removed.pop(replica_id, None)

    def _mark_out_of_sync(self, replica_id: int, reason: str, since_ms: int) -> None:
        known = self.removed.get(replica_id)
        self.removed[replica_id] = OutOfSync(reason, since_ms, 1 if known is None else known.removal_count + 1)

    def out(self) -> dict[int, OutOfSync]:
        """The followers that are not in sync, and why."""
        return {each: self.removed[each] for each in self.followers if each not in self.isr and each in self.removed}

    def describe_out_of_sync(self, now_ms: int) -> str:
        """The replicas that are not in sync, why and for how long, for a log line; "none" if all are."""
        out = (
            f"{each}: {removed.reason} for {max(0, now_ms - removed.since_ms)} ms, fell {removed.removal_count} times"
            for each, removed in sorted(self.out().items())
        )
        return "; ".join(out) or "none"

    def maybe_expand(
        self,
        replica_id: int,
        *,
        leader_epoch: int,
        partition_epoch: int,
        leader_epoch_start: int,
        high_watermark: int,
        now_ms: int,
        is_isr_eligible: Callable[[int, int], bool],
    ) -> IsrChange | None:
        """The change that adds a follower to the set, if it has caught up.

        Args:
            is_isr_eligible: (broker id, broker epoch): whether that registration is current, unfenced and not in a
                controlled shutdown (KIP-841, KIP-903).
        """
        follower = self.followers[replica_id]
        if self.pending is not None or replica_id in self.isr or now_ms < self._refused_until_ms:
            return None
        if not is_caught_up_to_leader(follower, leader_epoch_start=leader_epoch_start, high_watermark=high_watermark):
            return None
        if not is_isr_eligible(replica_id, follower.broker_epoch):
            return None
        self.pending = self._change((*self.isr, replica_id), leader_epoch, partition_epoch, joining=(replica_id,))
        return self.pending

    def maybe_shrink(
        self, *, leader_epoch: int, partition_epoch: int, leader_end_offset: int, now_ms: int, max_lag_ms: int
    ) -> IsrChange | None:
        """The change that removes the followers that were not caught up for `max_lag_ms`."""
        if self.pending is not None:
            return None
        late = out_of_sync(
            isr=self.isr,
            leader_id=self.leader_id,
            leader_end_offset=leader_end_offset,
            followers=self.followers,
            now_ms=now_ms,
            max_lag_ms=max_lag_ms,
        )
        if not late:
            return None
        for replica_id in sorted(late):
            follower = self.followers.get(replica_id, FollowerState())
            stuck = now_ms - max(follower.last_fetch_ms, follower.caught_up_ms) > max_lag_ms
            self._mark_out_of_sync(replica_id, "stuck" if stuck else "slow", follower.caught_up_ms)
        stay = tuple(each for each in self.isr if each not in late)
        self.pending = self._change(stay, leader_epoch, partition_epoch, leaving=tuple(sorted(late)))
        return self.pending

    def change_rejected(self, now_ms: int) -> None:
        """The change in flight did not happen."""
        self.pending = None
        self._refused_until_ms = now_ms + REFUSED_PAUSE_MS

    def _change(
        self,
        isr: tuple[int, ...],
        leader_epoch: int,
        partition_epoch: int,
        *,
        joining: tuple[int, ...] = (),
        leaving: tuple[int, ...] = (),
    ) -> IsrChange:
        assert self.pending is None, f"one change at a time: {self.pending}"
        assert self.leader_id in isr and len(set(isr)) == len(isr), f"{self.leader_id} asks for {isr}"
        followers = self.followers
        epochs = tuple(followers[each].broker_epoch if each in followers else -1 for each in isr)
        return IsrChange(isr, epochs, leader_epoch, partition_epoch, joining, leaving)
