"""Selects the log directory of a new log: the one with the fewest logs.

Counting all logs for each new one would be quadratic for a request that creates thousands. So the maps of the broker's
logs update the counts at each change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import overload

from odradek.common.topic_names import TopicPartition
from odradek.log.log import Log


class Placing:
    """The number of logs in each directory, including future replicas."""

    def __init__(self) -> None:
        self.counts: Counter[Path] = Counter()

    def emptiest(self, dirs: Sequence[Path]) -> Path:
        """The first of `dirs` with the fewest logs; `dirs` is not empty."""
        return min(dirs, key=self.counts.__getitem__)


class CountedLogs(dict[TopicPartition, Log]):
    """Logs by partition; each change updates the counts of their directories.

    Only assignment and `pop` are allowed. A log stays in its directory while it is in the map.
    """

    def __init__(self, placing: Placing) -> None:
        super().__init__()
        self._counts = placing.counts

    def __setitem__(self, key: TopicPartition, log: Log) -> None:
        self.pop(key, None)
        super().__setitem__(key, log)
        self._counts[log.log_dir] += 1

    @overload  # type: ignore[override]  # what is not there may only be None
    def pop(self, key: TopicPartition, /) -> Log: ...

    @overload
    def pop(self, key: TopicPartition, default: None, /) -> Log | None: ...

    def pop(self, key: TopicPartition, /, *default: None) -> Log | None:
        """As `dict.pop`."""
        log = super().pop(key, *default)
        if log is not None:
            self._counts[log.log_dir] -= 1
        return log

    def _uncounted(self, *args: object, **named: object) -> None:
        raise AssertionError("only assignment and pop keep the counts of logs")

    clear = update = setdefault = popitem = __ior__ = __delitem__ = _uncounted  # type: ignore[assignment]  # none may be called
