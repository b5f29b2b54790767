"""BrokerHeartbeatRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, boolean, int32, int64


class BrokerHeartbeatRequest(Message, kind="request", key=63, versions="0-2", flexible="0+"):
    """Request of API 63, versions 0-2, flexible 0+; listeners: controller."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    current_metadata_offset: int = int64("0+")
    want_fence: bool = boolean("0+")
    want_shut_down: bool = boolean("0+")
    offline_log_dirs: list[UUID] = array("uuid", "1+", tag=0)
    cordoned_log_dirs: list[UUID] | None = array("uuid", "2+", default=None, nullable="2+", tag=1)
