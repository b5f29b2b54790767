"""A follower's Fetch: its offsets acknowledge records, unchanged partitions are skipped, and a quota may throttle
it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.replica.followers import check_replica, follower_fetched
from odradek.replica.unchanged import is_unchanged, refresh_caught_up_follower

if TYPE_CHECKING:
    from odradek.metadata.image import MetadataImage
    from odradek.replica.partition import Partition
    from odradek.server.context import BrokerServices
    from odradek.server.fetch_session_cache import CachedPartition


class FollowerFetch:
    """One Fetch of a follower."""

    __slots__ = ("_broker", "_replica_epoch", "_replica_id")

    def __init__(self, broker: BrokerServices, replica_id: int, replica_epoch: int) -> None:
        """`replica_epoch` is the broker epoch that the follower sent; -1 if it sent none."""
        self._broker = broker
        self._replica_id = replica_id
        self._replica_epoch = replica_epoch

    def is_registered(self, image: MetadataImage) -> bool:
        """Whether the follower's broker epoch is the registered one."""
        broker = image.brokers.get(self._replica_id)
        return broker is not None and broker.broker_epoch == self._replica_epoch

    def unchanged_partition(self, requested: CachedPartition, now_ms: int, *, acknowledges: bool) -> Partition | None:
        """The partition if nothing has changed since the last response; None if it must be read.

        Args:
            now_ms: monotonic.
            acknowledges: the fetch acknowledges that the follower is still caught up.
        """
        partition, offset = requested.caught_up_partition, requested.fetch_offset
        assert partition is not None, "only a caught-up follower is checked for changes"
        if not is_unchanged(
            partition, requested.current_leader_epoch, offset, requested.sent_high_watermark, requested.sent_log_start
        ):
            requested.caught_up_partition = None
            return None
        is_quiet = not acknowledges or refresh_caught_up_follower(
            partition,
            self._replica_id,
            fetch_offset=offset,
            log_start_offset=requested.log_start_offset,
            now_ms=now_ms,
            broker_epoch=self._replica_epoch,
        )
        return partition if is_quiet else None

    def acknowledge(self, image: MetadataImage, partition: Partition, requested: CachedPartition) -> None:
        """Record the fetch offset of a follower as its acknowledgement, if its broker epoch is current (KIP-903).

        A fetch with a newer epoch than the metadata's acknowledges nothing: the registration may not have arrived yet.

        Raises:
            ApiError: as `follower_fetched`; NOT_LEADER_OR_FOLLOWER where the epoch is older than the registered one, or
                missing.
        """
        broker = image.brokers.get(self._replica_id)
        if broker is not None and self._replica_epoch < broker.broker_epoch:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._replica_id} fetches with epoch {self._replica_epoch}, and is at {broker.broker_epoch}",
            )
        if broker is None or self._replica_epoch > broker.broker_epoch:
            check_replica(partition, self._replica_id, requested.current_leader_epoch)
            return
        follower_fetched(
            partition,
            self._replica_id,
            fetch_offset=requested.fetch_offset,
            log_start_offset=requested.log_start_offset,
            now_ms=self._broker.clock.monotonic_ms(),
            broker_epoch=self._replica_epoch,
            last_fetched_epoch=requested.last_fetched_epoch,
            current_leader_epoch=requested.current_leader_epoch,
        )

    def is_throttled(self, partition: Partition) -> bool:
        """Whether the quota excludes a partition for now (KIP-73). In-sync replicas are exempt, to stay in sync."""
        if not partition.throttled.as_leader or self._replica_id in partition.isr:
            return False
        return self._broker.replicas.leader_quota.is_exhausted(self._broker.clock.monotonic_ms())

    def charge_quota(self, partition: Partition, size_bytes: int) -> None:
        """Charge the bytes of a throttled partition to the quota."""
        if partition.throttled.as_leader:
            self._broker.replicas.leader_quota.spend(size_bytes, self._broker.clock.monotonic_ms())
