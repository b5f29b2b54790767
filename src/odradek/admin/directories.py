"""The log directories of brokers: their replicas, and the space of their disks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek.client.cluster import Cluster, check
from odradek.client.reassignment import GONE
from odradek.common.errors import ErrorCode
from odradek.common.topic_names import TopicPartition
from odradek.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from odradek.protocol.messages.describe_log_dirs_response import DescribeLogDirsResponse


@dataclass(frozen=True, slots=True)
class Directory:
    """One log directory of a broker.

    Attributes:
        total_bytes, usable_bytes: of its disk; -1 if the broker does not report them.
        sizes: bytes by partition.
    """

    path: str
    is_offline: bool = False
    total_bytes: int = -1
    usable_bytes: int = -1
    sizes: dict[TopicPartition, int] = field(default_factory=dict)


async def log_directories(cluster: Cluster, brokers: Iterable[int]) -> dict[int, list[Directory]]:
    """The directories of each broker that responds. Raises ApiError for a directory that cannot be described."""

    async def of(broker: int) -> list[Directory] | None:
        try:
            response = await cluster.request(
                DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, node_id=broker
            )
        except GONE:
            return None
        return _directories(response)

    asked = sorted(brokers)
    answers = await asyncio.gather(*(of(broker) for broker in asked))
    return {broker: found for broker, found in zip(asked, answers, strict=True) if found is not None}


def _directories(response: DescribeLogDirsResponse) -> list[Directory]:
    found = []
    check(response.error_code, "log directories")
    for each in response.results:
        if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            found.append(Directory(each.log_dir, is_offline=True))
            continue
        check(each.error_code, each.log_dir)
        sizes = {
            (topic.name, partition.partition_index): partition.partition_size
            for topic in each.topics
            for partition in topic.partitions
            if not partition.is_future_key
        }
        found.append(Directory(each.log_dir, False, each.total_bytes, each.usable_bytes, sizes))
    return found
