"""The result of an operation of the group machine for its service, beside the records to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from odradek.coordinator.group.classic.group import Completion, Protocols

ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class StoreAssignment:
    """The write of a generation's assignment; when it is completed the members that wait for it are answered."""

    group_id: str
    generation_id: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class StoreStaticMember:
    """The write of a static member's new id; when it is completed its join is answered, or the old id is restored."""

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
    """The write of removed members, or of a group that changes its protocol.

    If it fails the deadlines of the group's members must be set again.
    """

    group_id: str


PendingWrite = StoreAssignment | StoreStaticMember | StoreMembers


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ResponseT]):
    """The response of an operation, and the parked requests that it completes.

    Attributes:
        response: None if the request is parked under its ticket.
        completions: parked requests that are answered now; their answers do not depend on the write.
        pending: the state to complete, with success or the error, when the operation's records are written.
    """

    response: ResponseT | None
    completions: Sequence[Completion] = ()
    pending: PendingWrite | None = None
