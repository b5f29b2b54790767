"""The choice of a partition's leader and replicas: the change of one partition, as a pure function.

The leader is the first of these: an acceptable replica of the in-sync set (unfenced, not stopping, its directory
online); an eligible leader replica (KIP-966); the last known leader alone; if unclean elections are allowed, any
acceptable replica, which may lack records. A reassignment completes in the change that brings its last new replica
into the in-sync set (KIP-455). Source: KIP-497, KIP-704, KIP-841, KIP-966; Kafka's PartitionChangeBuilder for the
order of candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from odradek.metadata.features import DIRECTORY_ASSIGNMENT
from odradek.metadata.model import NO_LEADER, NO_LEADER_CHANGE, UNASSIGNED_DIRECTORY, PartitionImage
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord

RECOVERED, RECOVERING = 0, 1
# Before 3.6-IV0 only a new leader epoch could announce a smaller in-sync set (KAFKA-15021).
NO_EPOCH_BUMP_ON_SHRINK = 12


class Election(Enum):
    """The kind of election: the preferred replica, any eligible one, or any live one (unclean)."""

    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """The conditions of one partition.

    Attributes:
        acceptable: whether a broker may lead now.
        min_isr: the effective min.insync.replicas; a value above the number of replicas means all of them.
        draining: whether a broker leads only if no other fit replica does: it drains, or its disk is full.
        directory: of a new replica on a broker; UNASSIGNED_DIRECTORY if the broker chooses (KIP-858).
    """

    acceptable: Callable[[int], bool]
    min_isr: int
    elr_enabled: bool
    metadata_version: int
    draining: Callable[[int], bool] = lambda broker_id: False
    directory: Callable[[int], UUID] = lambda broker_id: UNASSIGNED_DIRECTORY


@dataclass(frozen=True, slots=True)
class Target:
    """The intended change of a partition; None leaves a field unchanged.

    Attributes:
        isr: the new in-sync set; replicas, adding, removing: those of a reassignment.
        recovery_state: reported by the leader.
        directories: of some of the replicas, by broker.
        unclean_shutdown: brokers that may have lost records: no longer eligible.
    """

    isr: Collection[int] | None = None
    replicas: Collection[int] | None = None
    adding: Collection[int] | None = None
    removing: Collection[int] | None = None
    recovery_state: int | None = None
    directories: Mapping[int, UUID] = field(default_factory=dict)
    unclean_shutdown: Collection[int] = ()


@dataclass(slots=True)
class _Plan:
    """The state of a partition while its change is decided."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    leader: int = NO_LEADER
    unclean: bool = False


def change_partition(
    topic_id: UUID,
    partition_id: int,
    partition: PartitionImage,
    rules: ElectionRules,
    *,
    election: Election = Election.ONLINE,
    target: Target | None = None,
) -> PartitionChangeRecord | None:
    """The record that brings a partition to its target, with a fit leader; None if nothing changes."""
    target = target or Target()
    plan = _Plan(
        _target_or_current(target.replicas, partition.replicas),
        _target_or_current(target.isr, partition.isr),
        _target_or_current(target.adding, partition.adding_replicas),
        _target_or_current(target.removing, partition.removing_replicas),
    )
    _complete_reassignment(plan)
    _populate_candidate_elr(plan, partition, rules, target.unclean_shutdown)
    _elect(plan, partition, rules, election)
    if plan.leader != NO_LEADER and (plan.unclean or plan.leader not in plan.isr):
        plan.isr = (plan.leader,)
    if not plan.isr and not rules.elr_enabled:
        # No other replica is known to have all records: the last one stays in the set, whether it leads or not.
        plan.isr = tuple(replica for replica in partition.isr if replica in plan.replicas)
    _populate_target_elr(plan, partition, rules)
    _check(plan)
    recovery = partition.leader_recovery_state if target.recovery_state is None else target.recovery_state
    if plan.unclean:
        recovery = RECOVERING
    record = _difference(topic_id, partition_id, partition, rules, plan, recovery)
    _assign_directories(record, partition, rules, plan.replicas, target.directories)
    return None if record == PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id) else record


def _check(plan: _Plan) -> None:
    """Assert the invariants of a decision before it is written; `check_partition` has the same for reads."""
    assert plan.replicas and len(set(plan.replicas)) == len(plan.replicas), f"replicas: {plan}"
    assert plan.leader == NO_LEADER or plan.leader in plan.isr, f"a leader is in its own in-sync set: {plan}"
    assert set(plan.isr) <= set(plan.replicas), f"who is in sync has a replica: {plan}"
    assert set(plan.elr) <= set(plan.replicas) - set(plan.isr), f"who is eligible is a replica, not in sync: {plan}"
    assert set(plan.adding) | set(plan.removing) <= set(plan.replicas), f"what is moved is a replica: {plan}"


def _target_or_current(target: Collection[int] | None, present: tuple[int, ...]) -> tuple[int, ...]:
    return present if target is None else tuple(target)


def _complete_reassignment(plan: _Plan) -> None:
    """Remove the leaving replicas once all new ones are in sync, and one that stays is."""
    if not plan.adding and not plan.removing:
        return
    staying = tuple(replica for replica in plan.isr if replica not in plan.removing)
    if staying and set(plan.adding) <= set(staying):
        plan.isr = staying
        plan.replicas = tuple(replica for replica in plan.replicas if replica not in plan.removing)
        plan.adding = plan.removing = ()


def _populate_candidate_elr(
    plan: _Plan, partition: PartitionImage, rules: ElectionRules, unclean_shutdown: Collection[int]
) -> None:
    """Compute the eligible replicas: those that left the in-sync set while it was below min.insync.replicas."""
    if not rules.elr_enabled or _enough(plan, rules):
        return
    # The old in-sync set has all that the eligible ones have, so its members are candidates too.
    candidates = dict.fromkeys((*partition.elr, *partition.isr))
    plan.elr = tuple(
        replica
        for replica in candidates
        if replica not in plan.isr and replica not in unclean_shutdown and replica in plan.replicas
    )
    plan.last_known = tuple(replica for replica in partition.last_known_elr if replica in plan.replicas)


def _populate_target_elr(plan: _Plan, partition: PartitionImage, rules: ElectionRules) -> None:
    """Compute the eligible replicas after the election.

    While the in-sync set is below min.insync.replicas, replicas that leave it still have all committed records, because
    the high watermark does not advance; above, it advances without them.
    """
    if not rules.elr_enabled or plan.unclean or _enough(plan, rules):
        plan.elr, plan.last_known = (), ()
        return
    plan.elr = tuple(replica for replica in plan.elr if replica not in plan.isr)
    if plan.leader == NO_LEADER and partition.leader in plan.replicas:
        # At once, whether others are in sync or not: when the last of them leaves, this leader is no longer known.
        plan.last_known = (partition.leader,)


def _enough(plan: _Plan, rules: ElectionRules) -> bool:
    return len(plan.isr) >= min(rules.min_isr, len(plan.replicas))


def _elect(plan: _Plan, partition: PartitionImage, rules: ElectionRules, election: Election) -> None:
    """Set the leader, and whether it may lack acknowledged records."""

    def fit(group: Collection[int]) -> Sequence[int]:
        inside = [replica for replica in plan.replicas if replica in group and rules.acceptable(replica)]
        return [replica for replica in inside if not rules.draining(replica)] or inside

    for group in (plan.isr, plan.elr):
        candidates = fit(group)
        if candidates:
            preferred = plan.replicas[0]
            if election is Election.PREFERRED and preferred in candidates:
                plan.leader = preferred
            else:
                plan.leader = partition.leader if partition.leader in candidates else candidates[0]
            return
    last_known = plan.last_known
    if rules.elr_enabled and not plan.isr and not plan.elr and len(last_known) == 1 and rules.acceptable(last_known[0]):
        plan.leader, plan.unclean = last_known[0], True
    elif election is Election.UNCLEAN:
        candidates = fit(plan.replicas)
        if candidates:
            plan.leader, plan.unclean = candidates[0], True


def _difference(
    topic_id: UUID, partition_id: int, partition: PartitionImage, rules: ElectionRules, plan: _Plan, recovery: int
) -> PartitionChangeRecord:
    record = PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id)
    if plan.leader != partition.leader:
        record.leader = plan.leader
    if plan.isr != partition.isr:
        record.isr = list(plan.isr)
    if plan.replicas != partition.replicas:
        record.replicas = list(plan.replicas)
    if plan.adding != partition.adding_replicas:
        record.adding_replicas = list(plan.adding)
    if plan.removing != partition.removing_replicas:
        record.removing_replicas = list(plan.removing)
    if plan.elr != partition.elr:
        record.eligible_leader_replicas = list(plan.elr)
    if plan.last_known != partition.last_known_elr:
        record.last_known_elr = list(plan.last_known)
    if recovery != partition.leader_recovery_state:
        record.leader_recovery_state = recovery
    gone = set(partition.replicas) - set(plan.replicas)
    shrunk = len(plan.isr) < len(partition.isr) and rules.metadata_version < NO_EPOCH_BUMP_ON_SHRINK
    if record.leader == NO_LEADER_CHANGE and (gone or shrunk):
        # A new leader epoch fences the fetches of a removed replica.
        record.leader = plan.leader
    return record


def _assign_directories(
    record: PartitionChangeRecord,
    partition: PartitionImage,
    rules: ElectionRules,
    replicas: tuple[int, ...],
    given: Mapping[int, UUID],
) -> None:
    """Set the directories of the replicas that change (KIP-858)."""
    if rules.metadata_version < DIRECTORY_ASSIGNMENT:
        return
    directories = []
    for replica in replicas:
        if replica in given:
            directories.append(given[replica])
        elif replica in partition.replicas:
            directories.append(partition.directory(replica))
        else:
            directories.append(rules.directory(replica))
    if directories != [partition.directory(replica) for replica in partition.replicas]:
        record.directories = directories
