"""The step from a member's present assignment towards its target, one safe step for each heartbeat.

No partition is assigned before its last owner has confirmed its revocation, and a member that must revoke a partition
stays in its epoch until it has: so a partition has at most one owner at any time. Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from odradek.coordinator.group.consumer.state import NO_PARTITIONS, CurrentAssignment, MemberState, Partitions

IsFree = Callable[[tuple[UUID, int]], bool]


def next_assignment(
    current: CurrentAssignment,
    *,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: IsFree,
    unsubscribed: Partitions = NO_PARTITIONS,
) -> CurrentAssignment:
    """The member's assignment after this heartbeat; `current` itself where nothing changes.

    Args:
        target: the member's partitions in `target_epoch`, without topics that it does not subscribe to.
        owned: the partitions that the member reports as owned; None if it reports none.
        is_free: whether no other member has the partition.
        unsubscribed: its partitions of topics that it no longer subscribes to. It revokes these without waiting
            for the next target (KAFKA-19431).
    """
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or owned & current.pending_revocation:
            kept, pending = current.assigned - unsubscribed, current.pending_revocation | unsubscribed
            return _changed(current, current.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, pending)
    elif current.state is MemberState.STABLE and current.member_epoch == target_epoch and not unsubscribed:
        return current
    return _step(current, target, target_epoch, owned, is_free)


def _step(
    current: CurrentAssignment, target: Partitions, target_epoch: int, owned: Partitions | None, is_free: IsFree
) -> CurrentAssignment:
    kept = current.assigned & target
    revoked = current.assigned - target
    missing = target - current.assigned
    if revoked and (owned is None or owned & revoked):
        return _changed(current, current.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    available = frozenset(partition for partition in missing if is_free(partition))
    state = MemberState.STABLE if available == missing else MemberState.UNRELEASED_PARTITIONS
    return _changed(current, target_epoch, state, kept | available, frozenset())


def _changed(
    current: CurrentAssignment, epoch: int, state: MemberState, assigned: Partitions, pending: Partitions
) -> CurrentAssignment:
    assert epoch >= current.member_epoch, f"a member's epoch falls: {current.member_epoch} -> {epoch}"
    assert bool(pending) == (state is MemberState.UNREVOKED_PARTITIONS), f"{state.name}, to be revoked: {pending}"
    assert assigned.isdisjoint(pending), "what a member gives up it does not have"
    previous = current.previous_member_epoch if epoch == current.member_epoch else current.member_epoch
    since = current.epochs
    epochs = {each: since.get(each, current.member_epoch) for each in pending}
    epochs |= {each: since.get(each, epoch) if each in current.assigned else epoch for each in assigned}
    changed = CurrentAssignment(epoch, previous, state, assigned, pending, epochs)
    return current if changed == current else changed
