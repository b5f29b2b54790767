"""Registers a controller: its endpoints, and the features that it supports (KIP-919).

Every controller of the quorum registers once for each process, as soon as the metadata version allows it.
DescribeCluster
returns these records, and changes of feature levels are checked against them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.common.errors import OdradekError
from odradek.common.log_lines import get_logger
from odradek.metadata.features import CONTROLLER_REGISTRATION, LevelRange
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages import controller_registration_request as request_message
from odradek.protocol.messages.controller_registration_response import ControllerRegistrationResponse

if TYPE_CHECKING:
    from odradek.metadata.delta import MetadataDelta
    from odradek.server.controller_gateway import Controller
    from odradek.server.network.listeners import ListenerSpec

RETRY_S = 1.0
_log = get_logger("server.lifecycle.controller_registration")


def controller_registration_request(
    node_id: int,
    incarnation_id: UUID,
    specs: Iterable[ListenerSpec],
    endpoints: Mapping[str, tuple[str, int]],
    features: Mapping[str, LevelRange],
) -> request_message.ControllerRegistrationRequest:
    """The registration of a controller: `endpoints`, by which others connect to it, and its feature levels."""
    return request_message.ControllerRegistrationRequest(
        controller_id=node_id,
        incarnation_id=incarnation_id,
        listeners=[
            request_message.Listener(
                name=spec.name,
                host=endpoints[spec.name][0],
                port=endpoints[spec.name][1],
                security_protocol=spec.security_protocol,
            )
            for spec in specs
            if spec.name in endpoints
        ],
        features=[
            request_message.Feature(
                name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level
            )
            for name, levels in features.items()
        ],
    )


class ControllerRegistration:
    """Registers if the metadata has no registration of this process; a subscriber of the metadata."""

    def __init__(self, gateway: Controller, request: request_message.ControllerRegistrationRequest) -> None:
        self._gateway = gateway
        self._request = request
        self._registering: asyncio.Task[None] | None = None
        self._done = False

    def on_metadata(self, _: MetadataDelta, image: MetadataImage) -> None:
        """Check whether the registration of this controller is current."""
        if self._done or self._registering is not None or image.metadata_version < CONTROLLER_REGISTRATION:
            return
        self._registering = asyncio.get_running_loop().create_task(self._register())

    async def stop(self) -> None:
        """End the attempts."""
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.gather(self._registering, return_exceptions=True)

    async def _register(self) -> None:
        while not self._done:
            try:
                await self._gateway.request(self._request, ControllerRegistrationResponse)
                self._done = True
            except OdradekError as error:
                _log.warning("this controller is not registered yet", error=error)
                await asyncio.sleep(RETRY_S)
