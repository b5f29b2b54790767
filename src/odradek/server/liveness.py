"""A broker that dies is noticed at once, not when its session has run out.

The active controller sees the connection end on which a broker sent its heartbeats. It dials the address that the
broker registered, once: where the host answers that nobody listens there, the process is gone, and the broker is
fenced. A host that is silent, or a process that still listens, keeps its session: a broken connection is no proof.

A controller that begins its reign dials all brokers in the same way: one of them may have died with the controller
before it. Those that it has not heard of by then are dialled once more a little later.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError
from odradek.common.log_lines import get_logger

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from odradek.common.ports import Network
    from odradek.controller.service import ControllerService
    from odradek.metadata.model import BrokerImage
    from odradek.metadata.publisher import MetadataPublisher
    from odradek.server.connection import Connection

# A host that is there answers within a round trip, whether somebody listens or not.
DIAL_TIMEOUT_S = 1.0
# A process that dies closes its sockets one by one: its listener may outlive the connection by an instant.
CLOSING_S = 0.05
# Brokers look for the new controller in this time, and beat; who does not is looked at again.
SECOND_LOOK_S = 1.0
_log = get_logger("server.liveness")


class _Dialled(asyncio.Protocol):
    """Our end of a connection that is only tried."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class BrokerLiveness:
    """Which connection is whose, and what to do when it ends."""

    def __init__(
        self,
        network: Network,
        service: ControllerService,
        publisher: MetadataPublisher,
        node_id: int,
    ) -> None:
        """`service` is this node's controller; while it is not the active one, nobody is dialled."""
        self._network = network
        self._service = service
        self._publisher = publisher
        self._node_id = node_id
        self._looks: dict[asyncio.Task[None], None] = {}
        self._stopped = False

    def heard(self, connection: Connection, broker_id: int, broker_epoch: int) -> None:
        """A broker has sent a heartbeat over this connection."""
        connection.on_lost = lambda: self._lost(broker_id, broker_epoch)

    def reign_begins(self) -> None:
        """This node's controller became the active one."""
        if not self._stopped:
            self._start(self._look_at_all())

    async def stop(self) -> None:
        """Look at nobody any more."""
        self._stopped = True
        looks = tuple(self._looks)
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    def _lost(self, broker_id: int, broker_epoch: int) -> None:
        if self._service.active and not self._stopped:
            self._start(self._look_at(broker_id, broker_epoch))

    def _start(self, look: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(look)
        self._looks[task] = None
        task.add_done_callback(self._looks.pop)

    async def _look_at_all(self) -> None:
        for _ in range(2):
            if not self._service.active:
                return
            unheard = self._service.unheard_brokers()
            await asyncio.gather(
                *(self._look_at(broker_id, epoch) for broker_id, epoch in unheard if broker_id != self._node_id)
            )
            await asyncio.sleep(SECOND_LOOK_S)

    async def _look_at(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker where nobody listens at its address any more."""
        broker = self._serving(broker_id, broker_epoch)
        if broker is None or not await self._is_gone(broker):
            return
        if self._serving(broker_id, broker_epoch) is None or not self._service.active:
            return
        _log.info("a broker's process is gone: it is fenced", broker_id=broker_id, broker_epoch=broker_epoch)
        try:
            await self._service.fence_dead(broker_id, broker_epoch)
        except ApiError as error:
            _log.info("a dead broker is left to its session", broker_id=broker_id, error=error)

    def _serving(self, broker_id: int, broker_epoch: int) -> BrokerImage | None:
        broker = self._publisher.image.brokers.get(broker_id)
        return broker if broker is not None and not broker.fenced and broker.broker_epoch == broker_epoch else None

    async def _is_gone(self, broker: BrokerImage) -> bool:
        """Whether the host of a broker says that nobody listens there."""
        if not broker.endpoints:
            return False
        host, port = broker.endpoints[0].host, broker.endpoints[0].port
        for _ in range(2):
            dialled = _Dialled()
            try:
                async with asyncio.timeout(DIAL_TIMEOUT_S):
                    transport, _ = await self._network.connect(lambda taken=dialled: taken, host, port)  # type: ignore[misc]
            except ConnectionRefusedError:
                return True
            except (OSError, TimeoutError):
                return False
            try:
                async with asyncio.timeout(CLOSING_S):
                    await dialled.lost.wait()
            except TimeoutError:
                return False
            finally:
                transport.abort()
        return False
