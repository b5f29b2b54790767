"""The lag of groups, computed from committed offsets and the answers of partition leaders.

Records are counted up to the high watermark, as Kafka's tools do. Seconds are the age of the first record that a
group has not read, by the record's own timestamp; transaction markers are not records, and a group that lacks
nothing else has a lag of 0. Many groups times many partitions would be too much for a scrape: only the largest lags
are shown, and the largest sums of groups, which include the rest.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from odradek.common.metrics import Family, Sample
from odradek.settings.options import config, option

if TYPE_CHECKING:
    from odradek.coordinator.group.offsets.store import OffsetStore

PartitionKey = tuple[str, int]
# (group id, topic)
TopicKey = tuple[str, str]


@config
class GroupLagConfig:
    """Settings of the computation of group lag."""

    interval_ms: int = option(
        "odradek.group.lag.interval.ms",
        default=30_000,
        unit="ms",
        doc="How often a coordinator asks leaders for the lag of its groups, for the metrics; 0: never.",
    )
    max_partitions: int = option(
        "odradek.group.lag.max.partitions",
        default=2000,
        unit="count",
        doc="Partitions of groups, by size of their lag, that a node's metrics show, and sums of as many groups.",
    )


@dataclass(frozen=True, slots=True)
class Commit:
    """A group's committed offset for a partition: the next offset to read."""

    group: str
    topic: str
    partition: int
    offset: int

    @property
    def key(self) -> PartitionKey:
        return self.topic, self.partition

    @property
    def topic_key(self) -> TopicKey:
        return self.group, self.topic


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in a partition."""

    commit: Commit
    records: int
    seconds: float = 0.0

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        commit = self.commit
        return ("group", commit.group), ("topic", commit.topic), ("partition", str(commit.partition))


@dataclass(slots=True)
class TopicSum:
    """The lag of a group in a topic, over the partitions whose leader has answered."""

    records: int = 0
    offsets: int = 0


@dataclass(frozen=True, slots=True)
class GroupLags:
    """The result of one round.

    Attributes:
        shown: the largest lags; left_out: the number of the others.
        topics: (group, topic) of each shown partition -> sum over all its partitions, shown or not.
        sums: of the groups with the largest lag; groups_left_out: the number of the other groups.
        unknown: the number of commits whose leader did not answer.
        at_ms: time of the round, in ms since 1970 UTC; -1 before the first one.
    """

    shown: tuple[PartitionLag, ...] = ()
    sums: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0
    groups_left_out: int = 0
    unknown: int = 0
    at_ms: int = -1
    topics: Mapping[TopicKey, TopicSum] = field(default_factory=dict)


def commits_of(offsets: OffsetStore, group_id: str) -> Iterator[Commit]:
    """All commits of a group."""
    for (topic, partition), committed in sorted(offsets.of_group(group_id).items()):
        yield Commit(group_id, topic, partition, committed.offset)


def largest(commits: Iterable[Commit], ends: Mapping[PartitionKey, int], limit: int) -> GroupLags:
    """Compute the lags in records from the high watermarks of the partitions whose leader has answered."""
    sums: dict[str, int] = defaultdict(int)
    topics: dict[TopicKey, TopicSum] = defaultdict(TopicSum)
    known: list[PartitionLag] = []
    unknown = 0
    for commit in commits:
        end = ends.get(commit.key)
        if end is None:
            unknown += 1
            continue
        known.append(PartitionLag(commit, max(0, end - commit.offset)))
        sums[commit.group] += known[-1].records
        topic = topics[commit.topic_key]
        topic.records += known[-1].records
        topic.offsets += commit.offset
    shown = heapq.nlargest(limit, known, key=lambda lag: lag.records)
    # Groups of shown partitions too: a transaction marker may be subtracted from their sum.
    largest_sums = heapq.nlargest(limit, sums, key=lambda group: sums[group])
    kept = {group: sums[group] for group in (*largest_sums, *(lag.commit.group for lag in shown))}
    of_shown = {lag.commit.topic_key: topics[lag.commit.topic_key] for lag in shown}
    return GroupLags(tuple(shown), kept, len(known) - len(shown), len(sums) - len(kept), unknown, topics=of_shown)


def with_seconds(lags: GroupLags, since_ms: Mapping[Commit, int | None], now_ms: int) -> GroupLags:
    """Add ages to the lags.

    Args:
        since_ms: commit -> the timestamp of the first record from it on, None if there is none; commits without an
            answer are missing.
    """
    shown, sums = [], dict(lags.sums)
    topics = {key: replace(each) for key, each in lags.topics.items()}
    unknown = lags.unknown
    for lag in lags.shown:
        if not lag.records:
            shown.append(lag)
        elif lag.commit not in since_ms:
            unknown += 1
        elif (then_ms := since_ms[lag.commit]) is None:
            sums[lag.commit.group] -= lag.records
            topics[lag.commit.topic_key].records -= lag.records
            shown.append(PartitionLag(lag.commit, 0))
        else:
            shown.append(PartitionLag(lag.commit, lag.records, max(0, now_ms - then_ms) / 1000))
    shown.sort(key=lambda lag: lag.labels)
    return GroupLags(tuple(shown), sums, lags.left_out, lags.groups_left_out, unknown, now_ms, topics)


def lag_families(lags: GroupLags, now_ms: int) -> Iterator[Family]:
    """The metrics of the groups that a node coordinates."""

    def per_partition(name: str, text: str, values: Sequence[float]) -> Family:
        samples = (Sample(value, lag.labels) for lag, value in zip(lags.shown, values, strict=True))
        return Family(name, "gauge", text, tuple(samples))

    yield per_partition(
        "odradek_group_lag_records",
        "Records that a group coordinated here has not read, by its committed offset.",
        [lag.records for lag in lags.shown],
    )
    yield per_partition(
        "odradek_group_lag_seconds",
        "Age of the first record that a group coordinated here has not read; 0 where it has read all.",
        [lag.seconds for lag in lags.shown],
    )
    yield Family(
        "odradek_group_lag_sum_records",
        "gauge",
        "Records that a group coordinated here has not read, in all partitions.",
        tuple(Sample(records, (("group", group),)) for group, records in sorted(lags.sums.items())),
    )
    yield Family.gauge(
        "odradek_group_lag_left_out",
        "Partitions of groups beyond odradek.group.lag.max.partitions, those with the smallest lags.",
        lags.left_out,
    )
    yield Family.gauge(
        "odradek_group_lag_groups_left_out",
        "Groups beyond odradek.group.lag.max.partitions, whose lag is not shown.",
        lags.groups_left_out,
    )
    yield Family.gauge(
        "odradek_group_lag_unknown", "Partitions with committed offsets whose log end offset is unknown.", lags.unknown
    )
    yield Family.gauge(
        "odradek_group_lag_age_seconds",
        "Age of the shown lag of groups; -1 before its first measurement.",
        -1 if lags.at_ms < 0 else max(0, now_ms - lags.at_ms) / 1000,
    )
