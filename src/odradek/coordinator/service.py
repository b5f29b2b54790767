"""The common part of the group and transaction coordinators: a shard for each partition of their topic led here.

A shard is loading, active or closed; `on_elected` creates it and `on_resigned` closes it. The topic is created when the
first client looks up its coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.log_lines import get_logger
from odradek.coordinator.hashing import partition_for
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import Endpoint

_log = get_logger("coordinator.service")

# How long FindCoordinator waits until the topic is created: Kafka answers at once with an error, and its client retries
# after a backoff that is much longer than the creation.
CREATION_WAIT_S = 2.0
CREATION_POLL_S = 0.01

# Creates a topic of (name, partition count, replication factor, configs); raises ApiError.
CreateTopic = Callable[[str, int, int, Mapping[str, str]], Awaitable[None]]

# The answers to a client for the log's errors of a failed write. Source: Kafka
# CoordinatorOperationExceptionHelper, TransactionStateManager.
WRITE_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def answer_code(error: BaseException) -> ErrorCode:
    """The error code of a failed operation for the client."""
    if isinstance(error, ApiError):
        return WRITE_ERRORS.get(error.code, error.code)
    return ErrorCode.NOT_COORDINATOR if isinstance(error, OdradekError) else ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(frozen=True, slots=True)
class StateTopic:
    """The topic of a coordinator's state, as it is created.

    Attributes:
        factor_key: the broker setting of its replication factor.
    """

    name: str
    partition_count: int
    replication_factor: int
    factor_key: str
    configs: Mapping[str, str]


class HostedShard(Protocol):
    """One partition's machine during one leadership."""

    @property
    def leader_epoch(self) -> int: ...

    def start(self) -> None:
        """Start to load."""
        ...

    def resign(self) -> None:
        """Stop at once: waiting requests get NOT_COORDINATOR."""
        ...

    async def close(self) -> None:
        """Resign, and wait for the shard's tasks."""
        ...


ShardT = TypeVar("ShardT", bound=HostedShard)


class ShardHost(Generic[ShardT]):
    """The shards of one topic on this broker, and lookups of those on others."""

    def __init__(
        self,
        topic: StateTopic,
        *,
        node_id: int,
        image: Callable[[], MetadataImage],
        create_topic: CreateTopic,
        make_shard: Callable[[int, int], ShardT],
    ) -> None:
        """
        Args:
            image: returns the present metadata image of this broker.
            create_topic: creates the topic when the first client looks up its coordinator.
            make_shard: of (partition id, leader epoch); raises ApiError: KAFKA_STORAGE_ERROR, its log cannot be opened.
        """
        self.topic = topic
        self.shards: dict[int, ShardT] = {}
        self._node_id = node_id
        self._image = image
        self._create_topic = create_topic
        self._make_shard = make_shard
        self._creation: asyncio.Task[None] | None = None
        # The error of the last attempt to create the topic.
        self._refusal = ""
        self._closing: dict[asyncio.Task[None], None] = {}
        # The previous leader of each partition, as far as this process knows.
        self._last_leaders: dict[int, int] = {}

    # ---- lifecycle of the shards

    def on_elected(self, partition_id: int, leader_epoch: int) -> None:
        """This broker leads a partition of the topic from `leader_epoch` on: load it.

        If its log cannot be opened, because its directory is offline or there is no space, the partition has no
        coordinator until the controller elects another leader, or there is space (`log_placed`).
        """
        present = self.shards.get(partition_id)
        if present is not None and present.leader_epoch >= leader_epoch:
            return
        self.on_resigned(partition_id)
        try:
            shard = self._make_shard(partition_id, leader_epoch)
        except ApiError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            _log.warning(
                "log of a coordinator's partition is offline",
                topic=self.topic.name,
                partition=partition_id,
                error=error,
            )
            return
        self.shards[partition_id] = shard
        shard.start()

    def log_placed(self, topic: str, partition_id: int) -> None:
        """A log for which there was no space at first has been created."""
        partition = self._image().partition(topic, partition_id) if topic == self.topic.name else None
        if partition is not None and partition.leader == self._node_id:
            self.on_elected(partition_id, partition.leader_epoch)

    def on_resigned(self, partition_id: int) -> None:
        """This broker no longer leads the partition: close its shard."""
        shard = self.shards.pop(partition_id, None)
        if shard is not None:
            shard.resign()
            task = asyncio.get_running_loop().create_task(shard.close())
            self._closing[task] = None
            task.add_done_callback(self._closing.pop)

    def election_reason(self, partition_id: int, leader_epoch: int) -> str:
        """The reason for which this broker became the partition's leader, as text; called with the metadata change."""
        before = self._last_leaders.get(partition_id)
        if before is None:
            cause = "it has started, or the partition is new"
        elif before == self._node_id:
            cause = "it led before, and was elected again"
        else:
            cause = f"it took over from broker {before}"
        where = f"{self.topic.name}-{partition_id}, leader epoch {leader_epoch}"
        return f"broker {self._node_id} became the coordinator ({where}): {cause}"

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the leadership of the topic's partitions.

        A subscriber of the publisher; it must come after the one that makes this broker's partitions leaders.
        """
        topic = image.topic(self.topic.name)
        changed = delta.changed_partitions.get(topic.topic_id, ()) if topic is not None else ()
        for partition_id in sorted(changed):
            assert topic is not None
            partition = topic.partitions[partition_id]
            if partition.leader == self._node_id:
                self.on_elected(partition_id, partition.leader_epoch)
            else:
                self.on_resigned(partition_id)
            if partition.leader >= 0:
                self._last_leaders[partition_id] = partition.leader
        if topic is None and any(each.name == self.topic.name for each in delta.deleted_topics.values()):
            self._last_leaders.clear()
            for partition_id in list(self.shards):
                self.on_resigned(partition_id)

    async def close(self) -> None:
        """Close all shards and wait for their tasks."""
        for partition_id in list(self.shards):
            self.on_resigned(partition_id)
        if self._creation is not None:
            self._creation.cancel()
            await asyncio.gather(self._creation, return_exceptions=True)
        await asyncio.gather(*self._closing)

    # ---- lookup

    def partition_for(self, key: str) -> int | None:
        """The partition of the topic for a group or transactional id; None if the topic does not exist."""
        topic = self._image().topic(self.topic.name)
        return None if topic is None or not topic.partitions else partition_for(key, len(topic.partitions))

    def shard(self, key: str) -> ShardT:
        """The shard of a key. Raises ApiError(NOT_COORDINATOR)."""
        partition_id = self.partition_for(key)
        shard = None if partition_id is None else self.shards.get(partition_id)
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{key} is kept elsewhere")
        return shard

    def leader_of(self, key: str) -> int:
        """The broker id of a key's coordinator in the present metadata; -1 if there is none."""
        partition_id = self.partition_for(key)
        partition = None if partition_id is None else self._image().partition(self.topic.name, partition_id)
        return -1 if partition is None else partition.leader

    async def find_coordinator(self, key: str, listener_name: str) -> tuple[int, Endpoint]:
        """The coordinator (broker id, endpoint of the listener) of a key; creates the topic on first use.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE while the topic is created, has no leader, or its leader has no such
                listener.
        """
        if self.partition_for(key) is None:
            await self._await_topic()
        broker = self._image().brokers.get(self.leader_of(key))
        endpoint = None if broker is None or broker.fenced else broker.endpoint(listener_name)
        if broker is None or endpoint is None:
            reason = self.lacks_brokers() or self._refusal or "the coordinator is not available"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
        return broker.broker_id, endpoint

    def lacks_brokers(self) -> str:
        """The error text if the topic does not exist and there are fewer brokers than its replicas; else ""."""
        topic, image = self.topic, self._image()
        known = len(image.brokers)
        if image.topic(topic.name) is not None or not 0 < known < topic.replication_factor:
            return ""
        there_are = "1 is" if known == 1 else f"{known} are"
        return (
            f"{topic.name} needs {topic.replication_factor} brokers, {there_are} registered; "
            f"start more, or set {topic.factor_key}={known}"
        )

    async def _await_topic(self) -> None:
        if self._creation is None or self._creation.done():
            self._creation = asyncio.get_running_loop().create_task(self._create())
        for _ in range(int(CREATION_WAIT_S / CREATION_POLL_S)):
            if self._image().topic(self.topic.name) is not None or self._creation.done():
                return
            await asyncio.sleep(CREATION_POLL_S)

    async def _create(self) -> None:
        topic = self.topic
        try:
            await self._create_topic(topic.name, topic.partition_count, topic.replication_factor, topic.configs)
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                replicas = topic.replication_factor
                _log.warning("topic cannot be created", topic=topic.name, replicas=replicas, error=error)
                self._refusal = f"{topic.name} cannot be created: {error}"
                return
        self._refusal = ""
        for _ in range(int(CREATION_WAIT_S / CREATION_POLL_S)):  # until this broker's metadata has it
            if self._image().topic(topic.name) is not None:
                return
            await asyncio.sleep(CREATION_POLL_S)
