"""Copies topic settings from the source to mirrors: all that are set on the topic there, or those of a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.client.admin import ConfigOperation
from odradek.client.cluster import check
from odradek.common.turns import in_slices
from odradek.link.same_topics import same_topics
from odradek.metadata.model import ResourceType
from odradek.protocol.messages import describe_configs_request, incremental_alter_configs_request
from odradek.protocol.messages.describe_configs_response import DescribeConfigsResourceResult, DescribeConfigsResponse
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.settings.link_settings import TOPIC_SETTINGS, TopicList, topic_list
from odradek.settings.resources import ConfigSource

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.link.topics import SendToController
    from odradek.metadata.image import MetadataImage
    from odradek.settings.links import Link

Changes = dict[str, str | None]
# The settings of so many topics are changed by one request: a topic has far fewer than 100, and the controller decides
# at most 10,000 per request.
TOPICS_PER_REQUEST = 100


class TopicSettingsFollower:
    """Copies topic settings; one broker is responsible for this."""

    def __init__(self, image: Callable[[], MetadataImage | None], send: SendToController) -> None:
        """`image` is None on all other brokers."""
        self._image = image
        self._send = send

    async def follow(self, source: Cluster, present: Callable[[], Link]) -> None:
        """One round. `present` returns the present state of the link.

        Raises OdradekError: the first error of the source or of the controller here.
        """
        image = self._image()
        seen = [mirror for mirror in present().mirrors.values() if mirror.source_id is not None]
        there_are = [mirror for mirror in seen if image is not None and image.topic(mirror.topic) is not None]
        # By their names at the source, which the response has.
        topics = {mirror.source_topic: mirror.topic for mirror in there_are}
        if not topics:
            return
        resources = [
            describe_configs_request.DescribeConfigsResource(
                resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=None
            )
            for name in sorted(topics)
        ]
        request = describe_configs_request.DescribeConfigsRequest(resources=resources)
        answer = await source.request(request, DescribeConfigsResponse)
        same = await same_topics(source, present(), topics.values())
        image, link = self._image(), present()
        if image is None or TOPIC_SETTINGS.interval_ms(link.settings) is None:
            return
        wanted = topic_list(link.settings)
        changes = {
            topic: changes_of(each.configs, image.config(ResourceType.TOPIC, topic), wanted)
            for each in answer.results
            if not each.error_code and (topic := topics.get(each.resource_name, "")) in same & link.mirrors.keys()
            if image.topic(topic) is not None
        }
        await self._alter({topic: each for topic, each in changes.items() if each})
        for each in answer.results:
            check(each.error_code, f"settings of {each.resource_name} at the source", each.error_message)

    async def _alter(self, changes: Mapping[str, Changes]) -> None:
        for topics in in_slices(list(changes), TOPICS_PER_REQUEST) if changes else ():
            await self._alter_some({topic: changes[topic] for topic in topics})

    async def _alter_some(self, changes: Mapping[str, Changes]) -> None:
        resources = [
            incremental_alter_configs_request.AlterConfigsResource(
                resource_type=ResourceType.TOPIC,
                resource_name=topic,
                configs=[
                    incremental_alter_configs_request.AlterableConfig(
                        name=name,
                        config_operation=ConfigOperation.DELETE if value is None else ConfigOperation.SET,
                        value=value,
                    )
                    for name, value in sorted(some.items())
                ],
            )
            for topic, some in changes.items()
        ]
        request = incremental_alter_configs_request.IncrementalAlterConfigsRequest(resources=resources)
        for each in (await self._send(request, IncrementalAlterConfigsResponse)).responses:
            check(each.error_code, f"settings of {each.resource_name}", each.error_message)


def changes_of(there: Sequence[DescribeConfigsResourceResult], ours: Mapping[str, str], wanted: TopicList) -> Changes:
    """The changes that give a topic here the settings of the source's; None deletes a setting."""
    on_topic = {each.name: each.value for each in there if each.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG}
    values = {
        each.name: each.value
        for each in there
        if each.value is not None
        and (wanted.names(each.name) or (each.name in on_topic and wanted.includes(each.name)))
    }
    changes: Changes = {name: value for name, value in values.items() if ours.get(name) != value}
    return changes | {name: None for name in ours if wanted.includes(name) and name not in values}
