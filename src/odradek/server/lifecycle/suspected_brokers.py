"""The leaders and brokers of Metadata responses while a broker fails.

librdkafka requests metadata when its connection to a leader ends. If the response still has the dead broker as leader,
librdkafka waits a second before the next request. If the response has the new leader and omits the dead broker,
librdkafka drops the partition with the broker, and finds the new leader a second later. A failover takes milliseconds;
either case makes it a second for the client. Therefore:

- A broker suspects a leader whose connection has ended. Metadata with a suspected leader waits until the leader
  responds or is fenced, for at most `SUSPICION_MS`.
- Metadata includes the address of a fenced broker for `ADVERTISED_MS`. That broker leads nothing and counts as offline.
  Apache Kafka omits it at once.

This affects Metadata responses alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.common.ports import Clock
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage

# A controller fences a dead leader within milliseconds; if the active controller died too, an election comes first.
SUSPICION_MS = 1_000
# Longer than two of librdkafka's intervals of a second for partitions without a leader.
ADVERTISED_MS = 3_000


class SuspectedBrokers:
    """The brokers that may have failed, and those that were fenced a short time ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fenced_ms: dict[int, int] = {}
        self._suspected_ms: dict[int, int] = {}
        self._resolved = asyncio.Event()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Record the brokers that were fenced; any change of a broker ends its suspicion."""
        for broker_id in sorted(delta.changed_brokers):
            before, after = delta.image.brokers.get(broker_id), image.brokers.get(broker_id)
            self.clear_suspicion(broker_id)
            if before is not None and not before.fenced and after is not None and after.fenced:
                self._fenced_ms[broker_id] = self._clock.monotonic_ms()
            else:
                self._fenced_ms.pop(broker_id, None)

    def suspect(self, broker_id: int) -> None:
        """Suspect a leader: it, or the network, has closed the connection."""
        self._suspected_ms[broker_id] = self._clock.monotonic_ms()

    def clear_suspicion(self, broker_id: int) -> None:
        """End the suspicion of a broker: it responds, or the metadata has its state."""
        if self._suspected_ms.pop(broker_id, None) is not None:
            self._resolved.set()
            self._resolved = asyncio.Event()

    def is_advertised(self, broker_id: int) -> bool:
        """Whether responses still include the address of a fenced broker."""
        fenced_ms = self._fenced_ms.get(broker_id)
        return fenced_ms is not None and self._clock.monotonic_ms() - fenced_ms < ADVERTISED_MS

    @property
    def any_suspected(self) -> bool:
        """Whether there may be any doubt at all; false nearly always, and cheap."""
        return bool(self._suspected_ms)

    def suspected(self) -> set[int]:
        """Brokers that may be alive or dead."""
        now_ms = self._clock.monotonic_ms()
        self._suspected_ms = {
            each: since for each, since in self._suspected_ms.items() if now_ms - since < SUSPICION_MS
        }
        return set(self._suspected_ms)

    async def wait_resolved(self, brokers: Iterable[int]) -> None:
        """Return when none of these brokers is doubted any more."""
        requested = set(brokers)
        while left := requested & self.suspected():
            until_ms = SUSPICION_MS + min(self._suspected_ms[each] for each in left) - self._clock.monotonic_ms()
            try:
                async with asyncio.timeout(until_ms / 1000):
                    await self._resolved.wait()
            except TimeoutError:
                continue
