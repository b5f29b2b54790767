"""Messages between replicas of the quorum, and the decisions that the node returns to its driver. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.raft.quorum_state import ElectionState
from odradek.raft.voters import ReplicaKey


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """The end of a log. A larger one is more up to date: the last record's epoch is compared first, then the offset."""

    last_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class VoteRequested:
    """A candidate requests a vote in `leader_epoch` (for a pre-vote: its present epoch)."""

    candidate: ReplicaKey
    leader_epoch: int
    log_end: LogEnd
    pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class VoteAnswered:
    """A voter's answer; `leader_epoch` and `leader_id` are the voter's."""

    voter_id: int
    leader_epoch: int
    leader_id: int
    granted: bool
    pre_vote: bool = False


@dataclass(frozen=True, slots=True)
class EpochBegun:
    """A new leader announces its epoch."""

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """A leader resigns; `successors` are the voters, the one with the longest log first."""

    leader_id: int
    leader_epoch: int
    successors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetched:
    """A replica fetches from `fetch_offset` (inclusive) on, and thereby acknowledges all records below."""

    replica: ReplicaKey
    leader_epoch: int
    fetch_offset: int


Message = VoteRequested | VoteAnswered | EpochBegun | EpochEnded | Fetched


@dataclass(slots=True)
class Ready:
    """The actions that the driver must take now, in the order of the fields.

    Attributes:
        persist: store this state durably before the rest.
        elected: this node now leads `leader_epoch`: append the leader-change record.
        lost_leadership: this node no longer leads.
        messages: (node id, message) to send.
    """

    persist: ElectionState | None = None
    elected: bool = False
    lost_leadership: bool = False
    messages: list[tuple[int, Message]] = field(default_factory=list)
