"""The states of a classic group, and every transition between them.

    Empty                no members, perhaps offsets. A simple group (commits without membership) is always Empty.
    PreparingRebalance   members are (re)joining; JoinGroup is parked until all joined or the rebalance timeout.
    CompletingRebalance  the generation is fixed; SyncGroup is parked until the leader's assignment is in the log.
    Stable               every member has, or may fetch, its assignment.
    Dead                 removed; clients look up the coordinator again.

| from                | to                  | when                                                              |
|---------------------|---------------------|-------------------------------------------------------------------|
| Empty               | PreparingRebalance  | the first member joins                                            |
| Empty               | Dead                | all offsets expired, or DeleteGroups                              |
| PreparingRebalance  | CompletingRebalance | all members joined, or the rebalance timeout with some            |
| PreparingRebalance  | Empty               | all members left                                                  |
| CompletingRebalance | Stable              | the leader's assignment is committed                              |
| CompletingRebalance | PreparingRebalance  | a member joined, left, failed or never synced; the write failed   |
| Stable              | PreparingRebalance  | a member joined, left, failed; the leader rejoined                |
| any but Dead        | Dead                | the partition is resigned, the group is deleted                   |

Source: Kafka ClassicGroupState; KIP-62, KIP-134, KIP-345.
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """A classic group's state; the value is Kafka's name on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
