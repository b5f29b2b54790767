"""DescribeLogDirsResponse, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean, int16, int32, int64, string


class DescribeLogDirsPartition(Message):
    """Within DescribeLogDirsResponse."""

    partition_index: int = int32("0+")
    partition_size: int = int64("0+")
    offset_lag: int = int64("0+")
    is_future_key: bool = boolean("0+")


class DescribeLogDirsTopic(Message):
    """Within DescribeLogDirsResponse."""

    name: str = string("0+")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, "0+")


class DescribeLogDirsResult(Message):
    """Within DescribeLogDirsResponse."""

    error_code: int = int16("0+")
    log_dir: str = string("0+")
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, "0+")
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", ignorable=True)


class DescribeLogDirsResponse(Message, kind="response", key=35, versions="1-5", flexible="2+"):
    """Response of API 35, versions 1-5, flexible 2+."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, "0+")
