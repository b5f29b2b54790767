"""AlterReplicaLogDirsRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, string


class AlterReplicaLogDirTopic(Message):
    """Within AlterReplicaLogDirsRequest."""

    name: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class AlterReplicaLogDir(Message):
    """Within AlterReplicaLogDirsRequest."""

    path: str = string("0+")
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic, "0+")


class AlterReplicaLogDirsRequest(Message, kind="request", key=34, versions="1-2", flexible="2+"):
    """Request of API 34, versions 1-2, flexible 2+; listeners: broker."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir, "0+")
