"""AlterReplicaLogDirs: key 34, versions 1-2. Moves replicas between log directories of this broker (KIP-113).

Behaviour: a move begins, and the response is sent at once; DescribeLogDirs shows the progress. If the target is the
present directory, the replica stays, and a move to another one is cancelled. A partition without a replica here will be
created in the directory, and the response is REPLICA_NOT_AVAILABLE.

Versions: 2 flexible.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.metadata.acls import AclOperation
from odradek.protocol.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
from odradek.protocol.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from odradek.server.authorization import may_on_cluster

if TYPE_CHECKING:
    from odradek.server.context import RequestContext


def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Handle each replica separately; the last directory counts for one that is named twice, as in Kafka."""
    wanted: dict[tuple[str, int], str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                wanted[topic.name, number] = directory.path
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    may_move = may_on_cluster(context, AclOperation.ALTER)
    for (name, number), path in wanted.items():
        entry = results.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name))
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if may_move:
            code = _move(context, name, number, Path(path))
        entry.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(context: RequestContext, topic: str, partition_id: int, log_dir: Path) -> ErrorCode:
    replicas = context.broker.replicas
    try:
        replicas.move(topic, partition_id, log_dir, context.broker.image)
    except ApiError as error:
        return error.code
    except StorageError as error:
        replicas.storage_failed(error)
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE
