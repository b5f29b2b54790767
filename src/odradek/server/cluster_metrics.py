"""Metrics of topics, and of the cluster as this node knows it: its quorum, its brokers, its partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.client.connection import Traffic
from odradek.common.metrics import Family, Given, Metrics, Sample
from odradek.protocol.apis import ApiKey, api_name

if TYPE_CHECKING:
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage
    from odradek.metadata.model import PartitionImage
    from odradek.raft.driver import RaftDriver
    from odradek.server.context import BrokerServices

UNKNOWN = -1


def topic_families(metrics: Metrics, image: MetadataImage) -> Iterator[Family]:
    """The traffic of topics on this broker; deleted topics are removed."""
    metrics.remove_topics(lambda key: key not in image.topics_by_name and key not in image.topics_by_id)

    def family(name: str, text: str, counts: Mapping[str, float]) -> Family:
        samples = tuple(Sample(value, (("topic", topic),)) for topic, value in sorted(counts.items()))
        return Family(name, "counter", text, samples)

    def named(given: Mapping[str | UUID, Given], attribute: str) -> Mapping[str, float]:
        """Newer clients name a topic by its id, older ones by its name."""
        sums: dict[str, float] = defaultdict(int)
        for key, each in given.items():
            sums[key if isinstance(key, str) else image.topics_by_id[key].name] += getattr(each, attribute)
        return sums

    def written(attribute: str) -> Mapping[str, float]:
        return {topic: getattr(counts, attribute) for topic, counts in metrics.topics.items()}

    produced, given = "appended by producers, by topic.", "Bytes of batches given to"
    yield family("odradek_topic_produced_bytes", f"Bytes of batches {produced}", written("bytes"))
    yield family("odradek_topic_produced_records", f"Records {produced}", written("records"))
    yield family("odradek_topic_produced_batches", f"Batches {produced}", written("batches"))
    yield family(
        "odradek_topic_produce_failures",
        "Partitions in Produce requests that were refused, by topic.",
        dict.fromkeys(metrics.topics, 0) | metrics.refused,
    )
    yield family("odradek_topic_fetched_bytes", f"{given} consumers, by topic.", named(metrics.consumed, "bytes"))
    yield family("odradek_topic_replicated_bytes", f"{given} followers, by topic.", named(metrics.replicated, "bytes"))
    yield family(
        "odradek_topic_fetches",
        "Fetch responses with batches for consumers, counted for each partition, by topic.",
        named(metrics.consumed, "answers"),
    )
    yield family(
        "odradek_topic_fetch_failures",
        "Partitions led here that a Fetch could not read, by topic.",
        dict.fromkeys(named(metrics.consumed, "bytes"), 0) | metrics.unread,
    )


def remove_deleted_topics(metrics: Metrics, delta: MetadataDelta, image: MetadataImage) -> None:
    """Counts of topics that are deleted go at once: there may never be a scrape."""
    for topic_id, topic in delta.deleted_topics.items():
        metrics.remove([topic_id] if topic.name in image.topics_by_name else [topic_id, topic.name])


def denial_family(metrics: Metrics) -> Family:
    """The operations that were denied to clients."""
    samples = [(api_name(ApiKey(key)), count) for key, count in metrics.denials.items()]
    return Family(
        "odradek_denials",
        "counter",
        "Operations that the authorizer has denied, by API.",
        tuple(Sample(count, (("api", name),)) for name, count in sorted(samples)),
    )


def quorum_families(quorum: RaftDriver) -> Iterator[Family]:
    """The metadata's quorum, and how far behind it this node, or its followers, are."""
    gauge, leader, lag = Family.gauge, quorum.leader(), quorum.metadata_lag
    yield gauge(
        "odradek_metadata_lag_records",
        "Committed metadata records that this node lacks, by the leader's last report; -1: no leader responds.",
        UNKNOWN if lag is None else lag,
    )
    yield gauge(
        "odradek_quorum_leader", "Node id of the quorum's leader; -1: none is known.", leader.node_id if leader else -1
    )
    yield gauge("odradek_quorum_epoch", "Epoch of the quorum's leader.", quorum.leader_epoch)
    yield gauge("odradek_quorum_end_offset", "Next offset of this node's copy of the metadata log.", quorum.end_offset)
    yield gauge(
        "odradek_quorum_high_watermark",
        "High watermark of the metadata log.",
        quorum.committed_offset,
    )
    yield gauge("odradek_controller_active", "Whether this node is the active controller, 0 or 1.", quorum.leads)
    traffic = Traffic() if quorum.peers is None else quorum.peers.traffic
    yield Family.counter(
        "odradek_quorum_requests", "Requests that this node has sent to others of the quorum.", traffic.requests
    )
    yield Family.counter("odradek_quorum_responses", "Responses from others of the quorum.", traffic.responses)
    yield Family.counter("odradek_quorum_sent_bytes", "Bytes of requests to others of the quorum.", traffic.sent_bytes)
    yield Family.counter(
        "odradek_quorum_received_bytes", "Bytes of responses from others of the quorum.", traffic.received_bytes
    )
    node = quorum.node
    behind = {
        key.node_id: max(0, quorum.end_offset - max(0, state.end_offset))
        for key, state in (node.replicas.items() if quorum.leads else ())
        if key != node.me
    }
    yield Family(
        "odradek_quorum_replica_lag_records",
        "gauge",
        "Metadata records that another node has not fetched; reported by the active controller.",
        tuple(Sample(records, (("node", str(node_id)),)) for node_id, records in sorted(behind.items())),
    )


class ClusterCounts:
    """Counts over all partitions, kept until the image is another one."""

    def __init__(self) -> None:
        self._seen: MetadataImage | None = None
        self._families: tuple[Family, ...] = ()

    def families(self, image: MetadataImage) -> tuple[Family, ...]:
        """Cluster-wide values, which every node has: use those of one node, or the maximum."""
        if image is not self._seen:
            self._seen = image
            self._families = tuple(_counted(image))
        return self._families


def _counted(image: MetadataImage) -> Iterator[Family]:
    gauge, brokers = Family.gauge, image.brokers.values()
    partitions = [each for topic in image.topics_by_name.values() for each in topic.partitions.values()]
    yield gauge("odradek_cluster_brokers", "Brokers that are registered.", len(image.brokers))
    yield gauge(
        "odradek_cluster_brokers_fenced", "Registered brokers that are fenced.", sum(each.fenced for each in brokers)
    )
    yield gauge("odradek_cluster_topics", "Topics of the cluster.", len(image.topics_by_name))
    yield gauge("odradek_cluster_partitions", "Partitions of the cluster.", len(partitions))
    yield gauge(
        "odradek_cluster_partitions_without_leader",
        "Partitions of the cluster that have no leader (Kafka: OfflinePartitionsCount).",
        sum(not each.has_leader for each in partitions),
    )
    yield gauge(
        "odradek_cluster_partitions_not_preferred",
        "Partitions of the cluster led by another replica than the first (Kafka: PreferredReplicaImbalanceCount).",
        sum(each.has_leader and each.leader != each.preferred_leader for each in partitions),
    )


class UncleanElections:
    """Counts elections of leaders that were not in the in-sync set."""

    def __init__(self) -> None:
        self.count = 0

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Count unclean elections in the changes; those before this node had the partition are not counted."""
        for topic_id, numbers in delta.changed_partitions.items():
            before = delta.image.topics_by_id.get(topic_id)
            if before is not None:
                after = image.topics_by_id[topic_id].partitions
                self.count += sum(_is_unclean(before.partitions.get(each), after[each]) for each in numbers)


def _is_unclean(before: PartitionImage | None, after: PartitionImage) -> bool:
    recovers = after.leader_recovery_state and after.has_leader
    return bool(before is not None and recovers and not before.leader_recovery_state)


def cluster_families(services: BrokerServices, counts: ClusterCounts, unclean: UncleanElections) -> Iterator[Family]:
    """All families of this module."""
    yield from topic_families(services.metrics, services.image)
    yield denial_family(services.metrics)
    yield Family.gauge(
        "odradek_produces_waiting",
        "Produce requests that wait for in-sync replicas, or for the disk.",
        services.metrics.waiting_produces,
    )
    yield from quorum_families(services.quorum)
    yield from counts.families(services.image)
    yield Family.counter(
        "odradek_cluster_unclean_elections",
        "Partitions whose leader was not in sync when it was elected, seen by this node.",
        unclean.count,
    )
