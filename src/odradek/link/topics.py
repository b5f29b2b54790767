"""Requests to the controller that bring a mirror's topic to the state of the source: partitions, minimum epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from odradek.client.cluster import check
from odradek.common.errors import ApiError, ErrorCode
from odradek.metadata.model import ResourceType
from odradek.protocol.declare import Message
from odradek.protocol.messages import (
    create_partitions_request,
    create_topics_request,
    incremental_alter_configs_request,
)
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.settings.links import MAX_SOURCE_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.metadata.image import MetadataImage
    from odradek.protocol.messages.metadata_response import MetadataResponseTopic
    from odradek.settings.links import Mirror

M = TypeVar("M", bound=Message)
SET = 0
TIMEOUT_MS = 10_000
# The minimum epoch is a multiple of this, so that so many elections at the source cost one new leadership here.
FLOOR_STEP = 16


def changes_of(mirror: Mirror, topic: MetadataResponseTopic) -> dict[str, str]:
    """The settings of a mirror that must change.

    The minimum epoch is raised in steps, since each raise begins new leaderships of all partitions of the mirror.

    Raises:
        ApiError: INVALID_REQUEST, the source's epoch is above the limit.
    """
    changes: dict[str, str] = {}
    if mirror.source_id is None:
        changes[mirror.key("source.id")] = str(topic.topic_id)
    epoch = max((each.leader_epoch for each in topic.partitions), default=0)
    if epoch > MAX_SOURCE_EPOCH:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the source has leader epoch {epoch} of {mirror.topic}, above {MAX_SOURCE_EPOCH}",
        )
    if epoch > mirror.leader_epoch:
        step_end = -(-epoch // FLOOR_STEP) * FLOOR_STEP
        changes[mirror.key("leader.epoch")] = str(max(epoch, min(MAX_SOURCE_EPOCH, step_end)))
    return changes


class SendToController(Protocol):
    """Sends a request of this broker to the active controller."""

    async def __call__(self, request: Message, response: type[M], /) -> M:
        """Raises ApiError."""


class MirrorTopicManager:
    """Creates and grows the topics of mirrors, and sets their settings; one broker is responsible for this."""

    def __init__(self, image: Callable[[], MetadataImage], send: SendToController) -> None:
        self._image = image
        self._send = send

    def differs(self, mirror: Mirror, topic: MetadataResponseTopic) -> bool:
        """Whether the topic differs from the source's. Raises ApiError as `changes_of`."""
        own = self._image().topic(mirror.topic)
        return bool(changes_of(mirror, topic)) or own is None or len(own.partitions) < len(topic.partitions)

    async def follow(self, mirror: Mirror, topic: MetadataResponseTopic) -> None:
        """Bring a topic to the state of the source.

        A change shows in a later image; until then it may be requested again.

        Raises:
            ApiError: the controller refuses it.
        """
        if changes := changes_of(mirror, topic):
            await self.set(changes)
        image = self._image()
        own = image.topic(mirror.topic)
        if mirror.key("mirror") not in image.config(ResourceType.BROKER, ""):
            return  # it was deleted meanwhile, and its settings with it
        if own is None:
            await self._create(mirror.topic, len(topic.partitions))
        elif len(own.partitions) < len(topic.partitions):
            await self._grow(mirror.topic, len(topic.partitions))

    async def set(self, changes: dict[str, str]) -> None:
        """Set cluster-wide settings. Raises ApiError."""
        resource = incremental_alter_configs_request.AlterConfigsResource(
            resource_type=ResourceType.BROKER,
            resource_name="",
            configs=[
                incremental_alter_configs_request.AlterableConfig(name=key, config_operation=SET, value=value)
                for key, value in changes.items()
            ],
        )
        request = incremental_alter_configs_request.IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = (await self._send(request, IncrementalAlterConfigsResponse)).responses
        check(answer.error_code, "settings of a link", answer.error_message)

    async def _create(self, name: str, count: int) -> None:
        topic = create_topics_request.CreatableTopic(name=name, num_partitions=count, replication_factor=-1)
        request = create_topics_request.CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        (answer,) = (await self._send(request, CreateTopicsResponse)).topics
        if answer.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            check(answer.error_code, f"topic {name}", answer.error_message)

    async def _grow(self, name: str, count: int) -> None:
        topic = create_partitions_request.CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = create_partitions_request.CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        (answer,) = (await self._send(request, CreatePartitionsResponse)).results
        if answer.error_code != ErrorCode.INVALID_PARTITIONS:
            check(answer.error_code, f"partitions of {name}", answer.error_message)
