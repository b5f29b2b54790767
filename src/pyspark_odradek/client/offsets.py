"""Arithmetic of offsets: the ranges of a batch, their division into tasks, and lost ranges.

Pure functions over `{topic: {partition: offset}}`. In Spark's checkpoint the partition is a string, because JSON has
no other keys; `to_json` and `from_json` convert, and the format is that of Spark's Kafka source. Each topic also has an
entry with its id, under a name that no topic can have and without partitions: `{"t": {"0": 5}, "t@<id>": {}}`. The id
detects a recreated topic, also if no query ran meanwhile; readers of the offsets of Spark's source can read ours.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from pyspark_odradek.errors import LostRange
from pyspark_odradek.options import Offsets


class TopicPartition(NamedTuple):
    """One partition by its topic's name."""

    topic: str
    partition_id: int


Positions: TypeAlias = dict[TopicPartition, int]
SourceOffset: TypeAlias = dict[str, dict[str, int]]  # of Spark: what stands in the checkpoint for one source
_AT = "@"  # in no name of a topic


@dataclass(frozen=True)
class OffsetRange:
    """The offsets of one task: from `start` (inclusive) to `end` (exclusive) of a partition.

    `topic_id` is the id of the topic; None if the cluster has no ids.
    """

    topic: str
    partition_id: int
    start: int
    end: int
    topic_id: UUID | None = None

    @property
    def count(self) -> int:
        return self.end - self.start


def to_json(positions: Mapping[TopicPartition, int], topic_ids: Mapping[str, UUID] | None = None) -> SourceOffset:
    """Positions in the form of the checkpoint, sorted so that equal positions of the same topics are equal texts.

    Args:
        topic_ids: the ids of the topics, for a cluster with ids; topics without an id have no entry for it.
    """
    nested: SourceOffset = {}
    for (topic, partition_id), offset in sorted(positions.items()):
        nested.setdefault(topic, {})[str(partition_id)] = offset
    ids = topic_ids or {}
    return nested | {f"{topic}{_AT}{_id_text(ids[topic])}": {} for topic in nested if topic in ids}


def from_json(nested: Mapping[str, Mapping[Any, int]]) -> Positions:
    """The positions from the result of `to_json`, or from the offsets of an option."""
    return {
        TopicPartition(topic, int(partition_id)): offset
        for topic, partitions in nested.items()
        for partition_id, offset in partitions.items()
    }


def topic_ids_in(nested: Mapping[str, Mapping[Any, int]]) -> dict[str, UUID]:
    """The ids in the result of `to_json`; none for a cluster without ids, or for Spark's Kafka source.

    Raises:
        ValueError: an entry has no valid id.
    """
    named = (name.partition(_AT) for name in nested)
    return {topic: _read_id(text) for topic, at, text in named if at}


def _id_text(topic_id: UUID) -> str:
    """A topic id in the form of Kafka's tools."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _read_id(text: str) -> UUID:
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def flat(offsets: Offsets) -> Iterator[tuple[TopicPartition, int]]:
    """Every partition of an option with its number."""
    for topic, partitions in offsets.items():
        for partition_id, number in partitions.items():
            yield TopicPartition(topic, partition_id), number


def backlog(start: Positions, end: Positions) -> int:
    """The number of offsets between; partitions that went backwards count as 0."""
    return sum(max(0, offset - start.get(partition, offset)) for partition, offset in end.items())


def limit_offsets(start: Positions, end: Positions, limit: int) -> Positions:
    """Limit the end so that at most `limit` offsets are read, in proportion to each partition's backlog.

    Shares are rounded down, and the remainder is given to as many partitions, one offset to each. It begins with
    another partition in each batch, so that one with a small backlog is never starved.
    """
    waiting = {partition: max(0, offset - start.get(partition, offset)) for partition, offset in end.items()}
    total = sum(waiting.values())
    if total <= limit:
        return dict(end)
    shares = {partition: count * limit // total for partition, count in waiting.items()}
    rounded = sorted(partition for partition, count in waiting.items() if count * limit % total)
    left_over = limit - sum(shares.values())
    first = sum(start.values()) // limit * left_over  # the same where Spark asks again for the end of a batch
    for number in range(left_over):
        shares[rounded[(first + number) % len(rounded)]] += 1
    return {partition: start.get(partition, offset) + shares[partition] for partition, offset in end.items()}


def capped(start: Positions, end: Positions, target: Positions) -> Positions:
    """The end of a run that reads no further than its target; a partition that is not in the target is new.

    A target may lie before the start: then a batch of an earlier run was planned further, and is done already. Where
    even the log ends before the start, the topic was recreated, and what it has now is to be read.
    """
    ends: Positions = {}
    for partition, offset in end.items():
        aim = min(offset, target.get(partition, 0))
        first = start.get(partition, 0)
        ends[partition] = first if aim < first <= offset else aim
    return ends


def cut(
    ranges: list[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Cut ranges so that there are about `min_partitions` of them, and none is longer than `max_records`.

    Without either there is one task a partition. Pieces of one partition differ by at most one offset.
    """
    ranges = [piece for piece in ranges if piece.count > 0]
    total = sum(piece.count for piece in ranges)
    pieces: list[OffsetRange] = []
    for piece in ranges:
        parts = 1
        if min_partitions is not None and min_partitions > len(ranges):
            parts = max(1, round(piece.count * min_partitions / total))
        if max_records is not None:
            parts = max(parts, -(-piece.count // max_records))
        parts = min(parts, piece.count)
        bounds = [piece.start + piece.count * i // parts for i in range(parts + 1)]
        pieces += [replace(piece, start=low, end=high) for low, high in pairwise(bounds)]
    return pieces


def find_lost(start: Positions, end: Positions, earliest: Positions, latest: Positions) -> list[LostRange]:
    """Offsets between start and end that the log has no more.

    Decided by the log's marks alone: a gap inside the log is compaction, a marker or an aborted transaction.

    Args:
        start: the next offset to read, of every partition that the query knows.
        end: the end of this batch (exclusive).
        earliest: the log start of every partition that exists now.
        latest: the end of every partition that exists now.
    """
    lost = []
    for partition, offset in sorted(start.items()):
        if partition not in earliest:
            if end.get(partition, offset) > offset or partition not in end:
                reason = "the partition does not exist any more"
                lost.append(LostRange(*partition, offset, end.get(partition, offset), reason))
        elif latest[partition] < offset:
            reason = f"the log now ends at {latest[partition]}: it was truncated, or the topic was recreated"
            lost.append(LostRange(*partition, latest[partition], offset, reason))
        elif earliest[partition] > offset and end.get(partition, offset) > offset:
            gone = min(earliest[partition], end[partition])
            lost.append(LostRange(*partition, offset, gone, f"the log now starts at {earliest[partition]}"))
    return lost
