"""RegisterBrokerRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, boolean, int16, int32, int64, string, uint16, uuid


class BrokerEndpoint(Message):
    """Within RegisterBrokerRecord."""

    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class BrokerFeature(Message):
    """Within RegisterBrokerRecord."""

    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterBrokerRecord(Message, kind="metadata", key=0, versions="0-4", flexible="0+"):
    """Record of the metadata log, type 0, versions 0-4, flexible 0+."""

    broker_id: int = int32("0+")
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: UUID = uuid("0+")
    broker_epoch: int = int64("0+")
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint, "0+")
    features: list[BrokerFeature] = array(BrokerFeature, "0+")
    rack: str | None = string("0+", nullable="0+")
    fenced: bool = boolean("0+", default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[UUID] = array("uuid", "3+", tag=0)
    cordoned_log_dirs: list[UUID] | None = array("uuid", "4+", default=None, nullable="4+", tag=1)
