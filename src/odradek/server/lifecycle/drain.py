"""Drains a broker: its leaders move to other brokers before its machine is removed; see docs/adr/0006-drain.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.metadata.model import ResourceType
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.settings.broker import DRAIN_KEY, DRAIN_STOP_KEY

if TYPE_CHECKING:
    from odradek.metadata.image import MetadataImage
    from odradek.server.controller_gateway import Controller

_SET = 0


def drain_includes_stop(image: MetadataImage, node_id: int, broker_epoch: int) -> bool:
    """Whether a drain of this process includes its stop; settings for an earlier process of the id do not count."""
    registered = image.brokers.get(node_id)
    own = image.config(ResourceType.BROKER, str(node_id))
    meant = registered is not None and registered.broker_epoch == broker_epoch
    return meant and DRAIN_KEY in own and own.get(DRAIN_STOP_KEY) == "true"


async def drain(controller: Controller, node_id: int) -> None:
    """Request that this broker leads nothing that others can lead, until it has stopped and started again.

    Raises:
        ApiError: the controller refused, or none was found.
    """
    change = AlterableConfig(name=DRAIN_KEY, config_operation=_SET, value="-1")
    resource = AlterConfigsResource(
        resource_type=int(ResourceType.BROKER), resource_name=str(node_id), configs=[change]
    )
    answer = await controller.request(
        IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
    )
    for result in answer.responses:
        if result.error_code:
            raise ApiError(ErrorCode(result.error_code), result.error_message or "")
