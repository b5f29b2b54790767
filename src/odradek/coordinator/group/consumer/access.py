"""Checks of requests about offsets of a consumer group. Source: Kafka ConsumerGroup."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.consumer.state import ConsumerGroup

# The first version of OffsetCommit for members of the consumer protocol: it has STALE_MEMBER_EPOCH.
MEMBER_EPOCH_VERSION = 9


def check_max_size(group: ConsumerGroup, member_id: str, max_size: int) -> None:
    """Raises ApiError(GROUP_MAX_SIZE_REACHED) if the group is full and does not have this member."""
    if member_id not in group.members and len(group.members) >= max_size:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {max_size} members.",
        )


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    member_epoch: int,
    api_version: int,
    partitions: Iterable[tuple[UUID, int]],
) -> None:
    """Check a commit.

    A member commits in its present epoch, or in an earlier one in which it had the partitions already (KIP-1251): it
    may not have received the new epoch yet. Any client may commit if there are no members.

    Args:
        partitions: (topic id, partition id) of each commit.
    Raises:
        ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH (ILLEGAL_GENERATION for a member of the classic
            protocol), UNSUPPORTED_VERSION.
    """
    if member_epoch < 0 and not group.members:
        return
    member = group.members.get(member_id)
    if member is not None and member.classic is None and api_version < MEMBER_EPOCH_VERSION:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "a member of the consumer protocol commits from version 9 on")
    current = group.current_of(member_id)
    if member is not None and member_epoch < current.member_epoch:
        held = current.held
        if all(each in held and current.epochs[each] <= member_epoch for each in partitions):
            return
    _check_member(group, member_id, member_epoch)


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
    """Check a fetch. A client that names a member must be it, in its present epoch; other clients may always fetch.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION of a member of the classic protocol.
    """
    if member_id is None and member_epoch < 0:
        return
    _check_member(group, member_id or "", member_epoch)


def _check_member(group: ConsumerGroup, member_id: str, member_epoch: int) -> None:
    if member_id not in group.members:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    current_epoch = group.current_of(member_id).member_epoch
    if member_epoch != current_epoch:
        is_classic = group.members[member_id].classic is not None
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH,
            f"The received member epoch {member_epoch} does not match the expected member epoch {current_epoch}.",
        )
