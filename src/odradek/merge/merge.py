"""Copies records of several topics into one topic of the same cluster, each once.

The offsets of the sources are committed in the transaction that has their records (KIP-98), as those of a consumer
group without members. Records keep partition, key, value, timestamp and headers, and get the header `odradek.origin`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.client.transactional_producer import TIMEOUT_S, TransactionalProducer, create_missing_topics
from odradek.common.errors import OdradekError

ORIGIN_HEADER = "odradek.origin"
RECORDS_AT_ONCE = 1000
PAUSE_S = 0.1
TRANSACTION_MS = 60_000
# Partitions that were added to a source are read after this time.
LOOK_FOR_PARTITIONS_S = 10.0
# The broker decides how large a record may be.
ANY_RECORD_BYTES = 1_000_000_000
_SIZE_ERRORS = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
TOO_LARGE = (
    "; max.message.bytes of the merge topic must be as large as that of the sources, and a little more for the header"
)

Headers = Sequence[tuple[str, str | bytes | None]]
# A topic and a partition.
Where = tuple[str, int]


class MergeError(OdradekError):
    """A merge cannot continue; the text has the advice."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a merge.

    Attributes:
        name: of the merge, in its transactional id and its group.
        into: the merge topic.
        origins: the name of its origin for each source topic.
        compacted: whether the merge topic is compacted, if it is created.
    """

    name: str
    into: str
    origins: Mapping[str, str]
    compacted: bool = False

    @property
    def group(self) -> str:
        """The consumer group that has the offsets, and the transactional id."""
        return f"odradek-merge-{self.name}"


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that a source deleted before they were merged.

    Attributes:
        first: the first offset that is missing.
        start: the log start offset, where reading goes on.
    """

    topic: str
    partition: int
    first: int
    start: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: {self.start - self.first} offsets were deleted before they were merged"


def merged_headers(headers: Headers, origin: str, origins: Mapping[str, str]) -> Headers | None:
    """The headers of a record in the merge topic; None if the record is left out.

    A record that has come through another merge keeps its origin. It is left out where that is the origin of another
    source: it is read there, or it has come back from a cluster that merges this one.
    """
    for name, value in headers:
        if name == ORIGIN_HEADER:
            before = value.decode(errors="replace") if isinstance(value, bytes) else value
            return None if before != origin and before in origins.values() else headers
    return [*headers, (ORIGIN_HEADER, origin.encode())]


class Merge:
    """The one process that merges under a name; a second one that starts fences the first.

    Args:
        clients: settings of librdkafka that reach the cluster.
        on_gap: is called for records that a source deleted before they were merged.

    Raises:
        MergeError: a source does not exist, the merge topic has too few partitions, or a source has been cut.
        KafkaException: the cluster refuses, or does not answer.
    """

    def __init__(
        self, clients: Mapping[str, Any], options: Options, on_gap: Callable[[Gap], None] = lambda gap: None
    ) -> None:
        self._options = options
        self._on_gap = on_gap
        # librdkafka's transactions can hang after it has bootstrapped again (its issue 5511).
        settings = {**clients, "metadata.recovery.strategy": "none"}
        self._admin = AdminClient(settings)
        self._counts = self._source_partitions()
        config = {"cleanup.policy": "compact"} if options.compacted else {}
        topic = NewTopic(options.into, max(self._counts.values()), config=config)
        if not create_missing_topics(self._admin, [topic]):
            self._check_partitions()
        self._refused = ""
        # From here on an earlier process can commit no offset, so those that are read next are the last ones.
        self._producer = TransactionalProducer(
            {**settings, "message.max.bytes": ANY_RECORD_BYTES}, options.group, timeout_ms=TRANSACTION_MS
        )
        self._consumer = Consumer(
            {
                **settings,
                "group.id": options.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )
        self._next: dict[Where, int] = {}
        self._at_end: set[Where] = set()
        self._looked_s = time.monotonic()
        try:
            self._assign(self._counts)
        except BaseException:  # Ctrl-C included
            self.close()
            raise

    def close(self) -> None:
        """Disconnect from the cluster."""
        self._consumer.close()
        self._producer.close()

    @property
    def is_at_end(self) -> bool:
        """Whether all records up to the last known ends of the sources are merged."""
        return len(self._at_end) == sum(self._counts.values())

    def step(self) -> int:
        """Merge the next records; returns their number, including omitted ones; 0 if there are none."""
        self._check_partition_counts()
        records = [message for message in self._consumer.consume(RECORDS_AT_ONCE, PAUSE_S) if self._is_record(message)]
        if not records:
            return 0
        with self._producer.aborting():
            self._producer.begin()
            for message in records:
                self._merge(message)
            self._commit({_where(message): _offset(message) + 1 for message in records})
        return len(records)

    def _is_record(self, message: Message) -> bool:
        """Whether it is a record, and not an event of its partition. Raises KafkaException, MergeError."""
        where, error = _where(message), message.error()
        if error is None:
            self._at_end.discard(where)
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add(where)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._pass_gap(*where)
        else:
            raise KafkaException(error)
        return False

    def _pass_gap(self, topic: str, partition: int) -> None:
        """Go on at the log start offset, if the next offset is below it."""
        start, end = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
        first = self._next.get((topic, partition), 0)
        if first > end:
            raise MergeError(
                f"{topic}-{partition} ends at offset {end}, and was merged up to {first}: it was cut;"
                f" `odradek groups reset --group {self._options.group}` sets where to go on"
            )
        if first < start:
            self._on_gap(Gap(topic, partition, first, start))
        self._next[topic, partition] = start
        self._consumer.incremental_unassign([TopicPartition(topic, partition)])
        self._consumer.incremental_assign([TopicPartition(topic, partition, start)])

    def _merge(self, message: Message) -> None:
        topic, partition = _where(message)
        headers = merged_headers(_headers(message), self._options.origins[topic], self._options.origins)
        if headers is None:
            return
        source = f"{topic}-{partition} offset {_offset(message)}"

        def delivered(error: KafkaError | None, _: Message) -> None:
            # Codes of brokers are above 0; the client's own are consequences, as of a fenced producer's purged records.
            if error is not None and error.code() > 0 and not self._refused:
                self._refused = f"{source}: {error.str()}{TOO_LARGE if error.code() in _SIZE_ERRORS else ''}"

        # The timestamp is -1 where records have none, and 0 is the present time.
        timestamp_ms = max(message.timestamp()[1], 0)
        self._producer.produce(
            self._options.into,
            message.value(),
            message.key(),
            partition=partition,
            timestamp=timestamp_ms,
            headers=list(headers),
            on_delivery=delivered,
        )

    def _commit(self, offsets: Mapping[Where, int]) -> None:
        """Commit records and offsets. Raises MergeError for a record that the merge topic refuses."""
        where = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        try:
            self._producer.commit(where, self._consumer)
        except KafkaException as error:
            # The client says that the transaction cannot be committed, and the delivery report says why.
            if self._refused and not error.args[0].fatal():
                raise MergeError(f"{self._options.into} does not take a record, {self._refused}") from None
            raise
        self._next.update(offsets)

    def _source_partitions(self) -> dict[str, int]:
        """The number of partitions of each source. Raises MergeError for one that does not exist."""
        found = {}
        for topic, future in self._admin.describe_topics(TopicCollection([*self._options.origins])).items():
            try:
                found[topic] = len(future.result(TIMEOUT_S).partitions)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise MergeError(f"topic {topic} does not exist") from None
                raise
        return found

    def _check_partitions(self) -> None:
        """Raises MergeError if the merge topic has too few partitions."""
        into, needed = self._options.into, max(self._counts.values())
        described = self._admin.describe_topics(TopicCollection([into]))[into].result(TIMEOUT_S)
        if len(described.partitions) < needed:
            raise MergeError(
                f"{into} has {len(described.partitions)} partitions, and a source has {needed}: records keep their"
                f" partition, so run `odradek topics alter {into} --partitions {needed}`"
            )

    def _check_partition_counts(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_FOR_PARTITIONS_S:
            return
        self._looked_s = now_s
        before, self._counts = self._counts, self._source_partitions()
        if self._counts != before:
            self._check_partitions()
            self._assign({topic: count for topic, count in self._counts.items() if count > before[topic]}, before)

    def _assign(self, counts: Mapping[str, int], before: Mapping[str, int] | None = None) -> None:
        """Read partitions from the committed offsets, or their start; those below `before` are assigned already."""
        wanted = [
            TopicPartition(topic, partition)
            for topic, count in counts.items()
            for partition in range(0 if before is None else before[topic], count)
        ]
        found = self._consumer.committed(wanted, TIMEOUT_S)
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
            if each.offset < 0:
                each.offset = OFFSET_BEGINNING
            else:
                self._next[each.topic, each.partition] = each.offset
        self._consumer.incremental_assign(found)


# A message that the client did not finish has no offset, and no consumer reads it.


def _where(message: Message) -> Where:
    topic, partition = message.topic(), message.partition()
    assert topic is not None and partition is not None
    return topic, partition


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def _headers(message: Message) -> Headers:
    found = message.headers() or ()
    return list(found.items()) if isinstance(found, dict) else found
