"""The last leader is remembered from the change in which it goes, also if the other replicas change (KIP-966)."""

from __future__ import annotations

from uuid import UUID

from odradek.controller.election import ElectionRules, Target, change_partition
from odradek.metadata.model import NO_LEADER, PartitionImage, changed_partition

TOPIC = UUID(int=5)


def changed(partition: PartitionImage, target: Target, *acceptable: int) -> PartitionImage:
    rules = ElectionRules(lambda broker: broker in acceptable, min_isr=2, elr_enabled=True, metadata_version=29)
    record = change_partition(TOPIC, 0, partition, rules, target=target)
    assert record is not None
    return changed_partition(partition, record)


def test_a_leader_that_goes_before_the_last_replica_in_sync_leads_again() -> None:
    before = PartitionImage(replicas=(1, 3, 2), isr=(1, 3), leader=1, leader_epoch=0, partition_epoch=0)
    left = changed(before, Target(isr=[3]), 2)  # 3 is in sync, and cannot lead
    assert (left.leader, left.isr, left.last_known_elr) == (NO_LEADER, (3,), (1,))
    alone = changed(left, Target(isr=[]), 2)
    assert (alone.isr, alone.elr, alone.last_known_elr) == ((), (1, 3), (1,))
    # Both come back from unclean stops: without the memory of who led, none could ever lead.
    led = changed(alone, Target(unclean_shutdown=(1, 3)), 1, 2, 3)
    assert (led.leader, led.isr) == (1, (1,))
