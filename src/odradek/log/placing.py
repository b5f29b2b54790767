"""Which log directory a new log gets: the one that has the fewest.

Counting the logs again for each new one would be quadratic where a request makes thousands. So the maps that hold all
logs of a broker keep count of them: putting a log into one of them, or taking it out, changes the count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import overload

from odradek.common.topic_names import TopicPartition
from odradek.log.log import Log


class Placing:
    """How many logs lie in each directory, copies that are on their way into one included."""

    def __init__(self) -> None:
        self.counts: Counter[Path] = Counter()

    def emptiest(self, dirs: Sequence[Path]) -> Path:
        """The first of these that has the fewest; `dirs` is not empty."""
        return min(dirs, key=self.counts.__getitem__)


class CountedLogs(dict[TopicPartition, Log]):
    """Logs by partition, which are counted in their directories.

    Only assignment, `del` and `pop` change it: what else a dict has does not count. A log that is in it stays in its
    directory.
    """

    def __init__(self, placing: Placing) -> None:
        super().__init__()
        self._counts = placing.counts

    def __setitem__(self, key: TopicPartition, log: Log) -> None:
        self.pop(key, None)
        super().__setitem__(key, log)
        self._counts[log.log_dir] += 1

    def __delitem__(self, key: TopicPartition) -> None:
        self.pop(key)

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
        raise AssertionError("logs come by assignment and go by del or pop, which count them")

    clear = update = setdefault = popitem = __ior__ = _uncounted  # type: ignore[assignment]  # of no use, whatever is given
