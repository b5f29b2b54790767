"""DescribeLogDirs: key 35, versions 1-5.

Behaviour: each log directory with its size and its logs; null topics means all. A directory that went offline is
listed with KAFKA_STORAGE_ERROR.

Versions: 2 flexible; 3 a top-level error; 4 bytes of the volume (KIP-827); 5 cordoned directories (KIP-1066).

Beyond Kafka: a partition that is compacted has how dirty it is, in a tagged field that other clients pass over.

Replicas that are moved to a directory are listed there with `is_future_key`, and how many offsets they lack.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.common.errors import ErrorCode, StorageError
from odradek.metadata.acls import AclOperation
from odradek.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from odradek.protocol.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.server.authorization import may_on_cluster

if TYPE_CHECKING:
    from odradek.log.log_dir import LogDir
    from odradek.server.context import RequestContext

FIRST_FLEXIBLE = 2
# The partitions of a request; None for all.
RequestedPartitions = set[tuple[str, int]] | None
# A partition of a topic.
Described = tuple[str, DescribeLogDirsPartition]


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """All directories; none before version 3 if the client may not describe the cluster."""
    if not may_on_cluster(context, AclOperation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return _described(context, request)


def _described(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    broker = context.broker
    cordoned = getattr(broker.image.brokers.get(broker.node_id), "cordoned_directories", ())
    results = []
    for directory in broker.log_manager.directories:
        path = str(directory.path)
        if directory.offline:
            results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path))
            continue
        topics: dict[str, DescribeLogDirsTopic] = {}
        for topic, described in (*_logs(context, directory, wanted), *_futures(context, directory, wanted)):
            topics.setdefault(topic, DescribeLogDirsTopic(name=topic)).partitions.append(described)
        try:
            usage = broker.log_manager.disk.usage(directory.path)
        except OSError as error:
            broker.replicas.storage_failed(StorageError(directory.path, f"it cannot be looked at: {error}"))
            results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path))
            continue
        results.append(
            DescribeLogDirsResult(
                log_dir=path,
                topics=list(topics.values()),
                total_bytes=usage.total_bytes,
                usable_bytes=usage.usable_bytes,
                is_cordoned=directory.directory_id in cordoned,
            )
        )
    return DescribeLogDirsResponse(results=results)


def _logs(context: RequestContext, directory: LogDir, wanted: RequestedPartitions) -> Iterator[Described]:
    """The partitions of a directory."""
    broker = context.broker
    for key, log in broker.log_manager.logs_in(directory):
        if wanted is None or key in wanted:
            lag = max(0, log.high_watermark - log.log_end_offset)
            described = DescribeLogDirsPartition(partition_index=key[1], partition_size=log.size_bytes, offset_lag=lag)
            if log.config.compacted and context.api_version >= FIRST_FLEXIBLE:
                described.unknown_tagged_fields = (broker.cleaner.state(log).tagged(),)
            yield key[0], described


def _futures(context: RequestContext, directory: LogDir, wanted: RequestedPartitions) -> Iterator[Described]:
    """The future replicas in a directory."""
    log_manager = context.broker.log_manager
    for key, future in log_manager.futures.logs.items():
        if future.log_dir == directory.path and (wanted is None or key in wanted):
            current = log_manager.get(key)
            lag = 0 if current is None else max(0, current.log_end_offset - future.log_end_offset)
            yield (
                key[0],
                DescribeLogDirsPartition(
                    partition_index=key[1], partition_size=future.size_bytes, offset_lag=lag, is_future_key=True
                ),
            )
