"""The properties of topics that a group needs: ids, partition counts and the racks of replicas."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from odradek.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic. `racks` has the racks of replicas by partition; empty sets if brokers have no rack."""

    name: str
    topic_id: UUID
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicsView:
    """All topics at one moment. `version` rises with each possible change."""

    version: int = 0
    by_name: Mapping[str, TopicFacts] = field(default_factory=dict)
    by_id: Mapping[UUID, TopicFacts] = field(default_factory=dict)

    def metadata_hash(self, names: Iterable[str]) -> int:
        """An int64 that changes when one of these topics is created, deleted, grows, or moves to other racks.

        0 if none of them exists. Kafka computes another number from the same properties: after a move of the data
        directory between the two each group gets one new epoch.
        """
        digest = hashlib.blake2b(digest_size=8)
        found = False
        for name in sorted(set(names)):
            topic = self.by_name.get(name)
            if topic is not None:
                found = True
                racks = [sorted(each) for each in topic.racks]
                digest.update(repr((name, topic.topic_id.int, topic.partition_count, racks)).encode())
        return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


def topics_view(image: MetadataImage, version: int) -> TopicsView:
    """The topics of an image."""
    racks_of = {broker_id: broker.rack for broker_id, broker in image.brokers.items() if broker.rack}
    by_name: dict[str, TopicFacts] = {}
    for name, topic in image.topics_by_name.items():
        count = len(topic.partitions)
        racks: tuple[frozenset[str], ...] = ()
        if racks_of:
            racks = tuple(
                frozenset(racks_of[each] for each in topic.partitions[index].replicas if each in racks_of)
                for index in range(count)
            )
        by_name[name] = TopicFacts(name, topic.topic_id, count, racks)
    return TopicsView(version, by_name, {topic.topic_id: topic for topic in by_name.values()})
