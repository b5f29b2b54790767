"""The end of a controlled shutdown for clients: no more responses, then closed connections.

This broker applies the change of leaders before other brokers do. A client that gets NOT_LEADER_OR_FOLLOWER then finds
the new leader before that broker has applied its leadership. Or the client learns the new leader while it has other
requests in flight to this broker: librdkafka waits for these, and sends to the new leader a second later. A closed
connection fails all requests of a client at once, and the client tries another broker.

Therefore clients get no responses once this broker leads nothing. Their connections are closed when the controller
reports that all other brokers have applied the change, or after `HOLD_MS`. No request is acknowledged or refused in
between; clients send pending requests again, as after any lost connection. After `HOLD_MS` new connections are served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage
    from odradek.server.network.dispatch import Dispatcher

# Brokers report the applied metadata within milliseconds. One that does not may be dead, and clients must continue.
HOLD_MS = 100
_SCOPE = "broker"


def shutdown_is_complete(image: MetadataImage, node_id: int, broker_epoch: int) -> bool:
    """Whether this process of the broker is in a controlled shutdown, and leads nothing any more."""
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
        """Stop responses when the leaders have moved. Subscribed before the parts that would send such responses."""
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
