"""Creates images from committed metadata records, and calls subscribers.

The raft driver passes committed records in order; each call of `committed` becomes one delta. Records of a metadata
transaction (KIP-868) wait until it ends, so that no image has a part of one. Subscribers are called on the event loop
in the order of their subscription, with the delta and the new image; they must not block, and start tasks for longer
work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_record import TopicRecord

_SEPARABLE = (TopicRecord, RemoveTopicRecord, PartitionChangeRecord)

Subscriber = Callable[[MetadataDelta, MetadataImage], None]


class TransactionBuffer:
    """Holds back the records between BeginTransactionRecord and its end."""

    def __init__(self) -> None:
        self._held: list[tuple[int, Any]] | None = None

    @property
    def open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._held is not None

    def add(self, offset: int, record: Any) -> Sequence[tuple[int, Any]]:
        """The records that count from now on: this one, none while a transaction is open, or all of it at its end.

        Raises:
            ValueError: markers out of order.
        """
        kind = type(record).__name__
        if kind == "BeginTransactionRecord":
            if self._held is not None:
                raise ValueError(f"a metadata transaction begins at {offset} inside another")
            self._held = []
            return ()
        if kind in ("EndTransactionRecord", "AbortTransactionRecord"):
            if self._held is None:
                raise ValueError(f"a metadata transaction ends at {offset} that never began")
            held, self._held = self._held, None
            return held if kind == "EndTransactionRecord" else ()
        if self._held is not None:
            self._held.append((offset, record))
            return ()
        return ((offset, record),)


class MetadataPublisher:
    """Keeps the newest image and notifies subscribers."""

    def __init__(self, cluster_id: str = "") -> None:
        self.image = MetadataImage(cluster_id=cluster_id)
        self.kraft_version = 0  # the quorum's own feature, which is in its control records (KIP-853)
        self._transaction = TransactionBuffer()
        self._unpublished: MetadataDelta | None = None  # the changes of `replay_part`
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(delta, image)` for every later change, and at once with all that is known so far."""
        self._subscribers.append(subscriber)
        if self.image.offset >= 0:
            subscriber(delta_from_nothing(self.image), self.image)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Stop calling it."""
        self._subscribers.remove(subscriber)

    def load_snapshot(self, records: Sequence[Any], offset: int, leader_epoch: int) -> None:
        """Replace everything by a snapshot that ends with `offset` (inclusive).

        The delta has everything as deleted that the snapshot lacks.
        """
        old = self.image
        assert offset >= old.offset, f"a snapshot of offset {offset} takes the place of an image of {old.offset}"
        delta = MetadataDelta(MetadataImage(cluster_id=old.cluster_id, controller_id=old.controller_id))
        for record in records:
            delta.replay(record)
        self._transaction, self._unpublished = TransactionBuffer(), None
        self.image = delta.apply(offset, leader_epoch)
        delta.deleted_topics = {
            topic_id: topic for topic_id, topic in old.topics_by_id.items() if topic_id not in self.image.topics_by_id
        }
        delta.changed_brokers |= set(old.brokers)
        delta.changed_configs |= set(old.configs)
        delta.changed_acls |= dict.fromkeys(old.acls)
        self._publish(delta)

    def replay_part(self, records: Sequence[tuple[int, Any]]) -> int:
        """Apply committed records, each with its offset, to the image that the next call of `committed` publishes.

        Returns:
            The offset (inclusive) up to which no metadata transaction is open; -1 if there is none.
        """
        delta = self._unpublished = self._unpublished or MetadataDelta(self.image)
        complete_offset = -1  # an image's offset must not claim records that are held back
        for offset, record in records:
            for _, counted in self._transaction.add(offset, record):
                delta.replay(counted)
            if not self._transaction.open:
                complete_offset = offset
        return complete_offset

    def committed(self, records: Sequence[tuple[int, Any]], leader_epoch: int, *, is_part: bool = False) -> None:
        """Apply committed records, each with its offset; notify subscribers once for all of them.

        Args:
            is_part: the batch has more records. The image keeps its offset: it has all of a batch at and below it.
        """
        if not records:
            return
        assert records[0][0] > self.image.offset, f"{records[0][0]} is committed after {self.image.offset}"
        assert leader_epoch >= self.image.leader_epoch, f"epoch {leader_epoch} after {self.image.leader_epoch}"
        complete_offset = self.replay_part(records)
        if complete_offset >= 0 and self._unpublished is not None:
            delta, self._unpublished = self._unpublished, None
            if is_part:
                complete_offset, leader_epoch = self.image.offset, self.image.leader_epoch
            # The controller may have changed since the first of these records.
            self.image = replace(delta.apply(complete_offset, leader_epoch), controller_id=self.image.controller_id)
            self._publish(delta)

    def controller_changed(self, controller_id: int) -> None:
        """The quorum has another leader (-1: none known). Subscribers get an empty delta."""
        if controller_id != self.image.controller_id:
            delta = MetadataDelta(self.image)
            self.image = replace(self.image, controller_id=controller_id)
            self._publish(delta)

    def _publish(self, delta: MetadataDelta) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber(delta, self.image)


def first_part(records: Sequence[tuple[int, Any]], count: int) -> tuple[Sequence[tuple[int, Any]], bool]:
    """The first records of a batch, `count` up to twice as many, and whether an image may end with them.

    The topics of a batch can be separated, and the changes of partitions; a topic and its partitions and settings
    cannot, and neither can ACLs: a rule that allows may be before one that denies.
    """
    if len(records) <= count:
        return records, True
    for place in range(count, min(len(records), 2 * count)):
        if isinstance(records[place][1], _SEPARABLE):
            return records[:place], True
    return records[:count], False


def delta_from_nothing(image: MetadataImage) -> MetadataDelta:
    """A delta with everything in `image` as new."""
    delta = MetadataDelta(MetadataImage())
    for record in image.records():
        delta.replay(record)
    return delta
