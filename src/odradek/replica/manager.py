"""The partitions of this broker: created, deleted, led and followed by the metadata.

A subscriber of the metadata publisher. Changes are applied at once on the event loop, so that readers of the new image
find its partitions. A partition whose directory fails is closed, and its requests get KAFKA_STORAGE_ERROR; the others
are served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.log_lines import get_logger
from odradek.common.ports import is_out_of_descriptors
from odradek.common.token_bucket import TokenBucket
from odradek.log.config import LogConfig
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import LOST_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY, ResourceType
from odradek.replica.early_refusals import EarlyRefusals
from odradek.replica.flusher import Flusher
from odradek.replica.in_sync import IsrCounts
from odradek.replica.isolation import DEFAULT_SESSION_MS, Isolation
from odradek.replica.leadership import apply_image
from odradek.replica.log_dir_driver import LogDirMoves, ReportMove
from odradek.replica.partition import Partition
from odradek.replica.preparation import PartitionWorkQueues
from odradek.replica.promotion import end_mirror
from odradek.replica.selector import Selector
from odradek.replica.throttle import throttled
from odradek.settings.links import begun_cuts, ended_mirrors, failing_back, mirrored_topics, own_from

if TYPE_CHECKING:
    from odradek.log.manager import LogManager
    from odradek.log.segment import Segment
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.model import PartitionImage, TopicImage
    from odradek.replica.fetcher_manager import ReplicaFetcherManager
    from odradek.replica.isr_service import IsrService
    from odradek.replica.repair_service import RepairCounts, RepairService

# The number of logs that are created with one change of the metadata, or in one later turn of the event loop.
CREATED_AT_ONCE = 4
DISCARDED_AT_ONCE = 20
_log = get_logger("replica.manager")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCallbacks:
    """Callbacks for events of replicas.

    Attributes:
        log_created_later: a log was created after the change of the metadata that added its partition.
        log_placed: a log was created for which there was no space at first.
        report_move: reports the target directory of a move; calls back when the controller has it.
        move_ended: a move is complete or cancelled.
    """

    log_created_later: Callable[[str, int], None] = lambda topic, partition_id: None
    log_placed: Callable[[str, int], None] = lambda topic, partition_id: None
    report_move: ReportMove = lambda partition, log_dir, confirmed: confirmed()
    move_ended: Callable[[Partition], None] = lambda partition: None


class ReplicaManager:
    """The replicas that lie on this broker."""

    def __init__(
        self,
        broker_id: int,
        log_manager: LogManager,
        *,
        fetch_max_bytes: int,
        on_storage_failed: Callable[[Path], None] = lambda log_dir: None,
        monotonic_ms: Callable[[], int] = lambda: 0,
        selector: Selector | None = None,
        callbacks: ReplicaCallbacks | None = None,
        session_ms: int = DEFAULT_SESSION_MS,
        coordinators_topics: frozenset[str] = frozenset(),
    ) -> None:
        """
        Args:
            fetch_max_bytes: the most that one Fetch of a consumer is answered with (fetch.max.bytes).
            on_storage_failed: called once for each directory that failed.
            monotonic_ms: the time by which followers lag.
            selector: sends consumers to other replicas; None leaves them with leaders.
            session_ms, coordinators_topics: see `Isolation`.
        """
        self.broker_id = broker_id
        self.fetch_max_bytes = fetch_max_bytes
        self.parked_fetch_count = 0
        self._log_manager = log_manager
        self._on_storage_failed = on_storage_failed
        self._callbacks = callbacks = callbacks or ReplicaCallbacks()
        self.preparations = PartitionWorkQueues(log_manager.disk)
        self.monotonic_ms = monotonic_ms
        self.selector = selector
        self.isr_counts = IsrCounts()
        self.early_refusals = EarlyRefusals()
        self.isolation = Isolation(self, monotonic_ms, session_ms=session_ms, exempt=coordinators_topics)
        self.leader_quota = TokenBucket()
        self._image = MetadataImage()
        self._mirrors: frozenset[str] = frozenset()
        self._ended_mirrors: dict[str, int] = {}
        self._failing_back: frozenset[str] = frozenset()
        self._own_from: dict[str, int] = {}
        self._begun_cuts: frozenset[tuple[str, int]] = frozenset()
        self._fetchers: ReplicaFetcherManager | None = None
        self._isr: IsrService | None = None
        self._repairs: RepairService | None = None
        self._flusher = Flusher(log_manager.disk, self.storage_failed)
        self.moves = LogDirMoves(
            log_manager,
            self._flusher,
            self.storage_failed,
            report=callbacks.report_move,
            on_ended=callbacks.move_ended,
        )
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._offline: set[tuple[str, int]] = set()
        # Partitions without a directory, as there was no space.
        self._unplaced: dict[tuple[str, int], None] = {}
        # Partitions whose logs are created at the first access, or soon: this takes a millisecond or two each.
        self._deferred: dict[tuple[str, int], None] = {}
        self._removed_count = 0
        self._discards_later = False
        self._knows_metadata = False
        self._created_count = 0

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    def attach(self, fetchers: ReplicaFetcherManager, isr: IsrService, repairs: RepairService | None = None) -> None:
        """Start the replica fetchers, the requests for changes of in-sync sets, and repairs."""
        self._fetchers, self._isr, self._repairs = fetchers, isr, repairs
        for partition in self:
            self._assign(partition)

    @property
    def offline_count(self) -> int:
        """The number of partitions in failed directories."""
        return len(self._offline)

    @property
    def fetchers(self) -> ReplicaFetcherManager | None:
        """The replica fetchers; None before this broker is registered."""
        return self._fetchers

    def partition(self, topic: str, partition_id: int) -> Partition | None:
        """A partition that lies here, whether led or followed."""
        if (topic, partition_id) in self._deferred:
            self._create((topic, partition_id))
        return self._partitions.get((topic, partition_id))

    def directory_of(self, topic: str, partition_id: int) -> UUID:
        """The id of a partition's directory.

        LOST_DIRECTORY if it has failed, or may have; UNASSIGNED_DIRECTORY if there is none.
        """
        lost = (topic, partition_id) in self._offline
        return LOST_DIRECTORY if lost else self._log_manager.directory_of(topic, partition_id)

    def is_online(self, directory: UUID) -> bool:
        """Whether a directory is one of this broker's, and works."""
        return any(each.directory_id == directory and not each.offline for each in self._log_manager.directories)

    def find(self, topic: str, partition_id: int, image: MetadataImage) -> Partition:
        """A partition of this broker.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, or NOT_LEADER_OR_FOLLOWER if only other brokers
                have it.
        """
        found = self._partitions.get((topic, partition_id))
        if found is None and (topic, partition_id) in self._deferred:
            found = self.partition(topic, partition_id)
        if found is not None:
            return found
        if (topic, partition_id) in self._offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic}-{partition_id} is offline")
        if (topic, partition_id) in self._unplaced:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"no space left on the device for {topic}-{partition_id}")
        if image.partition(topic, partition_id) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{partition_id}")
        raise ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.broker_id} has no replica of {topic}-{partition_id}"
        )

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow a change of the cluster's metadata."""
        self._image = image
        if (ResourceType.BROKER, "") in delta.changed_configs:
            self._apply_mirrors(image.config(ResourceType.BROKER, ""))
        self._created_count = self._removed_count = 0
        for topic in delta.deleted_topics.values():
            for partition_id in topic.partitions:
                self._remove(topic.name, partition_id, topic.topic_id)
        for topic_id, changed in delta.changed_partitions.items():
            present = image.topics_by_id.get(topic_id)
            if present is not None:
                for partition_id in sorted(changed):
                    self._apply_partition(present, partition_id, present.partitions[partition_id], image)
        self._knows_metadata = True
        changed_topics = {name for kind, name in delta.changed_configs if kind == ResourceType.TOPIC}
        for partition in tuple(self._partitions.values()) if changed_topics else ():
            if partition.topic in changed_topics:
                self._reconfigure(partition, image)

    @property
    def mirrors(self) -> frozenset[str]:
        """The topics that are mirrors of another cluster's."""
        return self._mirrors

    def _apply_mirrors(self, settings: Mapping[str, str]) -> None:
        before, self._mirrors = self._mirrors, mirrored_topics(settings)
        ended, self._ended_mirrors = self._ended_mirrors, ended_mirrors(settings)
        failing, self._failing_back = self._failing_back, failing_back(settings)
        self._own_from, self._begun_cuts = own_from(settings), begun_cuts(settings)
        changed = (before ^ self._mirrors) | (failing ^ self._failing_back)
        changed |= {topic for topic, _ in ended.items() ^ self._ended_mirrors.items()}
        for partition in self if changed else ():
            if partition.topic in changed:
                self._mark(partition)
                self._end_mirror(partition)

    @property
    def failing_back(self) -> frozenset[str]:
        """The topics in a failback, which become mirrors after the cut."""
        return self._failing_back

    def _mark(self, partition: Partition) -> None:
        """Whether it is a mirror; one that ends to be it is until its leader has ended it in the log."""
        partition.first_own_epoch = self._ended_mirrors.get(partition.topic, 0)
        partition.own_from = -1
        if (partition.topic, partition.partition_id) not in self._begun_cuts:
            partition.own_from = self._own_from.get(partition.topic, -1)
        partition.is_mirror = partition.topic in self._mirrors or partition.first_own_epoch > 0
        partition.is_failing_back = partition.topic in self._failing_back

    def _end_mirror(self, partition: Partition) -> None:
        """End a mirror that this broker leads in an epoch of its own, unless that was done."""
        if not partition.is_leader or not 0 < partition.first_own_epoch <= partition.leader_epoch:
            return
        try:
            end_mirror(partition, self._log_manager.clock.now_ms())
        except ApiError as error:
            _log.warning("a mirror cannot end yet: the next write tries it again", of=partition.name, error=error)
        except StorageError as error:
            self.storage_failed(error)

    def base_config_changed(self, base: LogConfig, image: MetadataImage) -> None:
        """The broker's defaults for topics have changed."""
        self._log_manager.base_config = base
        for partition in self:
            self._reconfigure(partition, image)

    def _apply_partition(  # noqa: C901 - a case for each change
        self, topic: TopicImage, partition_id: int, partition_image: PartitionImage, image: MetadataImage
    ) -> None:
        key = (topic.name, partition_id)
        partition = self._partitions.get(key)
        if self.broker_id not in partition_image.replicas:
            self._unplaced.pop(key, None)
            self._deferred.pop(key, None)
            if partition is not None:
                self._remove(topic.name, partition_id, topic.topic_id)
            return
        if partition is not None and partition.topic_id != topic.topic_id:
            self._remove(topic.name, partition_id, partition.topic_id)
            partition = None
        if key in self._offline:
            return
        try:
            if partition is None:
                if self._may_be_offline(key, partition_image):
                    self._offline.add(key)
                    return
                if self._defer_creation(key):
                    return
                log = self._log_manager.create(topic.name, partition_id, topic.topic_id, image.topic_config(topic.name))
                partition = Partition(
                    topic.name,
                    partition_id,
                    topic.topic_id,
                    log,
                    broker_id=self.broker_id,
                    request_flush=self._flusher.request,
                    request_isr=self._request_isr,
                    monotonic_ms=self.monotonic_ms,
                    isr_counts=self.isr_counts,
                    is_isr_eligible=self._is_isr_eligible,
                )
                partition.throttled = throttled(image.topic_config(topic.name), partition_id, self.broker_id)
                self._mark(partition)
                log.damage.on_damage = partial(self._repair, partition)
                self.early_refusals.move_to(topic.name, topic.topic_id, partition_id, log.producers.refusals)
                self._partitions[key] = partition
                if key in self._unplaced:
                    del self._unplaced[key]
                    # Later, since the callback may be in the call stack of the caller.
                    asyncio.get_running_loop().call_soon(self._callbacks.log_placed, *key)
            if partition.log.topic_partition in self._log_manager.futures.logs:
                self.moves.resume(partition)
            before = (partition.leader_id, partition.leader_epoch)
            if apply_image(partition, partition_image, now_ms=self.monotonic_ms()):
                self._end_mirror(partition)
            if before != (partition.leader_id, partition.leader_epoch):
                self._assign(partition)
        except ApiError as error:
            if key not in self._unplaced and not self._log_manager.space.full():
                _log.warning(
                    "a partition waits for its directory", topic=topic.name, partition=partition_id, error=error
                )
            self._unplaced[key] = None
        except StorageError as error:
            self._offline.add(key)
            self.storage_failed(error)

    def _assign(self, partition: Partition) -> None:
        """Fetch it from its leader, or no more."""
        if self._fetchers is None:
            return
        if partition.is_leader or partition.leader_id == NO_LEADER or partition.closed:
            self._fetchers.remove_partition(partition)
        else:
            self._fetchers.add_partition(partition)

    @property
    def repair_counts(self) -> RepairCounts | None:
        """The counters of repairs; None before this broker is registered."""
        return None if self._repairs is None else self._repairs.counts

    def _repair(self, partition: Partition, segment: Segment, position: int) -> bool:
        return self._repairs is not None and self._repairs.request(partition, segment, position)

    def _request_isr(self, partition: Partition) -> None:
        if self._isr is not None:
            self._isr.request(partition)

    def _is_isr_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._image.brokers.get(broker_id)
        return broker is not None and broker.active and broker_epoch in (-1, broker.broker_epoch)

    def _may_be_offline(self, key: tuple[str, int], partition_image: PartitionImage) -> bool:
        """Whether a missing log may be in a failed directory: an empty log would assign acknowledged offsets again.

        At the start this includes a directory that was not reported to the controller.
        """
        offline = {each.directory_id for each in self._log_manager.directories if each.offline}
        if not offline or self._log_manager.get(key) is not None:
            return False
        if key in self._log_manager.unopened and not self._knows_metadata:
            # In any directory of the controller's: it may not know the cancellation of a move.
            return True
        directory = partition_image.directory(self.broker_id)
        if directory in (UNASSIGNED_DIRECTORY, LOST_DIRECTORY):
            return not self._knows_metadata
        return directory in offline

    def _defer_creation(self, key: tuple[str, int]) -> bool:
        """Whether the creation of a log is deferred: thousands of new partitions must not block other requests."""
        if self._log_manager.get(key) is not None:
            return False
        self._created_count += 1
        if self._created_count <= CREATED_AT_ONCE:
            return False
        if not self._deferred:
            asyncio.get_running_loop().call_soon(self._create_some)
        self._deferred[key] = None
        return True

    @property
    def is_creating_logs(self) -> bool:
        """Whether there are partitions whose logs are not created yet."""
        return bool(self._deferred)

    def may_create_now(self, count: int) -> bool:
        """Whether so many logs may be created in one turn of the event loop."""
        return count <= CREATED_AT_ONCE

    async def logs_created(self) -> None:
        """Wait until all logs are created."""
        while self._deferred:  # noqa: ASYNC110 - each turn of the loop makes some
            await asyncio.sleep(0)

    def _create_some(self) -> None:
        for key in tuple(islice(self._deferred, CREATED_AT_ONCE)):
            self._create(key)
        if self._deferred:
            asyncio.get_running_loop().call_soon(self._create_some)

    def _create(self, key: tuple[str, int]) -> None:
        del self._deferred[key]
        self._created_count = 0
        topic, partition_image = self._image.topics_by_name.get(key[0]), self._image.partition(*key)
        if topic is not None and partition_image is not None:
            self._apply_partition(topic, key[1], partition_image, self._image)
            self._callbacks.log_created_later(*key)

    def move(self, topic: str, partition_id: int, log_dir: Path, image: MetadataImage) -> None:
        """Move a replica to another log directory of this broker, or choose it for the replica of a missing partition.

        Raises:
            ApiError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, INVALID_REPLICA_ASSIGNMENT (the directory is cordoned,
                KIP-1066), UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE (there is no replica here), and
                the errors of `LogDirMoves.begin`. StorageError.
        """
        found = self._log_manager.dirs.get(log_dir)
        if found is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{log_dir} is not a log directory of broker {self.broker_id}")
        if found.offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir} is offline: {found.error}")
        try:
            partition = self.find(topic, partition_id, image)
        except ApiError as error:
            if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise
            self._log_manager.futures.preferred[topic, partition_id] = log_dir
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, error.message) from None
        if found.cordoned and partition.log.log_dir != log_dir:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{log_dir} is cordoned: it takes no more replicas")
        self.moves.begin(partition, log_dir)

    def retry_unplaced(self) -> None:
        """Try again to create the logs for which there was no space, up to the first error."""
        image = self._image
        for name, partition_id in tuple(self._unplaced):
            topic, partition_image = image.topics_by_name.get(name), image.partition(name, partition_id)
            if topic is None or partition_image is None:
                del self._unplaced[name, partition_id]
                continue
            self._apply_partition(topic, partition_id, partition_image, image)
            if (name, partition_id) in self._unplaced:
                return

    def _remove(self, topic: str, partition_id: int, topic_id: UUID) -> None:
        partition = self._partitions.get((topic, partition_id))
        if partition is not None and partition.topic_id != topic_id:
            return
        self._offline.discard((topic, partition_id))
        self._unplaced.pop((topic, partition_id), None)
        self._deferred.pop((topic, partition_id), None)
        if partition is not None:
            del self._partitions[topic, partition_id]
            self._close(partition)
            self._removed_count += 1
            try:
                if self._removed_count <= DISCARDED_AT_ONCE:
                    self._log_manager.delete((topic, partition_id))
                    return
                self._log_manager.schedule_delete((topic, partition_id))
            except StorageError as error:
                self.storage_failed(error)
            if not self._discards_later:
                self._discards_later = True
                asyncio.get_running_loop().call_soon(self._discard_some)

    def _discard_some(self) -> None:
        """Delete logs, a few in each turn of the event loop."""
        try:
            self._discards_later = self._log_manager.discard_deleted(DISCARDED_AT_ONCE)
        except StorageError as error:
            self.storage_failed(error)
        if self._discards_later:
            asyncio.get_running_loop().call_soon(self._discard_some)

    def _reconfigure(self, partition: Partition, image: MetadataImage) -> None:
        overrides = image.topic_config(partition.topic)
        partition.throttled = throttled(overrides, partition.partition_id, self.broker_id)
        config = LogConfig.from_overrides(self._log_manager.base_config, overrides)
        self._log_manager.update_config((partition.topic, partition.partition_id), config)
        partition.config_changed()

    def storage_failed(self, error: StorageError) -> None:
        """Take a failed directory and its partitions offline, until a restart."""
        if is_out_of_descriptors(error.__cause__):
            _log.error("too many open files: the operation is not done", log_dir=error.log_dir, error=error)
            return
        self.moves.directory_failed(error.log_dir)
        lost = [key for key, partition in self._partitions.items() if partition.log.log_dir == error.log_dir]
        for key in lost:
            self._close(self._partitions.pop(key))
            self._offline.add(key)
        if self._log_manager.take_offline(error.log_dir):
            _log.error("log directory offline", log_dir=error.log_dir, partitions=len(lost), error=error)
            self._on_storage_failed(error.log_dir)

    def _close(self, partition: Partition) -> None:
        partition.close()
        self.moves.partition_closed(partition)
        self._assign(partition)

    async def flush(self, partition: Partition) -> None:
        """Flush a partition; a disk error takes its directory offline."""
        await self._flusher.flush(partition)

    async def close(self) -> None:
        """End all waits. The log manager closes the logs."""
        await self.moves.close()
        for partition in self:
            partition.close()
        self._partitions.clear()
        self._deferred.clear()
        await self.preparations.close()
        await self._flusher.close()
