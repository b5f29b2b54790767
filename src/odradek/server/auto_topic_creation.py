"""Creates topics through the active controller, and waits until this broker's image has them.

A client that created a topic requests its metadata next, often from this broker. On a combined node the image is never
behind the response; on other nodes this waits for the image, for a limited time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.metadata.image import MetadataImage
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.server.context import RequestContext
from odradek.settings.options import config, option

if TYPE_CHECKING:
    from odradek.metadata.delta import MetadataDelta
    from odradek.server.controller_gateway import Controller

# How long an answer may wait for our own view. The operation has succeeded by then: it is answered in any case.
CATCH_UP_MS = 5_000
AUTO_CREATE_TIMEOUT_MS = 30_000
DEFAULT_COUNT = -1


async def wait_until_seen(
    publisher: MetadataPublisher, is_seen: Callable[[MetadataImage], bool], *, timeout_ms: int = CATCH_UP_MS
) -> bool:
    """Wait until the image satisfies `is_seen`; returns whether it did in time."""
    if is_seen(publisher.image):
        return True
    seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_publish(_: MetadataDelta, image: MetadataImage) -> None:
        if is_seen(image) and not seen.done():
            seen.set_result(None)

    publisher.subscribe(on_publish)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await seen
        return True
    except TimeoutError:
        return False
    finally:
        publisher.unsubscribe(on_publish)


@config
class AutoCreateConfig:
    """The settings of automatic topic creation."""

    auto_create_topics_enable: bool = option(
        "auto.create.topics.enable", default=True, doc="Create a topic when a client asks for its metadata first."
    )


class TopicCreator:
    """Creates topics for the broker's own needs: on first use, and for the coordinators."""

    def __init__(self, config: AutoCreateConfig, controller: Controller, publisher: MetadataPublisher) -> None:
        self.on_first_use = config.auto_create_topics_enable
        self._controller = controller
        self._publisher = publisher
        self._inflight: dict[str, asyncio.Task[None]] = {}

    async def create(self, name: str, context: RequestContext | None = None) -> None:
        """Create a topic with the broker's defaults, once for concurrent requests; return when the image has it.

        Args:
            context: of the client for which it is created, and whose quota it counts for.
        Raises:
            ApiError: the error of CreateTopics.
        """
        task = self._inflight.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(
                self.create_with(name, DEFAULT_COUNT, DEFAULT_COUNT, {}, context)
            )
            self._inflight[name] = task
            task.add_done_callback(lambda _: self._inflight.pop(name, None))
        await asyncio.shield(task)

    async def create_with(
        self,
        name: str,
        partitions: int,
        replication: int,
        configs: Mapping[str, str],
        context: RequestContext | None = None,
    ) -> None:
        """Create a topic as given; raises ApiError with the error of CreateTopics."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=AUTO_CREATE_TIMEOUT_MS)
        if context is None:
            response = await self._controller.request(request, CreateTopicsResponse)
        else:
            response = await context.broker.controller.request(request, CreateTopicsResponse, _of_client(context))
        for result in response.topics:
            if result.error_code:
                raise ApiError(ErrorCode(result.error_code), result.error_message or "")
        await wait_until_seen(self._publisher, lambda image: image.topic(name) is not None)

    async def close(self) -> None:
        """Cancel creations in progress: if the controllers stop too, they would wait a minute for one."""
        tasks = tuple(self._inflight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _of_client(context: RequestContext) -> RequestContext:
    """The context of a CreateTopics on behalf of the client, in a version that its quota can refuse."""
    return RequestContext(
        context.broker,
        context.connection,
        ApiKey.CREATE_TOPICS,
        API[ApiKey.CREATE_TOPICS].max_version,
        context.correlation_id,
        context.client_id,
    )
