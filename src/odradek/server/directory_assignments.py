"""Tells the controller in which log directory each replica of this broker lies, where its metadata says otherwise.

A broker with several directories chooses one itself, and a new disk takes the place of one that broke: the controller
elects only where it knows that the directory is there. Source: KIP-858.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.common.errors import ErrorCode, OdradekError
from odradek.common.log_lines import get_logger
from odradek.metadata.features import DEFAULT_METADATA_VERSION, DIRECTORY_ASSIGNMENT, METADATA_VERSION
from odradek.metadata.model import UNASSIGNED_DIRECTORY
from odradek.protocol.messages.assign_replicas_to_dirs_request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage
    from odradek.server.controller_gateway import ControllerGateway

# As Kafka's brokers: one request names no more partitions than the controller decides in a few milliseconds.
MAX_PER_REQUEST = 2250
RETRY_MS = 500
_log = get_logger("server.directories")
_Key = tuple[UUID, int]


class DirectoryAssignments:
    """What this broker still has to tell."""

    def __init__(
        self,
        controller: ControllerGateway,
        broker_id: int,
        broker_epoch: Callable[[], int],
        directory_of: Callable[[str, int], UUID],
    ) -> None:
        """
        Args:
            broker_epoch: of this broker's registration.
            directory_of: the id of the directory that holds a replica, by topic and partition; UNASSIGNED_DIRECTORY
                where there is none.
        """
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._directory_of = directory_of
        self._untold: dict[_Key, UUID] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to tell; this broker is registered."""
        self._task = asyncio.get_running_loop().create_task(self._keep_telling())

    async def stop(self) -> None:
        """Tell nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Compare what has changed with where it lies; comes after the replicas have followed."""
        if image.features.get(METADATA_VERSION, DEFAULT_METADATA_VERSION) < DIRECTORY_ASSIGNMENT:
            return
        for topic in delta.deleted_topics.values():
            for number in topic.partitions:
                self._untold.pop((topic.topic_id, number), None)
        for topic_id, changed in delta.changed_partitions.items():
            present = image.topics_by_id.get(topic_id)
            for number in changed if present is not None else ():
                assert present is not None
                partition = present.partitions[number]
                here = UNASSIGNED_DIRECTORY
                if self._broker_id in partition.replicas:
                    here = self._directory_of(present.name, number)
                if here in (UNASSIGNED_DIRECTORY, partition.directory(self._broker_id)):
                    self._untold.pop((topic_id, number), None)
                else:
                    self._untold[topic_id, number] = here
        if self._untold:
            self._changed.set()

    async def _keep_telling(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._untold:
                batch = dict(islice(self._untold.items(), MAX_PER_REQUEST))
                if not await self._tell(batch):
                    await asyncio.sleep(RETRY_MS / 1000)
                    continue
                for key, directory in batch.items():
                    if self._untold.get(key) == directory:
                        del self._untold[key]

    async def _tell(self, batch: dict[_Key, UUID]) -> bool:
        """Send one request; returns whether the controller took it, partitions that it does not know included."""
        by_directory: dict[UUID, dict[UUID, list[PartitionData]]] = {}
        for (topic_id, number), directory in batch.items():
            topics = by_directory.setdefault(directory, {})
            topics.setdefault(topic_id, []).append(PartitionData(partition_index=number))
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                DirectoryData(
                    id=directory,
                    topics=[TopicData(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
                )
                for directory, topics in by_directory.items()
            ],
        )
        try:
            answer = await self._controller.assign_replicas_to_dirs(request)
        except OdradekError as error:
            _log.warning("the controller was not told where replicas lie", error=error)
            return False
        if answer.error_code:
            _log.warning("the controller was not told where replicas lie", error=ErrorCode(answer.error_code).name)
        return not answer.error_code
