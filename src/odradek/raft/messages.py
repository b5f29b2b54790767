"""What replicas of the quorum say to each other, and what a replica's decision asks of its driver. Values alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.raft.quorum_state import ElectionState
from odradek.raft.voters import ReplicaKey


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """How far a log reaches; a larger one is more up to date: by the epoch of the last record, then by offset."""

    last_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class VoteAsked:
    """A candidate asks for a vote in `leader_epoch` (in a pre-vote: its present epoch)."""

    candidate: ReplicaKey
    leader_epoch: int
    log_end: LogEnd
    pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class VoteAnswered:
    """A voter's answer; `leader_epoch` and `leader_id` are what the voter knows."""

    voter_id: int
    leader_epoch: int
    leader_id: int
    granted: bool
    pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class EpochBegun:
    """A leader says that it leads."""

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """A leader resigns; `successors` are its voters, the one with the longest log first."""

    leader_id: int
    leader_epoch: int
    successors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetched:
    """A replica asks the leader for records from `fetch_offset` on, which says that it has all below."""

    replica: ReplicaKey
    leader_epoch: int
    fetch_offset: int


Message = VoteAsked | VoteAnswered | EpochBegun | EpochEnded | Fetched


@dataclass(slots=True)
class Ready:
    """What the driver must do now, in the order of the fields.

    Attributes:
        persist: store before anything below is done.
        elected: this node leads `leader_epoch` from now on: append the leader-change record.
        lost_leadership: it leads no more.
        messages: (node id, message) to send.
    """

    persist: ElectionState | None = None
    elected: bool = False
    lost_leadership: bool = False
    messages: list[tuple[int, Message]] = field(default_factory=list)
