"""Fences a broker as soon as its process has ended, without waiting for its session to expire.

The active controller notices that the connection ends on which a broker sends its heartbeats. It then probes the
address that the broker registered: where the host refuses the connection, the process has ended, and the broker is
fenced. A host that does not answer, or a process that still accepts connections, keeps its session: a broken connection
is no proof.

A controller that becomes active probes all brokers in the same way, as one of them may have ended together with the
previous active controller. Brokers without a heartbeat by then are probed once more a little later.
"""

from __future__ import annotations

import asyncio
from collections import Counter
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
    from odradek.server.network.connection import Connection

# A reachable host answers within a round trip, whether a process listens or not.
CONNECT_TIMEOUT_S = 1.0
# A process that is killed closes its sockets one by one, and on a busy machine its listener may outlive the connection
# by a second: so long each probe waits for its own connection to end before the next one.
PROBE_WAITS_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
# Brokers find the new controller in this time and send heartbeats; those that do not are probed again.
SECOND_PROBE_S = 1.0
_log = get_logger("server.lifecycle.liveness")


class _Probe(asyncio.Protocol):
    """Our end of a connection that carries no request."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class BrokerLiveness:
    """Tracks the connections of heartbeats, and checks a broker whose connection ends."""

    def __init__(
        self,
        network: Network,
        service: ControllerService,
        publisher: MetadataPublisher,
        node_id: int,
    ) -> None:
        """`service` is this node's controller; while it is not the active one, no broker is probed."""
        self._network = network
        self._service = service
        self._publisher = publisher
        self._node_id = node_id
        self._heartbeats: Counter[tuple[int, int]] = Counter()  # by (broker id, broker epoch), while it is probed
        self._probes: dict[asyncio.Task[None], None] = {}
        self._stopped = False

    def heartbeat_received(self, connection: Connection, broker_id: int, broker_epoch: int) -> None:
        """A broker has sent a heartbeat over this connection."""
        connection.on_lost = lambda: self._on_connection_lost(broker_id, broker_epoch)
        if (broker_id, broker_epoch) in self._heartbeats:
            self._heartbeats[broker_id, broker_epoch] += 1

    def on_controller_active(self) -> None:
        """This node's controller became the active one."""
        if not self._stopped:
            self._start(self._probe_all())

    async def stop(self) -> None:
        """End all probes."""
        self._stopped = True
        probes = tuple(self._probes)
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)

    def _on_connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        if self._service.active and not self._stopped:
            self._start(self._probe(broker_id, broker_epoch))

    def _start(self, probe: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(probe)
        self._probes[task] = None
        task.add_done_callback(self._probes.pop)

    async def _probe_all(self) -> None:
        for _ in range(2):
            if not self._service.active:
                return
            unheard = self._service.brokers_without_heartbeat()
            await asyncio.gather(
                *(self._probe(broker_id, epoch) for broker_id, epoch in unheard if broker_id != self._node_id)
            )
            await asyncio.sleep(SECOND_PROBE_S)

    async def _probe(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker whose address refuses connections."""
        broker = self._unfenced(broker_id, broker_epoch)
        if broker is None or not await self._is_gone(broker):
            return
        if self._unfenced(broker_id, broker_epoch) is None or not self._service.active:
            return
        _log.info("a broker's process has ended: fencing it", broker_id=broker_id, broker_epoch=broker_epoch)
        try:
            await self._service.fence_dead(broker_id, broker_epoch)
        except ApiError as error:
            _log.info("a broker whose process has ended is not fenced yet", broker_id=broker_id, error=error)

    def _unfenced(self, broker_id: int, broker_epoch: int) -> BrokerImage | None:
        broker = self._publisher.image.brokers.get(broker_id)
        return broker if broker is not None and not broker.fenced and broker.broker_epoch == broker_epoch else None

    async def _is_gone(self, broker: BrokerImage) -> bool:
        """Whether a broker's address refuses connections before its next heartbeat arrives."""
        if not broker.endpoints:
            return False
        key = broker.broker_id, broker.broker_epoch
        before = self._heartbeats.setdefault(key, 0)
        try:
            for wait_s in PROBE_WAITS_S:
                refused = await self._is_refused(broker.endpoints[0].host, broker.endpoints[0].port, wait_s)
                if refused is not None or self._heartbeats[key] != before:
                    return bool(refused)
            return False
        finally:
            self._heartbeats.pop(key, None)

    async def _is_refused(self, host: str, port: int, wait_s: float) -> bool | None:
        """Whether a connection is refused; None if one was established, and ended or lasted for `wait_s`."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                transport, probe = await self._network.connect(_Probe, host, port)
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        assert isinstance(probe, _Probe)
        try:
            async with asyncio.timeout(wait_s):
                await probe.lost.wait()
        except TimeoutError:
            pass
        finally:
            transport.abort()
        return None
