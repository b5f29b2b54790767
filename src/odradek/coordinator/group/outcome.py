"""What an operation of the group machine returns to its service, beside the records to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from odradek.coordinator.group.classic.group import Completion, Protocols

ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class StoreAssignment:
    """The write of a generation's assignment; once it is settled the members that wait for it are answered."""

    group_id: str
    generation_id: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class StoreStaticMember:
    """The write of a static member's new id; once it is settled its join is answered, or the old id is back."""

    group_id: str
    generation_id: int
    group_instance_id: str
    old_member_id: str
    new_member_id: str
    old_leader_id: str | None
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    ticket: int
    api_version: int


@dataclass(frozen=True, slots=True)
class StoreMembers:
    """The write of members that went, or of a group under the other protocol.

    Where it fails the deadlines of the group's members must be set again.
    """

    group_id: str


PendingWrite = StoreAssignment | StoreStaticMember | StoreMembers


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ResponseT]):
    """The answer, and who else is answered.

    Attributes:
        response: None where the request is parked under the ticket that it came with.
        completions: parked requests that are answered now; they claim nothing that a failed write could undo.
        pending: what must be settled, with success or the error, when the operation's records are through.
    """

    response: ResponseT | None
    completions: Sequence[Completion] = ()
    pending: PendingWrite | None = None
