"""The transaction parts of a broker: the coordinator, the writer of markers, and the verifier of transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.client.security import PLAINTEXT, OutgoingSecurity
from odradek.common.ports import Clock, Network
from odradek.coordinator.expressions import OffLoop
from odradek.coordinator.group.service import GroupCoordinator
from odradek.coordinator.service import CreateTopic
from odradek.coordinator.transaction.config import TransactionConfig
from odradek.coordinator.transaction.driver import TransactionMarkerSender
from odradek.coordinator.transaction.service import MakeLog, TransactionCoordinator
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.write_txn_markers_request import WriteTxnMarkersRequest
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from odradek.replica.manager import ReplicaManager
from odradek.server.network.peers import BrokerPeers
from odradek.server.transactions.marker_writer import MarkerWriter
from odradek.server.transactions.producer_ids import ProducerIdBlocks
from odradek.server.transactions.verification import TransactionVerifier, VerificationConfig
from odradek.settings.broker import BrokerSettings

if TYPE_CHECKING:
    from odradek.server.controller_gateway import Controller


class Transactions:
    """The parts, built over a broker's partitions and groups."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock,
        network: Network,
        image: Callable[[], MetadataImage],
        image_is_current: Callable[[], bool],
        broker_epoch: Callable[[], int],
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        controller: Controller,
        make_log: MakeLog,
        create_topic: CreateTopic,
        run_blocking: OffLoop,
        security: OutgoingSecurity = PLAINTEXT,
    ) -> None:
        """
        Args:
            image_is_current: whether the image is no older than this broker's registration.
            broker_epoch: of this broker's registration.
            controller: allocates blocks of producer ids.
            security: of the inter-broker listener.
            run_blocking: runs long work off the event loop.
        """
        self._node_id = settings.node_id

        def new_peers() -> BrokerPeers:
            return BrokerPeers(
                network,
                node_id=settings.node_id,
                listener_name=settings.inter_broker_listener_name,
                image=image,
                security=security,
            )

        # Markers wait for followers: over the same connection they would delay verifications, for which producers wait.
        self.peers, self._marker_peers = new_peers(), new_peers()
        self.markers = MarkerWriter(replicas, groups, clock, image)
        self.producer_ids = ProducerIdBlocks(controller, settings.node_id, broker_epoch)
        self.coordinator = TransactionCoordinator(
            settings.build(TransactionConfig),
            node_id=settings.node_id,
            clock=clock,
            make_log=make_log,
            image=image,
            create_topic=create_topic,
            run_blocking=run_blocking,
            new_producer_id=self.producer_ids.next_id,
            markers=TransactionMarkerSender(image=image, image_is_current=image_is_current, send=self._send_markers),
        )
        self.verifier = TransactionVerifier(
            settings.build(VerificationConfig),
            self.coordinator,
            self.peers,
            node_id=settings.node_id,
            monotonic_ms=clock.monotonic_ms,
        )

    def change_settings(self, settings: BrokerSettings) -> None:
        """Apply settings that were changed at run time."""
        self.verifier.config = settings.build(VerificationConfig)

    async def _send_markers(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if broker_id == self._node_id:
            return await self.markers.write(request)
        return await self._marker_peers.request(broker_id, request, WriteTxnMarkersResponse)

    async def close(self) -> None:
        """End the coordinator's leaderships, and the connections to other brokers."""
        await self.coordinator.close()
        await self.peers.close()
        await self._marker_peers.close()
        await self.producer_ids.close()
