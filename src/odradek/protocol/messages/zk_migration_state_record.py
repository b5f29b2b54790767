"""ZkMigrationStateRecord, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, int8


class ZkMigrationStateRecord(Message, kind="metadata", key=21, versions="0", flexible="0+"):
    """Record of the metadata log, type 21, versions 0, flexible 0+."""

    zk_migration_state: int = int8("0+")
