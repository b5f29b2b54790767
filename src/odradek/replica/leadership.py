"""Applies changes of the metadata to a replica: the start or end of its leadership, another leader, another ISR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.replica.promotion import begin_epoch

if TYPE_CHECKING:
    from odradek.metadata.model import PartitionImage
    from odradek.replica.partition import Partition


def apply_image(partition: Partition, image: PartitionImage, *, now_ms: int = 0) -> bool:
    """Apply the metadata of this partition; returns whether a new leadership of this broker began.

    Args:
        now_ms: monotonic: in-sync followers must fetch from this time on.
    """
    if image.partition_epoch < partition.partition_epoch:
        return False
    led, old_epoch, old_partition_epoch = partition.is_leader, partition.leader_epoch, partition.partition_epoch
    partition.leader_id, partition.leader_epoch = image.leader, image.leader_epoch
    partition.partition_epoch = image.partition_epoch
    partition.isr, partition.assigned_replicas = image.isr, image.replicas
    began = partition.is_leader and (not led or image.leader_epoch != old_epoch)
    if began:
        _begin_leadership(partition, image, now_ms)
    elif partition.is_leader and image.partition_epoch != old_partition_epoch:
        partition.in_sync.commit(image.replicas, image.isr, now_ms)
    if led and (not partition.is_leader or began):
        partition.end_waits(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} has a new leader"))
    elif image.leader_epoch != old_epoch:
        partition.wake_readers()
    if partition.is_leader:
        partition.advance_high_watermark()
    return began


def _begin_leadership(partition: Partition, image: PartitionImage, now_ms: int) -> None:
    partition.in_sync.begin(image.replicas, image.isr, now_ms)
    partition.unreplicated.clear()
    partition.leader_epoch_start_offset = partition.log.log_end_offset
    if not partition.is_mirror and not partition.first_own_epoch:
        begin_epoch(partition)  # of what was a mirror, once it is known to have ended: `promotion.end_mirror`
