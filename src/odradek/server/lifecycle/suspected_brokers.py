"""What clients learn of leaders while a broker goes: nothing stale, and no sudden gap.

librdkafka asks for metadata in the instant in which its connection to a leader ends. With the dead broker as leader in
the response, it asks again a second later. And where the response with the new leader no longer has the dead broker, it
drops the partition together with the broker, and finds its leader again a second later. Failover itself takes some
milliseconds; each of the two made it a second for the client. So:

- a broker whose connection to a leader has ended doubts for a moment that it leads: Metadata that would name it waits
  for news of it, and for no longer than `DOUBT_MS`;
- Metadata goes on naming a broker that was fenced for `NAMED_MS`, as an address: it leads nothing, counts as offline.
  Apache Kafka leaves it out at once.

Nothing is decided by this but what a client hears, and when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.common.ports import Clock
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage

# A leader's death is known in milliseconds where the controller lives; where it died too, an election comes first.
DOUBT_MS = 1_000
# Longer than two of the second-long periods in which librdkafka looks at what has no leader.
NAMED_MS = 3_000


class SuspectedBrokers:
    """Brokers that are going, and those that have just gone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fenced_ms: dict[int, int] = {}
        self._doubted_ms: dict[int, int] = {}
        self._news = asyncio.Event()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Brokers were fenced, or are back."""
        for broker_id in sorted(delta.changed_brokers):
            before, after = delta.image.brokers.get(broker_id), image.brokers.get(broker_id)
            self.clear_suspicion(broker_id)
            if before is not None and not before.fenced and after is not None and after.fenced:
                self._fenced_ms[broker_id] = self._clock.monotonic_ms()
            else:
                self._fenced_ms.pop(broker_id, None)

    def suspect(self, broker_id: int) -> None:
        """The connection to a leader has ended, and not from this side."""
        self._doubted_ms[broker_id] = self._clock.monotonic_ms()

    def clear_suspicion(self, broker_id: int) -> None:
        """There is news of a broker: it answers, or the cluster says what it is."""
        if self._doubted_ms.pop(broker_id, None) is not None:
            self._news.set()
            self._news = asyncio.Event()

    def is_advertised(self, broker_id: int) -> bool:
        """Whether clients still hear the address of a fenced broker."""
        fenced_ms = self._fenced_ms.get(broker_id)
        return fenced_ms is not None and self._clock.monotonic_ms() - fenced_ms < NAMED_MS

    @property
    def in_doubt(self) -> bool:
        """Whether there may be any doubt at all; false nearly always, and cheap."""
        return bool(self._doubted_ms)

    def doubted(self) -> set[int]:
        """Brokers that may be alive or dead."""
        now_ms = self._clock.monotonic_ms()
        self._doubted_ms = {each: since for each, since in self._doubted_ms.items() if now_ms - since < DOUBT_MS}
        return set(self._doubted_ms)

    async def wait_resolved(self, brokers: Iterable[int]) -> None:
        """Return when none of these brokers is doubted any more."""
        asked = set(brokers)
        while left := asked & self.doubted():
            until_ms = DOUBT_MS + min(self._doubted_ms[each] for each in left) - self._clock.monotonic_ms()
            try:
                async with asyncio.timeout(until_ms / 1000):
                    await self._news.wait()
            except TimeoutError:
                continue
