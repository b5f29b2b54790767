"""A snapshot of a cluster, and the differences of two: rates, changes of in-sync sets. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from odradek.admin.directories import Directory
from odradek.client.reassignment import Move
from odradek.common.topic_names import TopicPartition
from odradek.protocol.messages.describe_cluster_response import DescribeClusterBroker
from odradek.protocol.messages.describe_quorum_response import PartitionData as Quorum
from odradek.protocol.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group, and how many records it is behind in all."""

    kind: str
    state: str
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    lag: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a cluster. Parts that could not be read are empty, and in `problems` with the reason.

    Attributes:
        at_s: monotonic; at_ms: since 1970 UTC; took_s: the duration of the requests.
        ends: of partitions with a leader, exclusive.
    """

    number: int
    at_s: float
    at_ms: int
    took_s: float = 0.0
    cluster_id: str = ""
    controller_id: int = -1
    brokers: Mapping[int, DescribeClusterBroker] = field(default_factory=dict)
    topics: Mapping[str, MetadataResponseTopic] = field(default_factory=dict)
    directories: Mapping[int, list[Directory]] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    quorum: Quorum | None = None
    moves: Mapping[TopicPartition, Move] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def partitions(self) -> Iterator[tuple[TopicPartition, MetadataResponsePartition]]:
        """All of them, by topic."""
        return (
            ((name, partition.partition_index), partition)
            for name, topic in self.topics.items()
            for partition in topic.partitions
        )

    def partition(self, key: TopicPartition) -> MetadataResponsePartition | None:
        """One of them, found in its topic: a cluster may have a million."""
        topic = self.topics.get(key[0])
        found = (each for each in topic.partitions if each.partition_index == key[1]) if topic is not None else iter(())
        return next(found, None)

    def size_of(self, key: TopicPartition, broker: int) -> int:
        """Bytes of one replica; 0 if unknown."""
        return max((each.sizes.get(key, 0) for each in self.directories.get(broker, ())), default=0)

    @property
    def fenced(self) -> set[int]:
        """Brokers that do not serve now."""
        return {broker_id for broker_id, broker in self.brokers.items() if broker.is_fenced}


@dataclass(slots=True)
class TopicRow:
    """A row of a topic; `bytes` are of all replicas, rates of leaders; None if unknown."""

    topic: str
    internal: bool
    partitions: int
    replicas: int
    bytes: int = 0
    records_s: float | None = None
    bytes_s: float | None = None
    out_of_sync: int = 0
    offline: int = 0
    groups: int = 0


@dataclass(slots=True)
class BrokerRow:
    """A row of a broker; disks are sums over its directories, -1 if unknown."""

    broker: int
    address: str
    rack: str
    state: str
    leaders: int = 0
    replicas: int = 0
    out_of_sync: int = 0
    bytes: int = 0
    disk_total: int = -1
    disk_usable: int = -1
    directories: int = 0
    offline_directories: int = 0


@dataclass(slots=True)
class GroupRow:
    """A group as a table has it; `records_s` is how fast it commits."""

    group: str
    kind: str
    state: str
    topics: int
    lag: int
    records_s: float | None = None


@dataclass(frozen=True, slots=True)
class InSyncChange:
    """A replica that left or joined an in-sync set, or a change of leader."""

    at_ms: int
    partition: TopicPartition
    text: str


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve."""

    at_ms: int
    records_s: float
    bytes_s: float
    out_of_sync: int
    lag: Mapping[str, int] = field(default_factory=dict)


def sizes_of_leaders(snapshot: Snapshot) -> dict[TopicPartition, int]:
    """Bytes of the leader's replica, if known."""
    sizes = _sizes(snapshot)
    found = {}
    for key, partition in snapshot.partitions:
        size = sizes.get(partition.leader_id, _NONE).get(key)
        if size is not None:
            found[key] = size
    return found


_NONE: Mapping[TopicPartition, int] = {}


def _sizes(snapshot: Snapshot) -> dict[int, Mapping[TopicPartition, int]]:
    """Bytes by broker and partition; of most brokers, which have one directory, without a copy."""
    found: dict[int, Mapping[TopicPartition, int]] = {}
    for broker, directories in snapshot.directories.items():
        if len(directories) == 1:
            found[broker] = directories[0].sizes
        else:
            found[broker] = {key: size for each in directories for key, size in each.sizes.items()}
    return found


def topic_rows(before: Snapshot | None, now: Snapshot) -> dict[str, TopicRow]:
    """A row for each topic; rates where both moments know."""
    rows = {}
    for name, topic in now.topics.items():
        row = TopicRow(name, topic.is_internal, len(topic.partitions), 0)
        for partition in topic.partitions:
            row.replicas = max(row.replicas, len(partition.replica_nodes))
            row.out_of_sync += len(partition.isr_nodes) < len(partition.replica_nodes)
            row.offline += partition.leader_id < 0
        rows[name] = row
    for of_broker in _sizes(now).values():
        for (name, _), size in of_broker.items():
            known = rows.get(name)
            if known is not None:
                known.bytes += size
    for group in now.groups.values():
        for name in {name for name, _ in group.offsets}:
            if name in rows:
                rows[name].groups += 1
    if before is not None and now.at_s > before.at_s:
        _add_rates(rows, before, now)
    return rows


def _add_rates(rows: dict[str, TopicRow], before: Snapshot, now: Snapshot) -> None:
    apart_s = now.at_s - before.at_s
    for name, grown in _grown(before.ends, now.ends).items():
        if name in rows:
            rows[name].records_s = grown / apart_s
    for name, grown in _grown(sizes_of_leaders(before), sizes_of_leaders(now)).items():
        if name in rows:
            rows[name].bytes_s = grown / apart_s


def _grown(before: Mapping[TopicPartition, int], now: Mapping[TopicPartition, int]) -> dict[str, int]:
    """The growth by topic, over partitions in both snapshots; a decrease (retention, a new leader) counts as 0."""
    grown: dict[str, int] = {}
    for key, value in now.items():
        if key in before:
            grown[key[0]] = grown.get(key[0], 0) + max(0, value - before[key])
    return grown


def broker_rows(now: Snapshot) -> dict[int, BrokerRow]:
    """A row for each broker, those that are away included."""
    rows = {
        broker.broker_id: BrokerRow(
            broker.broker_id,
            f"{broker.host}:{broker.port}",
            broker.rack or "",
            "away" if broker.is_fenced else "serves",
        )
        for broker in now.brokers.values()
    }
    for _, partition in now.partitions:
        if partition.leader_id in rows:
            rows[partition.leader_id].leaders += 1
        for broker in partition.replica_nodes:
            if broker in rows:
                rows[broker].replicas += 1
                rows[broker].out_of_sync += broker not in partition.isr_nodes
    for broker, directories in now.directories.items():
        if broker in rows:
            _add_directories(rows[broker], directories)
    return rows


def _add_directories(row: BrokerRow, directories: list[Directory]) -> None:
    row.directories = len(directories)
    row.offline_directories = sum(each.is_offline for each in directories)
    row.bytes = sum(size for each in directories for size in each.sizes.values())
    # Directories of one disk report the same disk twice.
    disks = {(each.total_bytes, each.usable_bytes) for each in directories if each.total_bytes >= 0}
    if disks:
        row.disk_total, row.disk_usable = (sum(each) for each in zip(*disks, strict=True))


def group_rows(before: Snapshot | None, now: Snapshot) -> dict[str, GroupRow]:
    """A row for each group."""
    rows = {}
    for name, group in now.groups.items():
        row = GroupRow(name, group.kind, group.state, len({topic for topic, _ in group.offsets}), group.lag)
        earlier = before.groups.get(name) if before is not None else None
        if before is not None and earlier is not None and now.at_s > before.at_s:
            moved = sum(max(0, at - earlier.offsets.get(key, at)) for key, at in group.offsets.items())
            row.records_s = moved / (now.at_s - before.at_s)
        rows[name] = row
    return rows


def lag_of(offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Records to read; nothing is added where the end is not known."""
    return sum(max(0, ends.get(key, offset) - offset) for key, offset in offsets.items())


def point_of(topics: Mapping[str, TopicRow], now: Snapshot) -> Point:
    """The point of a snapshot in the charts of a cluster."""
    return Point(
        now.at_ms,
        sum(row.records_s or 0.0 for row in topics.values()),
        sum(row.bytes_s or 0.0 for row in topics.values()),
        sum(row.out_of_sync for row in topics.values()),
        {name: group.lag for name, group in now.groups.items()},
    )


def not_in_sync(now: Snapshot) -> tuple[tuple[TopicPartition, MetadataResponsePartition], ...]:
    """Partitions that miss a replica, or have no leader."""
    return tuple(
        (key, each)
        for key, each in now.partitions
        if len(each.isr_nodes) < len(each.replica_nodes) or each.leader_id < 0
    )


def changes(before: Snapshot | None, now: Snapshot) -> list[InSyncChange]:
    """The changes of in-sync sets and leaders."""
    if before is None:
        return []
    found = []
    for name, topic in now.topics.items():
        if name not in before.topics:
            continue
        earlier = {each.partition_index: each for each in before.topics[name].partitions}
        for partition in topic.partitions:
            was, index = earlier.get(partition.partition_index), partition.partition_index
            if was is not None:
                found += [InSyncChange(now.at_ms, (name, index), text) for text in _changed(was, partition, now)]
    return found


def _changed(before: MetadataResponsePartition, now: MetadataResponsePartition, snapshot: Snapshot) -> Iterator[str]:
    if before.leader_id == now.leader_id and before.isr_nodes == now.isr_nodes:
        return
    for broker in sorted({*before.isr_nodes} - {*now.isr_nodes}):
        if broker not in now.replica_nodes:
            yield f"broker {broker} is not a replica any more"
        elif broker in snapshot.fenced or broker not in snapshot.brokers:
            yield f"broker {broker} fell out of the in-sync set: it is away"
        else:
            yield f"broker {broker} fell out of the in-sync set: it serves, and did not fetch in time"
    for broker in sorted({*now.isr_nodes} - {*before.isr_nodes}):
        yield f"broker {broker} is in sync"
    if before.leader_id != now.leader_id:
        was = f", before that broker {before.leader_id}" if before.leader_id >= 0 else ""
        yield f"no broker leads{was}" if now.leader_id < 0 else f"broker {now.leader_id} leads{was}"
