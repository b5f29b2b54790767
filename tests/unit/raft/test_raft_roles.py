"""The roles of a replica in the quorum: every pair of them."""

from __future__ import annotations

import random
from uuid import UUID

from odradek.raft import roles
from odradek.raft.messages import LogEnd
from odradek.raft.node import RaftNode
from odradek.raft.quorum_state import ElectionState
from odradek.raft.roles import TRANSITIONS, Role
from odradek.raft.voters import ReplicaKey, Voter, VoterSet
from tests.support.models.transitions import check_every_pair, written_transitions

ME = ReplicaKey(1, UUID(int=1))


def become(before: Role, after: Role) -> None:
    node = RaftNode(ME, VoterSet([Voter(ME, {})]), ElectionState(), lambda: LogEnd(0, 0), random.Random(0))
    node.role = before
    node._become(after, 0)
    assert node.role is after


def test_a_replica_changes_its_role_as_the_table_says_and_not_otherwise() -> None:
    check_every_pair(TRANSITIONS, become)


def test_the_head_of_the_module_lists_these_transitions() -> None:
    assert roles.__doc__ is not None
    written = written_transitions(roles.__doc__, {role.value.capitalize(): role for role in Role})
    assert written == {role: set(TRANSITIONS[role]) for role in Role}
