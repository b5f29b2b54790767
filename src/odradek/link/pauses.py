"""The pauses of a link between two refreshes of the source's metadata."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from odradek.common.backoff import Backoff

if TYPE_CHECKING:
    from odradek.link.mirroring import MirroredPartition

# Between two refreshes of the source's metadata; if a partition waits, the first refreshes come sooner.
REFRESH_MS = 1000
FIRST_PAUSE_MS = 50


class Pauses:
    """The pauses between the rounds of a link. They grow, even if a partition waits forever."""

    def __init__(self) -> None:
        self._backoff = Backoff(FIRST_PAUSE_MS, REFRESH_MS)

    def next_ms(self, partitions: Collection[MirroredPartition]) -> float:
        """The pause after a round with this result."""
        if not partitions or any(_waits(each) for each in partitions):
            return self._backoff.next_ms()
        self._backoff.reset()
        return REFRESH_MS


def _waits(mirrored: MirroredPartition) -> bool:
    """Whether a partition waits for the source; one whose fetches are refused has a leader after each round."""
    return not mirrored.stopped and (mirrored.source_leader < 0 or bool(mirrored.reason.text))
