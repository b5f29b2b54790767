"""BrokerRegistrationRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, boolean, int16, int32, int64, string, uint16, uuid


class Listener(Message):
    """Within BrokerRegistrationRequest."""

    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class Feature(Message):
    """Within BrokerRegistrationRequest."""

    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class BrokerRegistrationRequest(Message, kind="request", key=62, versions="0-4", flexible="0+"):
    """Request of API 62, versions 0-4, flexible 0+; listeners: controller."""

    broker_id: int = int32("0+")
    cluster_id: str = string("0+")
    incarnation_id: UUID = uuid("0+")
    listeners: list[Listener] = array(Listener, "0+")
    features: list[Feature] = array(Feature, "0+")
    rack: str | None = string("0+", nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[UUID] = array("uuid", "2+", ignorable=True)
    previous_broker_epoch: int = int64("3+", default=-1, ignorable=True)
