"""Up to where an old source and the topic that was made of it have one history (ADR 0021).

Decides only. Below the leader epoch at which the new one was promoted, the old source alone wrote, and the same epoch
at the same offset is the same record. From there on both give the same numbers to epochs of their own, so nothing there
is ever compared.
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
        offset: where our log is to end (exclusive).
        starts_over: nothing of our log may stay: it begins at `offset` again, which is where the source's begins.
    """

    offset: int
    starts_over: bool = False


async def agree(
    below: int, source_end: EpochEnd, source_start: Callable[[], Awaitable[int]], own_end: EpochEnd
) -> Agreement:
    """
    Args:
        below: the first leader epoch that the source has of its own.
        source_end, own_end: (largest epoch not above the asked one, its end offset); -1 and -1 where there is none.
        source_start: where the source's log starts.
    Raises:
        ApiError: LEADER_NOT_AVAILABLE, the source is to be asked again; what the questions raise.
    """
    asked, start = below - 1, 0
    while asked >= 0:
        epoch, end = await source_end(asked)
        if end < 0:
            # It was promoted, and its leader has not written so yet: this is not the answer of one that has nothing.
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"the source names no end of epochs below {below} yet")
        # A log whose start has moved on answers with that start: so the start must be that of the same moment.
        start = await source_start()
        if await source_end(asked) != (epoch, end):
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "the source's log start moves")
        if end <= start:
            return Agreement(start, starts_over=True)
        own_epoch, own = await own_end(epoch)
        if own < 0:
            asked = epoch - 1  # ours ends with an earlier one
        elif own_epoch == epoch:
            return Agreement(min(own, end))
        else:
            asked = own_epoch
    return Agreement(start, starts_over=True)
