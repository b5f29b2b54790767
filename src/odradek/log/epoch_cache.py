"""The start offset of each leader epoch, by which logs are compared and truncated (KIP-101, KIP-279).

Entries rise in epoch and start offset. The caller writes `lines()` to leader-epoch-checkpoint after each change.
Source: Kafka LeaderEpochFileCache.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from odradek.log.checkpoints import CorruptCheckpointError

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochCache:
    """The leader epochs of one log; start offsets are inclusive."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def replace(self, entries: Sequence[tuple[int, int]]) -> None:
        """Replace the entries, oldest first."""
        self._epochs, self._starts = [epoch for epoch, _ in entries], [start for _, start in entries]
        assert all(one < two and at <= then for (one, at), (two, then) in pairwise(entries)), "epochs rise"

    @classmethod
    def from_lines(cls, lines: Sequence[str]) -> EpochCache:
        """Parse a checkpoint's lines. Raises CorruptCheckpointError if epochs or offsets do not rise."""
        cache = cls()
        for line in lines:
            try:
                epoch, start = (int(part) for part in line.split(" "))
            except ValueError:
                raise CorruptCheckpointError(f"{line!r} is not an epoch and an offset") from None
            if cache._epochs and (epoch <= cache._epochs[-1] or start < cache._starts[-1]):
                raise CorruptCheckpointError(f"epoch {epoch} at {start} does not follow")
            cache._epochs.append(epoch)
            cache._starts.append(start)
        return cache

    def lines(self) -> list[str]:
        return [f"{epoch} {start}" for epoch, start in self.entries()]

    def entries(self) -> list[tuple[int, int]]:
        """The (epoch, start offset) of each entry, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest_epoch(self) -> int:
        """The newest epoch; UNDEFINED_EPOCH if there is none."""
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add an epoch that begins at an offset; returns whether it is new. A later epoch replaces one at the same
        offset."""
        if epoch < 0 or (self._epochs and epoch <= self._epochs[-1]):
            return False
        while self._starts and self._starts[-1] >= start_offset:
            self._starts.pop()
            self._epochs.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        assert len(self._epochs) < 2 or self._starts[-2] < start_offset, "later epochs begin later"
        return True

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch of the record at `offset`; UNDEFINED_EPOCH if unknown."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The (largest epoch not above `epoch`, its end offset, exclusive).

        Both are undefined if `epoch` is undefined or above all entries.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            return epoch, self._starts[0]
        return self._epochs[index - 1], self._starts[index]

    def truncate_from_end(self, end_offset: int) -> bool:
        """Remove the epochs that begin at `end_offset` or later; returns whether any was removed."""
        changed = False
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
            changed = True
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Remove the epochs before the one in force at `start_offset`, which begins there now; returns whether any
        changed."""
        index = bisect_right(self._starts, start_offset) - 1
        if index < 0 or (index == 0 and self._starts[0] == start_offset):
            return False
        del self._starts[:index]
        del self._epochs[:index]
        self._starts[0] = start_offset
        return True

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()
