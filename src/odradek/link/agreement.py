"""Finds the offset up to which an old source and the topic promoted from it have a common history (ADR 0021).

Pure. Below the leader epoch of the promotion only the old source wrote, so the same epoch at the same offset is the
same record. From that epoch on both clusters use the same numbers for different epochs, so these are not compared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from odradek.common.errors import ApiError, ErrorCode

EpochEnd = Callable[[int], Awaitable[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Agreement:
    """
    Attributes:
        offset: the end offset of the log here after the cut (exclusive).
        starts_over: the whole log is removed, and begins again at `offset`, the source's log start offset.
    """

    offset: int
    starts_over: bool = False


async def agree(
    below: int, source_end: EpochEnd, source_start: Callable[[], Awaitable[int]], own_end: EpochEnd
) -> Agreement:
    """
    Args:
        below: the first leader epoch that the source has of its own.
        source_end, own_end: (largest epoch not above the argument, its end offset); -1 and -1 if there is none.
        source_start: the source's log start offset.
    Raises:
        ApiError: LEADER_NOT_AVAILABLE, try again; errors of the requests.
    """
    asked, start = below - 1, 0
    while asked >= 0:
        epoch, end = await source_end(asked)
        if end < 0:
            # It is promoted, but its leader has not recorded the epoch yet: its log is not necessarily empty.
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"the source names no end of epochs below {below} yet")
        # The response for a deleted epoch is the log start offset, so both must be of the same moment.
        start = await source_start()
        if await source_end(asked) != (epoch, end):
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "the source's log start moves")
        if end <= start:
            return Agreement(start, starts_over=True)
        own_epoch, own = await own_end(epoch)
        if own < 0:
            asked = epoch - 1  # the log here has only earlier epochs
        elif own_epoch == epoch:
            return Agreement(min(own, end))
        else:
            asked = own_epoch
    return Agreement(start, starts_over=True)
