"""APPEND of listeners at their broker, which alone knows those of its file, while the controller is another node."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.metadata.model import ResourceType
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from odradek.server.context import RequestContext
from odradek.server.handlers.incremental_alter_configs import handle
from tests.support.nodes.services import services_with
from tests.support.waiting import some_turns

SET, DELETE, APPEND = 0, 1, 2


class OfFile:
    """The rules of settings, with the listeners of the broker's file."""

    def default(self, resource_type: int, key: str) -> str:
        return "IN://:1"


class FarController:
    """Answers each change at once, and has it in this broker's metadata later."""

    def __init__(self) -> None:
        self.publisher = MetadataPublisher("cluster")
        self.received: list[tuple[int, str | None]] = []

    async def request(
        self, request: IncrementalAlterConfigsRequest, response: Any, context: RequestContext
    ) -> IncrementalAlterConfigsResponse:
        (resource,) = request.resources
        self.received += [(each.config_operation, each.value) for each in resource.configs]
        done = AlterConfigsResourceResponse(error_message=None, resource_type=ResourceType.BROKER, resource_name="1")
        return IncrementalAlterConfigsResponse(responses=[done])

    def publish(self, value: str | None) -> None:
        record = ConfigRecord(resource_type=ResourceType.BROKER, resource_name="1", name="listeners", value=value)
        self.publisher.committed([(self.publisher.image.offset + 1, record)], 1)


@pytest.fixture
def controller() -> FarController:
    return FarController()


async def _unchecked(*_: object) -> None:
    return None


async def change(controller: FarController, operation: int, value: str | None) -> None:
    services = services_with(
        node_id=1,
        publisher=controller.publisher,
        controller=controller,
        setting_rules=OfFile(),
        check_changes=_unchecked,
    )
    connection: Any = SimpleNamespace(listener=SimpleNamespace(name="IN", scope="broker"))
    context = RequestContext(services, connection, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 0, "")
    configs = [AlterableConfig(name="listeners", config_operation=operation, value=value)]
    resource = AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name="1", configs=configs)
    await handle(context, IncrementalAlterConfigsRequest(resources=[resource]))


async def test_an_append_is_done_once_the_next_one_begins_with_it(controller: FarController) -> None:
    first = asyncio.ensure_future(change(controller, APPEND, "A://:2"))
    await some_turns()
    assert controller.received == [(SET, "IN://:1,A://:2")] and not first.done()
    controller.publish("IN://:1,A://:2")
    await first
    await change(controller, APPEND, "B://:3")
    assert controller.received[1:] == [(APPEND, "B://:3")], "the controller adds to what is stored"


async def test_an_append_after_a_deletion_begins_with_the_file(controller: FarController) -> None:
    controller.publish("IN://:1,A://:2")
    deleted = asyncio.ensure_future(change(controller, DELETE, None))
    await some_turns()
    assert not deleted.done()
    controller.publish(None)
    await deleted
    second = asyncio.ensure_future(change(controller, APPEND, "B://:3"))
    await some_turns()
    assert controller.received[1:] == [(SET, "IN://:1,B://:3")]
    controller.publish("IN://:1,B://:3")
    await second
