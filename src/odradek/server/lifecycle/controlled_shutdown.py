"""The last moments of a broker that stops in good order, as its clients see them: silence, then a closed connection.

When the leaders have moved, this broker knows it before others do. A client that gets NOT_LEADER_OR_FOLLOWER in
that instant finds the new leader and comes too early, as that one has not applied its leadership yet; or it gets the
new leader while other requests of its own are still on their way here, which librdkafka waits for, and then looks at
the new leader a second later. A closed connection ends all requests of a client at once; it asks another broker then.

So: from the moment in which this broker leads nothing any more, clients get no answer, and when the controller says
that all others know, or after `HOLD_MS`, their connections end. Nothing is acknowledged or refused that was not before;
who had not been answered sends again, as after any lost connection. After `HOLD_MS` clients that come back are served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage
    from odradek.server.network.dispatch import Dispatcher

# Others tell the controller within milliseconds that they know. Who does not may be dead, and clients must go on.
HOLD_MS = 100
_SCOPE = "broker"


def shutdown_is_complete(image: MetadataImage, node_id: int, broker_epoch: int) -> bool:
    """Whether this process of a broker has asked to stop, and leads nothing any more."""
    own = image.brokers.get(node_id)
    if own is None or not own.in_controlled_shutdown or own.broker_epoch != broker_epoch:
        return False
    return not any(
        partition.leader == node_id for topic in image.topics_by_id.values() for partition in topic.partitions.values()
    )


class ControlledShutdown:
    """Pauses the clients of a broker that stops, then disconnects them."""

    def __init__(self, dispatcher: Dispatcher, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._dispatcher = dispatcher
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._timer: asyncio.TimerHandle | None = None
        self._begun = False

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Fall silent when the leaders have moved. Subscribed before those who would answer that they have."""
        if self._begun or not shutdown_is_complete(image, self._node_id, self._broker_epoch()):
            return
        self._begun = True
        self._dispatcher.pause_listeners(_SCOPE)
        self._timer = asyncio.get_running_loop().call_later(HOLD_MS / 1000, self.disconnect_clients)

    def disconnect_clients(self) -> None:
        """End the connections of clients and of other brokers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._dispatcher.disconnect_all(_SCOPE)
