"""BrokerRegistrationChangeRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.declare import Message, array, int8, int32, int64


class BrokerRegistrationChangeRecord(Message, kind="metadata", key=17, versions="0-3", flexible="0+"):
    """Record of the metadata log, type 17, versions 0-3, flexible 0+."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    fenced: int = int8("0+", tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[UUID] = array("uuid", "2+", tag=2)
    cordoned_log_dirs: list[UUID] | None = array("uuid", "3+", default=None, nullable="3+", tag=3)
