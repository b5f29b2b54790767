"""Who leads a partition: the change of one partition, as a pure function.

Who may lead: a replica of the in-sync set that is acceptable (unfenced, not stopping); failing that one of the
eligible leader replicas (KIP-966); failing that the last known leader alone; failing that, where unclean elections are
allowed, any acceptable replica, at the price of what it lacks. Source: KIP-497, KIP-704, KIP-841, KIP-966; Kafka's
PartitionChangeBuilder for the order in which they are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from odradek.metadata.model import NO_LEADER, PartitionImage
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord

RECOVERED, RECOVERING = 0, 1
# Before 3.6-IV0 a leader could only tell a shrunk in-sync set by a new leader epoch (KAFKA-15021).
NO_EPOCH_BUMP_ON_SHRINK = 12


class Election(Enum):
    """What is asked for: the first replica; whoever is fit; or whoever lives."""

    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """What holds for one partition.

    Attributes:
        acceptable: whether a broker may lead now.
        min_isr: the effective min.insync.replicas, never above the number of replicas.
    """

    acceptable: Callable[[int], bool]
    min_isr: int
    elr_enabled: bool
    metadata_version: int


def change_partition(
    topic_id: UUID,
    partition_id: int,
    partition: PartitionImage,
    rules: ElectionRules,
    *,
    election: Election = Election.ONLINE,
    target_isr: Collection[int] | None = None,
    target_recovery_state: int | None = None,
    unclean_shutdown: Collection[int] = (),
) -> PartitionChangeRecord | None:
    """The record that gives a partition the wanted in-sync set and a fit leader; None where nothing changes.

    Args:
        target_isr: the new in-sync set; None leaves it.
        target_recovery_state: what the leader says of its recovery; None leaves it.
        unclean_shutdown: brokers that may have lost records: no longer eligible.
    """
    isr = tuple(partition.isr if target_isr is None else target_isr)
    elr = tuple(replica for replica in partition.elr if replica not in unclean_shutdown)
    if rules.elr_enabled:
        # The old in-sync set is as good as the eligible ones, so it may lead in what follows.
        eligible = [replica for replica in (*elr, *partition.isr) if replica not in isr]
        elr = tuple(dict.fromkeys(replica for replica in eligible if replica not in unclean_shutdown))
    leader, unclean = _elect(partition, rules, election, isr, elr)
    record = PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id)
    changed = False
    if leader != partition.leader:
        record.leader, changed = leader, True
    if unclean or (leader != NO_LEADER and leader not in isr):
        isr = (leader,)
        if unclean and partition.leader_recovery_state == RECOVERED:
            record.leader_recovery_state, changed = RECOVERING, True
    if isr != partition.isr and (isr or rules.elr_enabled):
        record.isr, changed = list(isr), True
        shrinks = len(isr) < len(partition.isr)
        if shrinks and rules.metadata_version < NO_EPOCH_BUMP_ON_SHRINK and leader == partition.leader:
            record.leader = leader
    if target_recovery_state is not None and target_recovery_state != partition.leader_recovery_state and not unclean:
        record.leader_recovery_state, changed = target_recovery_state, True
    if rules.elr_enabled:
        changed = _track_eligible(record, partition, rules, isr, elr, unclean) or changed
    return record if changed else None


def _elect(
    partition: PartitionImage, rules: ElectionRules, election: Election, isr: tuple[int, ...], elr: tuple[int, ...]
) -> tuple[int, bool]:
    """The leader, and whether it may lack acknowledged records."""

    def fit(replica: int) -> bool:
        return (replica in isr or (rules.elr_enabled and replica in elr)) and rules.acceptable(replica)

    if election is Election.PREFERRED and fit(partition.preferred_leader):
        return partition.preferred_leader, False
    if partition.leader != NO_LEADER and fit(partition.leader):
        return partition.leader, False
    for group in (isr, elr if rules.elr_enabled else ()):
        for replica in partition.replicas:
            if replica in group and rules.acceptable(replica):
                return replica, False
    last_known = partition.last_known_elr
    if rules.elr_enabled and not isr and not elr and len(last_known) == 1 and rules.acceptable(last_known[0]):
        return last_known[0], True
    if election is Election.UNCLEAN:
        for replica in partition.replicas:
            if rules.acceptable(replica):
                return replica, True
    return NO_LEADER, False


def _track_eligible(
    record: PartitionChangeRecord,
    partition: PartitionImage,
    rules: ElectionRules,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    unclean: bool,
) -> bool:
    """Put the eligible replicas into the record; returns whether they changed.

    While the in-sync set is below min.insync.replicas, those that leave it still hold all that is committed, because
    the watermark stands still.
    """
    last_known: tuple[int, ...] = partition.last_known_elr
    if unclean or len(isr) >= rules.min_isr:
        elr, last_known = (), ()
    else:
        elr = tuple(replica for replica in elr if replica not in isr)
        if not isr and partition.leader != NO_LEADER:
            last_known = (partition.leader,)
    changed = False
    if elr != partition.elr:
        record.eligible_leader_replicas, changed = list(elr), True
    if last_known != partition.last_known_elr:
        record.last_known_elr, changed = list(last_known), True
    return changed
