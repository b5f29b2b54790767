"""What a change of the metadata means for a replica: it begins or ends to lead, its leader changes, its ISR changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.replica.promotion import begin_epoch

if TYPE_CHECKING:
    from odradek.metadata.model import PartitionImage
    from odradek.replica.partition import Partition


def take_image(partition: Partition, image: PartitionImage, *, now_ms: int = 0) -> bool:
    """Take what the metadata log says of this partition; returns whether a new leadership of ours began.

    Args:
        now_ms: monotonic: from when on in-sync followers must be heard of.
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
