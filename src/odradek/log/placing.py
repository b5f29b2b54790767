"""Which log directory a new log lies in: the one that has the fewest.

The logs of each directory are counted once, and kept count of while new ones come: a request that makes thousands
would count all of them for each. Anything else that happens to logs has them counted anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from odradek.log.log import Log


class Placing:
    """How many logs lie in each directory, copies that are on their way into one included."""

    def __init__(self, logs: Callable[[], Iterable[Log]]) -> None:
        """`logs` are all of this broker."""
        self._logs = logs
        self._counts: dict[Path, int] | None = None

    def forget(self) -> None:
        """Logs came or went in other ways than by `placed`."""
        self._counts = None

    def placed(self, log_dir: Path) -> None:
        """A new log lies there."""
        if self._counts is not None:
            self._counts[log_dir] = self._counts.get(log_dir, 0) + 1

    def emptiest(self, dirs: Sequence[Path]) -> Path:
        """The first of these that has the fewest; `dirs` is not empty."""
        if len(dirs) == 1:
            return dirs[0]
        if self._counts is None:
            self._counts = {}
            for log in self._logs():
                self.placed(log.log_dir)
        counts = self._counts
        return min(dirs, key=lambda path: counts.get(path, 0))
