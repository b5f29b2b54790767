"""A buffer of one machine's readings, which are held back for a bound of lateness. No Spark in here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Reading:
    """A reading of a machine; ordered by time, and by its number if two have one time."""

    at_ms: int
    number: int
    value: float


@dataclass(slots=True)
class Buffer:
    """The readings that came and wait.

    Attributes:
        newest_ms: the latest time that was seen.
        released_ms: all up to here are given away, exclusive; what comes with an earlier time is late.
    """

    newest_ms: int = 0
    released_ms: int = 0
    waiting: list[Reading] = field(default_factory=list)

    def take(self, came: list[Reading], bound_ms: int) -> tuple[list[Reading], list[Reading]]:
        """Take what came in one batch.

        Returns:
            What can be given away now, in order: nothing that comes later belongs before it, unless it comes more than
            `bound_ms` behind the newest. And what came too late for that.
        """
        late = [reading for reading in came if reading.at_ms < self.released_ms]
        self.waiting += [reading for reading in came if reading.at_ms >= self.released_ms]
        self.waiting.sort()
        self.newest_ms = max([self.newest_ms, *(reading.at_ms for reading in came)])
        self.released_ms = max(self.released_ms, self.newest_ms - bound_ms)
        ready = [reading for reading in self.waiting if reading.at_ms < self.released_ms]
        self.waiting = self.waiting[len(ready) :]
        return ready, late

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Buffer:
        found = json.loads(text)
        return Buffer(found["newest_ms"], found["released_ms"], [Reading(**each) for each in found["waiting"]])
