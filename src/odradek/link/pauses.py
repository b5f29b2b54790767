"""How long a link waits between two looks at the source's metadata."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from odradek.common.backoff import Backoff

if TYPE_CHECKING:
    from odradek.link.mirroring import MirroredPartition

# Between two looks at the source's metadata; where something waits, the first ones come sooner.
REFRESH_MS = 1000
FIRST_PAUSE_MS = 50


class Pauses:
    """Those between the rounds of a link. A partition that waits for good does not make them short for good."""

    def __init__(self) -> None:
        self._backoff = Backoff(FIRST_PAUSE_MS, REFRESH_MS)

    def next_ms(self, partitions: Collection[MirroredPartition]) -> float:
        """How long to wait, after a round that left the partitions so."""
        if not partitions or any(_waits(each) for each in partitions):
            return self._backoff.next_ms()
        self._backoff.reset()
        return REFRESH_MS


def _waits(mirrored: MirroredPartition) -> bool:
    """A leader alone is not enough: what the source keeps refusing has one after each round."""
    return not mirrored.stopped and (mirrored.source_leader < 0 or bool(mirrored.reason.text))
