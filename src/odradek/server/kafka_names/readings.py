"""The sources of the table's rows: our own metrics under other names and labels, and values that only Kafka has."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.metrics import Family, Histogram, Sample
from odradek.raft.quorum_state import NO_NODE
from odradek.replica.followers import is_at_min_isr, is_under_replicated
from odradek.server.health import is_draining, partitions_of

if TYPE_CHECKING:
    from odradek.common.ports import Disk
    from odradek.coordinator.group.lag import GroupLags
    from odradek.metadata.model import PartitionImage
    from odradek.replica.partition import Partition
    from odradek.server.context import BrokerServices
    from odradek.server.kafka_names.recent import Recent

QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
_IO_COUNTS = Path("/proc/self/io")
# Kafka's BrokerState.
_STARTING, _RUNNING, _DRAINING = 1, 3, 6
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Scrape:
    """The state that one scrape reads.

    Attributes:
        ours: our own families, by the name without `_total`.
        recent: the values of earlier scrapes.
    """

    ours: Mapping[str, Family]
    services: BrokerServices
    lags: GroupLags
    recent: Recent

    def value(self, name: str) -> float:
        """The value of one of our own metrics without labels."""
        return self.ours[name].samples[0].value

    @property
    def is_broker(self) -> bool:
        return "broker" in self.services.settings.roles


@dataclass(frozen=True, slots=True)
class Reading:
    """The source of a row's samples.

    Attributes:
        ours: our metric with the same value; "" if there is none.
        labels: of the samples.
        read: makes them.
    """

    read: Callable[[Scrape], Iterable[Sample]]
    ours: str = ""
    labels: tuple[str, ...] = ()


def same(
    name: str, labels: Mapping[str, str] | None = None, factor: float = 1, always: Mapping[str, str] | None = None
) -> Reading:
    """One of our own metrics.

    Args:
        name: as in `Family.name`.
        labels: our label -> Kafka's; samples that are alike in them are summed.
        always: labels with a value that never changes.
    """
    renamed, fixed = dict(labels or {}), tuple((always or {}).items())

    def read(scrape: Scrape) -> Iterator[Sample]:
        sums: dict[Labels, float] = defaultdict(float)
        for sample in scrape.ours[name].samples:
            sums[tuple((renamed[key], value) for key, value in sample.labels if key in renamed)] += sample.value
        for key, value in sums.items():
            yield Sample(value * factor, (*key, *fixed))

    return Reading(read, name, (*renamed.values(), *dict(fixed)))


def all_and_by_topic(whole: Sequence[str], by_topic: Sequence[str], minus: Sequence[str] = ()) -> Reading:
    """As Kafka's BrokerTopicMetrics: one sample of all topics without a label, and one for each topic.

    Args:
        whole, by_topic: our metrics whose sum it is; `minus` are taken away from the whole.
    """

    def read(scrape: Scrape) -> Iterator[Sample]:
        yield Sample(sum(map(scrape.value, whole)) - sum(map(scrape.value, minus)))
        sums: dict[Labels, float] = defaultdict(float)
        for name in by_topic:
            for sample in scrape.ours[name].samples:
                sums[sample.labels] += sample.value
        yield from (Sample(value, labels) for labels, value in sums.items())

    return Reading(read, " + ".join(by_topic), ("topic",))


def constant(value: float, why: str) -> Reading:
    """A value that never changes here."""
    return Reading(lambda scrape: [Sample(value)], why)


def computed(read: Callable[[Scrape], Iterable[Sample]], ours: str = "", *labels: str) -> Reading:
    """Samples that a function of this module computes."""
    return Reading(read, ours, labels)


def of_roles(reading: Reading, role: str) -> Reading:
    """The same, on nodes that have a role."""

    def read(scrape: Scrape) -> Iterable[Sample]:
        return reading.read(scrape) if role in scrape.services.settings.roles else ()

    return Reading(read, reading.ours, reading.labels)


# -- requests -------------------------------------------------------------------------------------------------------


def _api(labels: Labels, scrape: Scrape) -> str | None:
    """The API where a sample is of the listeners that Kafka's metric is about: clients' on a broker."""
    of = dict(labels)
    return of["api"] if of["listener"] == ("broker" if scrape.is_broker else "controller") else None


def quantiles_of(name: str, phase: str = "", factor: float = 1) -> Reading:
    """Quantiles of the last minute of one of our histograms by API; `phase`: the one that is meant."""

    def read(scrape: Scrape) -> Iterator[Sample]:
        spreads = {
            api: each
            for each in scrape.ours[name].histograms
            if dict(each.labels).get("phase", "") == phase and (api := _api(each.labels, scrape)) is not None
        }
        for api, spread in _by_kind_of_fetch(spreads).items():
            wanted = [float(quantile) for quantile in QUANTILES]
            values = scrape.recent.quantiles(f"{name} {phase} {api}", spread, wanted)
            for quantile, value in zip(QUANTILES, values, strict=True):
                yield Sample(value * factor, (("request", api), ("quantile", quantile)))

    return Reading(read, name + (f", phase {phase}" if phase else ""), ("request", "quantile"))


def _by_kind_of_fetch(spreads: dict[str, Histogram]) -> dict[str, Histogram]:
    """Kafka has fetches three times: those of consumers, those of followers, and all."""
    consumers, followers = spreads.get("Fetch"), spreads.get("FetchFollower")
    shown = dict(spreads)
    if consumers is not None:
        shown["FetchConsumer"] = consumers
    if consumers is not None and followers is not None:
        pairs = zip(consumers.buckets, followers.buckets, strict=True)
        buckets = tuple((bound, ours + theirs) for (bound, ours), (_, theirs) in pairs)
        shown["Fetch"] = Histogram(buckets, consumers.sum + followers.sum)
    elif followers is not None:
        shown["Fetch"] = followers
    return shown


def request_counts(scrape: Scrape) -> Iterator[Sample]:
    """The number of requests, by API; fetches are not counted by who sent them."""
    for sample in scrape.ours["odradek_requests"].samples:
        api = _api(sample.labels, scrape)
        if api is not None:
            yield Sample(sample.value, (("request", api),))


def idle(scrape: Scrape) -> Iterator[Sample]:
    """The part of the last minute in which the event loop had nothing to do, 0 to 1."""
    busy = scrape.recent.rate("loop", scrape.value("odradek_loop_cpu_seconds"))
    yield Sample(min(1.0, max(0.0, 1 - busy)))


# -- partitions -----------------------------------------------------------------------------------------------------


def per_partition(value: Callable[[Partition], float], *, led: bool = True) -> Reading:
    """A value for each partition that lies here; 0 where another broker leads and the value is a leader's (`led`)."""

    def read(scrape: Scrape) -> Iterator[Sample]:
        for each in scrape.services.replicas:
            labels = ("topic", each.topic), ("partition", str(each.partition_id))
            yield Sample(value(each) if each.is_leader or not led else 0, labels)

    return Reading(read, "", ("topic", "partition"))


REPLICA_COUNT = per_partition(lambda each: len(each.assigned_replicas))
IN_SYNC_COUNT = per_partition(lambda each: len(each.isr))
UNDER_REPLICATED = per_partition(is_under_replicated)
UNDER_MIN_ISR = per_partition(lambda each: each.too_few_in_sync())
AT_MIN_ISR = per_partition(is_at_min_isr)
OPEN_RECORDS = per_partition(lambda each: each.log.high_watermark - each.log.last_stable_offset, led=False)
SEGMENT_COUNT = per_partition(lambda each: len(each.log.segments), led=False)


def reassigning(scrape: Scrape) -> Iterator[Sample]:
    """Partitions led here whose replicas are being exchanged."""
    image = scrape.services.image
    known = (image.partition(each.topic, each.partition_id) for each in scrape.services.replicas if each.is_leader)
    yield Sample(sum(each is not None and each.reassigning for each in known))


def max_lag(scrape: Scrape) -> Iterator[Sample]:
    """The maximum lag of the followers here."""
    yield Sample(scrape.value("odradek_replica_max_lag_records"), (("clientId", "Replica"),))


def waiting(scrape: Scrape) -> Iterator[Sample]:
    """Requests that wait, by what they ask for."""
    for name, kind in (("odradek_produces_waiting", "Produce"), ("odradek_fetches_waiting", "Fetch")):
        yield Sample(scrape.value(name), (("delayedOperation", kind),))


# -- the node -------------------------------------------------------------------------------------------------------


def broker_state(scrape: Scrape) -> Iterator[Sample]:
    """Whether the broker runs, starts, or hands over its work."""
    image, node_id = scrape.services.image, scrape.services.node_id
    own = image.brokers.get(node_id)
    if is_draining(image, node_id):
        yield Sample(_DRAINING)
    else:
        yield Sample(_STARTING if own is None or own.fenced else _RUNNING)


def disk_bytes(kind: str) -> Reading:
    """Bytes that the process has read from disks, or written; without samples where the system does not say."""

    def read(scrape: Scrape) -> Iterator[Sample]:
        found = re.search(rf"^{kind}_bytes: (\d+)$", _io_counts(scrape.services.log_manager.disk), re.MULTILINE)
        if found is not None:
            yield Sample(int(found[1]))

    return Reading(read)


def _io_counts(disk: Disk) -> str:
    """Linux' text; "" where there is none."""
    try:
        file = disk.open(_IO_COUNTS, read_only=True)
    except OSError:
        return ""
    try:
        return file.read_at(0, 4096).decode()
    except OSError:
        return ""
    finally:
        file.close()


def active_brokers(scrape: Scrape) -> Iterator[Sample]:
    """Registered brokers that are not fenced."""
    yield Sample(scrape.value("odradek_cluster_brokers") - scrape.value("odradek_cluster_brokers_fenced"))


# -- the quorum -----------------------------------------------------------------------------------------------------


def vote(scrape: Scrape) -> Iterator[Sample]:
    """For whom this node voted in this epoch; -1: for none."""
    voted = scrape.services.quorum.node.state.voted
    yield Sample(NO_NODE if voted is None else voted.node_id)


def role(scrape: Scrape) -> Iterator[Sample]:
    """1, with what the node is in the quorum as its label."""
    node = scrape.services.quorum.node
    is_observer = not node.is_voter and node.role.value in ("follower", "unattached")
    yield Sample(1, (("current_state", "observer" if is_observer else node.role.value),))


def appended(scrape: Scrape) -> Iterator[Sample]:
    """Metadata records that this node, as the leader, appended in a second."""
    yield Sample(_metadata_rate(scrape) if scrape.services.quorum.leads else 0)


def fetched(scrape: Scrape) -> Iterator[Sample]:
    """Metadata records that this node, as a follower, fetched in a second."""
    yield Sample(0 if scrape.services.quorum.leads else _metadata_rate(scrape))


def _metadata_rate(scrape: Scrape) -> float:
    return scrape.recent.rate("metadata", scrape.services.quorum.end_offset)


# -- as kafka_exporter has it: of the whole cluster, each thing by one node -------------------------------------------


def _owned(scrape: Scrape) -> Iterator[tuple[str, int, PartitionImage]]:
    """The partitions that are shown by this node: those that it leads; those without a leader by the controller."""
    services = scrape.services
    for topic, number, partition in partitions_of(services.image):
        if partition.leader == services.node_id or (not partition.has_leader and services.quorum.leads):
            yield topic, number, partition


def per_owned(value: Callable[[PartitionImage], float]) -> Reading:
    """A value for each partition that this node shows."""

    def read(scrape: Scrape) -> Iterator[Sample]:
        for topic, number, partition in _owned(scrape):
            yield Sample(value(partition), (("topic", topic), ("partition", str(number))))

    return Reading(read, "", ("topic", "partition"))


LEADER = per_owned(lambda each: each.leader)
REPLICAS = per_owned(lambda each: len(each.replicas))
IN_SYNC = per_owned(lambda each: len(each.isr))
IS_PREFERRED = per_owned(lambda each: each.leader == each.preferred_leader)
IS_UNDER_REPLICATED = per_owned(lambda each: len(each.isr) < len(each.replicas))


def offset_of_led(attribute: str) -> Reading:
    """An offset of each partition that is led here."""

    def read(scrape: Scrape) -> Iterator[Sample]:
        for each in scrape.services.replicas:
            if each.is_leader:
                labels = ("topic", each.topic), ("partition", str(each.partition_id))
                yield Sample(getattr(each.log, attribute), labels)

    return Reading(read, "", ("topic", "partition"))


def topic_partitions(scrape: Scrape) -> Iterator[Sample]:
    """The number of partitions of a topic, given by the leader of its first partition with one, or the controller."""
    services = scrape.services
    for name, topic in services.image.topics_by_name.items():
        leaders = (each.leader for _, each in sorted(topic.partitions.items()) if each.has_leader)
        shown_by = next(leaders, None)
        if shown_by == services.node_id or (shown_by is None and services.quorum.leads):
            yield Sample(len(topic.partitions), (("topic", name),))


def brokers(scrape: Scrape) -> Iterator[Sample]:
    """The number of registered brokers, given by the active controller."""
    if scrape.services.quorum.leads:
        yield Sample(len(scrape.services.image.brokers))


def broker_info(scrape: Scrape) -> Iterator[Sample]:
    """1 for each broker, with the address of its first listener."""
    for broker_id, broker in sorted(scrape.services.image.brokers.items() if scrape.services.quorum.leads else ()):
        at = broker.endpoints[0]
        yield Sample(1, (("id", str(broker_id)), ("address", f"{at.host}:{at.port}")))


def per_commit(attribute: str) -> Reading:
    """The committed offsets of the groups coordinated here, or their lag."""

    def read(scrape: Scrape) -> Iterator[Sample]:
        for lag in scrape.lags.shown:
            commit = lag.commit
            labels = ("consumergroup", commit.group), ("topic", commit.topic), ("partition", str(commit.partition))
            yield Sample(lag.records if attribute == "records" else commit.offset, labels)

    labels = ("consumergroup", "topic", "partition")
    return Reading(read, "odradek_group_lag_records" if attribute == "records" else "", labels)


def per_topic_of_group(attribute: str) -> Reading:
    """The sums over all partitions of a topic, for the topics of groups of which a partition is shown."""

    def read(scrape: Scrape) -> Iterator[Sample]:
        for (group, topic), sums in scrape.lags.topics.items():
            yield Sample(getattr(sums, attribute), (("consumergroup", group), ("topic", topic)))

    return Reading(read, "", ("consumergroup", "topic"))


def members(scrape: Scrape) -> Iterator[Sample]:
    """The number of members of the groups whose lag is shown."""
    coordinator = scrape.services.coordinator
    for group_id in sorted({lag.commit.group for lag in scrape.lags.shown}):
        partition_id = coordinator.partition_for(group_id)
        shard = None if partition_id is None else coordinator.shards.get(partition_id)
        if shard is not None and shard.runtime.active:
            group = shard.machine.consumers.find(group_id) or shard.machine.groups.made(group_id)
            if group is not None:
                yield Sample(len(group.members), (("consumergroup", group_id),))
