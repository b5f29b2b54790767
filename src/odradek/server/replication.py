"""Connects the parts of replication: fetchers and in-sync sets.

The parts are `replica.fetcher_manager` and `replica.isr_service`; here they get the network, the controller and the
addresses of the other brokers. Nothing is fetched before this broker is registered, because a fetch has its broker
epoch (KIP-903).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.client.security import PLAINTEXT, OutgoingSecurity
from odradek.common.token_bucket import UNLIMITED
from odradek.replica.config import FetcherConfig, ReplicaConfig
from odradek.replica.fetcher_manager import ReplicaFetcherManager
from odradek.replica.isr_service import IsrService, SendAlterPartition
from odradek.replica.log_dir_driver import RATE as LOG_DIR_RATE
from odradek.replica.repair_service import RepairService
from odradek.replica.throttle import FOLLOWER_RATE, LEADER_RATE

if TYPE_CHECKING:
    from odradek.common.errors import StorageError
    from odradek.common.ports import Clock, Network
    from odradek.log.manager import LogManager
    from odradek.metadata.publisher import MetadataPublisher
    from odradek.replica.manager import ReplicaManager
    from odradek.server.lifecycle.suspected_brokers import SuspectedBrokers
    from odradek.settings.broker import BrokerSettings


class Replication:
    """The replication of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        network: Network,
        replicas: ReplicaManager,
        log_manager: LogManager,
        publisher: MetadataPublisher,
        *,
        broker_epoch: Callable[[], int],
        send_alter_partition: SendAlterPartition,
        suspected_brokers: SuspectedBrokers,
        security: OutgoingSecurity = PLAINTEXT,
    ) -> None:
        """
        Args:
            broker_epoch: of this broker's registration.
            send_alter_partition: to the active controller.
            suspected_brokers: notified of leaders that end their connections.
            security: of the inter-broker listener.
        """
        self._replicas = replicas
        self._clock = clock
        self._publisher = publisher
        self._listener_name = settings.inter_broker_listener_name
        fetcher_config = settings.build(FetcherConfig)
        replicas.moves.change_piece_bytes(fetcher_config.max_bytes)
        self.fetchers = ReplicaFetcherManager(
            fetcher_config,
            network,
            clock,
            broker_id=settings.node_id,
            broker_epoch=broker_epoch,
            address_of=self._address_of,
            on_storage_failed=self._storage_failed,
            full_dirs=log_manager.space.full_paths,
            on_reached=suspected_brokers.clear_suspicion,
            on_lost=suspected_brokers.suspect,
            security=security,
        )
        self.isr = IsrService(
            clock,
            broker_id=settings.node_id,
            broker_epoch=broker_epoch,
            send=send_alter_partition,
            partitions=lambda: replicas,
            max_lag_ms=settings.build(ReplicaConfig).lag_time_max_ms,
        )
        self.repairs = RepairService(
            log_manager.disk,
            clock,
            log_manager.files,
            broker_id=settings.node_id,
            connect_to=self.fetchers.connect_to,
            on_storage_failed=self._storage_failed,
        )

    def start(self) -> None:
        """Start to follow leaders and to track followers, after the registration."""
        self._replicas.attach(self.fetchers, self.isr, self.repairs)
        self.isr.start()

    async def stop(self) -> None:
        """Stop fetches and changes of in-sync sets."""
        await self.repairs.close()
        await self.isr.stop()
        await self.fetchers.close()

    def change_settings(self, settings: BrokerSettings) -> None:
        """Apply settings that were changed at run time."""
        fetcher_config = settings.build(FetcherConfig)
        self.fetchers.change_config(fetcher_config)
        self._replicas.moves.change_piece_bytes(fetcher_config.max_bytes)
        now_ms = self._clock.monotonic_ms()
        buckets = (
            (LEADER_RATE, self._replicas.leader_quota),
            (FOLLOWER_RATE, self.fetchers.quota),
            (LOG_DIR_RATE, self._replicas.moves.quota),
        )
        for key, bucket in buckets:
            rate = settings.values.get(key)
            bucket.change_rate(rate if isinstance(rate, int) else UNLIMITED, now_ms)

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._publisher.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _storage_failed(self, failure: StorageError) -> None:
        self._replicas.storage_failed(failure)
