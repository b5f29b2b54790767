"""ControllerRegistrationRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, boolean, int16, int32, string, uint16, uuid


class Listener(Message):
    """Within ControllerRegistrationRequest."""

    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class Feature(Message):
    """Within ControllerRegistrationRequest."""

    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class ControllerRegistrationRequest(Message, kind="request", key=70, versions="0", flexible="0+"):
    """Request of API 70, versions 0, flexible 0+; listeners: controller."""

    controller_id: int = int32("0+")
    incarnation_id: UUID = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    listeners: list[Listener] = array(Listener, "0+")
    features: list[Feature] = array(Feature, "0+")
