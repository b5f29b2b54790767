"""Whether a request about offsets may speak for a consumer group. Source: Kafka ConsumerGroup."""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.consumer_group.state import ConsumerGroup

# The first version of OffsetCommit whose clients know STALE_MEMBER_EPOCH.
MEMBER_EPOCH_VERSION = 9


def check_commit(group: ConsumerGroup, member_id: str, member_epoch: int, api_version: int) -> None:
    """A member commits in its present epoch; anybody where there are no members.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH (UNSUPPORTED_VERSION to clients that do not know it).
    """
    if member_epoch < 0 and not group.members:
        return
    try:
        _check_member(group, member_id, member_epoch)
    except ApiError as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH and api_version < MEMBER_EPOCH_VERSION:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "a consumer group takes OffsetCommit from 9 on") from None
        raise


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
    """Whoever says to be a member must be one, in its present epoch; others may always look.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
    """
    if member_id is None and member_epoch < 0:
        return
    _check_member(group, member_id or "", member_epoch)


def _check_member(group: ConsumerGroup, member_id: str, member_epoch: int) -> None:
    if member_id not in group.members:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    current_epoch = group.current_of(member_id).member_epoch
    if member_epoch != current_epoch:
        raise ApiError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"The received member epoch {member_epoch} does not match the expected member epoch {current_epoch}.",
        )
