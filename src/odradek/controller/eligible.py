"""Removal of eligible leader replicas after a change of what they depend on (KIP-966)."""

from __future__ import annotations

from typing import Any

from odradek.controller.state import ControllerState
from odradek.protocol.messages.clear_elr_record import ClearElrRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord


def clear_eligible(state: ControllerState, topic_name: str = "", *, tracked: bool) -> list[Any]:
    """The records that clear the eligible replicas of one topic or, without a name, of all.

    A partition without a leader commits nothing, so its eligible replicas still have all committed records: clearing
    them would leave only an unclean election.

    Args:
        tracked: whether eligible replicas are tracked from now on; else they become the in-sync set again.
    """
    before: list[Any] = []
    after: list[Any] = []
    for (topic_id, partition_id), partition in state.partitions.items():
        if partition.isr or (topic_name and state.topics[topic_id].name != topic_name):
            continue
        change = PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id)
        if tracked:
            change.eligible_leader_replicas, change.last_known_elr = list(partition.elr), list(partition.last_known_elr)
            after.append(change)
        elif partition.elr or partition.last_known_elr:
            change.isr = list(partition.elr or partition.last_known_elr)
            before.append(change)
    return [*before, ClearElrRecord(topic_name=topic_name), *after]
