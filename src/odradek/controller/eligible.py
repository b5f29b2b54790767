"""Forgetting eligible leader replicas, where what they were decided by has changed (KIP-966)."""

from __future__ import annotations

from typing import Any

from odradek.controller.state import ControllerState
from odradek.protocol.messages.clear_elr_record import ClearElrRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord


def clear_eligible(state: ControllerState, topic_name: str = "", *, tracked: bool) -> list[Any]:
    """Records that forget who is eligible, in one topic or, without a name, in all.

    A partition without a leader commits nothing, so who was eligible there still has all that is committed: forgetting
    it would leave the partition to an unclean election for ever.

    Args:
        tracked: whether eligible replicas are tracked from here on; else they become the in-sync set again.
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
