"""Reports the log directories of replicas to the controller, if its metadata has other ones.

A broker with several directories chooses one for a new replica, and a disk may be replaced. The controller elects only
replicas whose directory it knows as online. Source: KIP-858.
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
from odradek.metadata.model import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from odradek.protocol.messages.assign_replicas_to_dirs_request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse

if TYPE_CHECKING:
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage
    from odradek.metadata.model import TopicImage
    from odradek.server.controller_gateway import Controller

# As Kafka's brokers: one request names no more partitions than the controller decides in a few milliseconds.
MAX_PER_REQUEST = 2250
RETRY_MS = 500
_log = get_logger("server.directories")
_Key = tuple[UUID, int]


class DirectoryAssignments:
    """The pending reports of this broker."""

    def __init__(
        self,
        controller: Controller,
        broker_id: int,
        broker_epoch: Callable[[], int],
        directory_of: Callable[[str, int], UUID],
        is_online: Callable[[UUID], bool],
    ) -> None:
        """
        Args:
            broker_epoch: of this broker's registration.
            directory_of: the id of the directory that holds a replica, by topic and partition; UNASSIGNED_DIRECTORY
                if there is none, LOST_DIRECTORY if the directory has failed.
            is_online: whether a directory of this broker works; the metadata has a failure later.
        """
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._directory_of = directory_of
        self._is_online = is_online
        self._unreported: dict[_Key, UUID] = {}
        # The target directories of moved replicas, and the callbacks that wait until the controller knows them.
        self._planned: dict[_Key, UUID] = {}
        self._waiting: dict[_Key, Callable[[], None]] = {}
        self._image: MetadataImage | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to tell; this broker is registered."""
        self._task = asyncio.get_running_loop().create_task(self._report_loop())

    async def stop(self) -> None:
        """Stop sending assignments."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Compare changed assignments with the directories of the replicas, after the replicas have applied the
        change."""
        self._image = image
        if not _are_assigned(image):
            return
        for topic in delta.deleted_topics.values():
            for number in topic.partitions:
                self._unreported.pop((topic.topic_id, number), None)
        for topic_id, changed in delta.changed_partitions.items():
            present = image.topics_by_id.get(topic_id)
            for number in sorted(changed) if present is not None else ():
                assert present is not None
                self._compare(present, number)
        if self._unreported:
            self._changed.set()

    def compare(self, topic_name: str, number: int) -> None:
        """A replica has its place only now: compare it."""
        image = self._image
        topic = None if image is None or not _are_assigned(image) else image.topics_by_name.get(topic_name)
        if topic is not None and number in topic.partitions:
            self._compare(topic, number)
            if self._unreported:
                self._changed.set()

    def _compare(self, topic: TopicImage, number: int) -> None:
        key, partition = (topic.topic_id, number), topic.partitions[number]
        here = UNASSIGNED_DIRECTORY
        if self._broker_id in partition.replicas:
            here = self._planned.get(key) or self._directory_of(topic.name, number)
            if here == LOST_DIRECTORY and not self._counts_as_online(partition.directory(self._broker_id)):
                # The controller knows the directory, and learns of its failure; else it would let this broker lead.
                here = UNASSIGNED_DIRECTORY
        if here in (UNASSIGNED_DIRECTORY, partition.directory(self._broker_id)):
            self._unreported.pop(key, None)
            self._reported(key, here)
        else:
            self._unreported[key] = here

    def _counts_as_online(self, directory: UUID) -> bool:
        """Whether the controller may elect this broker for replicas in this directory."""
        return directory == UNASSIGNED_DIRECTORY or self._is_online(directory)

    def assign_and_notify(self, topic_id: UUID, number: int, directory: UUID, confirmed: Callable[[], None]) -> None:
        """Report the target directory of a move, and call `confirmed` when the controller has it.

        Until `move_ended`, that directory counts as the directory of the replica.
        """
        if self._image is None or not _are_assigned(self._image):
            confirmed()
            return
        key = (topic_id, number)
        self._planned[key], self._waiting[key] = directory, confirmed
        self._unreported[key] = directory
        self._changed.set()

    def move_ended(self, topic_id: UUID, number: int) -> None:
        """A move is complete or cancelled: the replica's present directory counts again."""
        key = (topic_id, number)
        self._waiting.pop(key, None)
        if self._planned.pop(key, None) is None or self._image is None:
            return
        topic = self._image.topics_by_id.get(topic_id)
        if topic is not None and number in topic.partitions:
            self._compare(topic, number)
            # The controller may have the other directory already, in metadata that is not applied here yet.
            here = self._directory_of(topic.name, number)
            if here not in (UNASSIGNED_DIRECTORY, LOST_DIRECTORY):
                self._unreported[key] = here
                self._changed.set()

    def _reported(self, key: _Key, directory: UUID) -> None:
        if self._planned.get(key) == directory:
            self._waiting.pop(key, lambda: None)()

    async def _report_loop(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._unreported:
                batch = dict(islice(self._unreported.items(), MAX_PER_REQUEST))
                if not await self._send(batch):
                    await asyncio.sleep(RETRY_MS / 1000)
                    continue
                for key, directory in batch.items():
                    if self._unreported.get(key) == directory:
                        del self._unreported[key]
                        self._reported(key, directory)

    async def _send(self, batch: dict[_Key, UUID]) -> bool:
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
            answer = await self._controller.request(request, AssignReplicasToDirsResponse)
        except OdradekError as error:
            _log.warning("AssignReplicasToDirs failed", error=error)
            return False
        if answer.error_code:
            _log.warning("AssignReplicasToDirs failed", error=ErrorCode(answer.error_code).name)
        return not answer.error_code


def _are_assigned(image: MetadataImage) -> bool:
    return image.features.get(METADATA_VERSION, DEFAULT_METADATA_VERSION) >= DIRECTORY_ASSIGNMENT
