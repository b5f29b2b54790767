"""What a Fetch means beyond reading where it comes from a follower: its offsets are acknowledgements, partitions of its
session in which nothing happens are skipped, and its share of the bandwidth may be used up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.replica.followers import check_replica, follower_fetched
from odradek.replica.quiet import is_unchanged, refresh_caught_up_follower

if TYPE_CHECKING:
    from odradek.metadata.image import MetadataImage
    from odradek.replica.partition import Partition
    from odradek.server.context import BrokerServices
    from odradek.server.fetch_session_cache import CachedPartition


class FollowerFetch:
    """One Fetch of a follower."""

    __slots__ = ("_broker", "_replica_epoch", "_replica_id")

    def __init__(self, broker: BrokerServices, replica_id: int, replica_epoch: int) -> None:
        """`replica_epoch` is of the follower's registration, as it says; -1 where it does not."""
        self._broker = broker
        self._replica_id = replica_id
        self._replica_epoch = replica_epoch

    def is_registered(self, image: MetadataImage) -> bool:
        """Whether the follower asks under the registration that we know."""
        broker = image.brokers.get(self._replica_id)
        return broker is not None and broker.broker_epoch == self._replica_epoch

    def quiet_partition(self, asked: CachedPartition, now_ms: int, *, acknowledges: bool) -> Partition | None:
        """The partition where nothing has happened since it was answered, None where it must be read.

        Args:
            now_ms: monotonic.
            acknowledges: the follower says by this that it is caught up still.
        """
        partition, offset = asked.quiet, asked.fetch_offset
        assert partition is not None, "asked of quiet ones only"
        if not is_unchanged(
            partition, asked.current_leader_epoch, offset, asked.sent_high_watermark, asked.sent_log_start
        ):
            asked.quiet = None
            return None
        is_quiet = not acknowledges or refresh_caught_up_follower(
            partition,
            self._replica_id,
            fetch_offset=offset,
            log_start_offset=asked.log_start_offset,
            now_ms=now_ms,
            broker_epoch=self._replica_epoch,
        )
        return partition if is_quiet else None

    def acknowledge(self, image: MetadataImage, partition: Partition, asked: CachedPartition) -> None:
        """A follower's fetch offset is its acknowledgement, where it says which life of its broker asks (KIP-903).

        An epoch that we have not heard of yet counts for nothing: it may be news, or anybody's invention.

        Raises:
            ApiError: as `follower_fetched`; NOT_LEADER_OR_FOLLOWER where the broker has registered again, or
                no epoch is given.
        """
        broker = image.brokers.get(self._replica_id)
        if broker is not None and self._replica_epoch < broker.broker_epoch:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._replica_id} fetches with epoch {self._replica_epoch}, and is at {broker.broker_epoch}",
            )
        if broker is None or self._replica_epoch > broker.broker_epoch:
            check_replica(partition, self._replica_id, asked.current_leader_epoch)
            return
        follower_fetched(
            partition,
            self._replica_id,
            fetch_offset=asked.fetch_offset,
            log_start_offset=asked.log_start_offset,
            now_ms=self._broker.clock.monotonic_ms(),
            broker_epoch=self._replica_epoch,
            last_fetched_epoch=asked.last_fetched_epoch,
            current_leader_epoch=asked.current_leader_epoch,
        )

    def is_throttled(self, partition: Partition) -> bool:
        """Whether it gets nothing of a partition for now (KIP-73). Who is in sync is not held back: it would fall."""
        if not partition.throttled.as_leader or self._replica_id in partition.isr:
            return False
        return self._broker.replicas.leader_quota.is_exhausted(self._broker.clock.monotonic_ms())

    def spend(self, partition: Partition, size_bytes: int) -> None:
        """So much of a partition was given to it."""
        if partition.throttled.as_leader:
            self._broker.replicas.leader_quota.spend(size_bytes, self._broker.clock.monotonic_ms())
