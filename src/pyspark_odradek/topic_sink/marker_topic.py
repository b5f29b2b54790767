"""The marker of a query in a compacted topic, where it does not expire: the newest committed batch.

A marker is a record in the batch's own transaction. Its key is the query's transactional id, which determines the
partition (murmur2). Its value is JSON: batch, run and plan, and the transactions of tasks if these write
(`task_writers`). Many queries can share one topic.

A `read_committed` consumer would stop at the first open transaction of any query in the partition, until the timeout of
a dead driver. So the partition is read from its start to its high watermark, and transactions are tracked here: a
record counts if its own transaction is committed, whatever else is open. Only one record and one fetch are in memory. A
process continues at its last position: with several queries in one application each batch may begin again
(`transaction.py`).
"""

from __future__ import annotations

import json
import logging
import os
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from odradek.common.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.records_field import received
from odradek.record.builder import build_batch
from odradek.record.record import Record
from pyspark_odradek.client.cluster import TOPIC, Cluster, RetriableError, check
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import ClusterError
from pyspark_odradek.options import EARLIEST, LATEST
from pyspark_odradek.record.decode import Batch, Decoder, RecordFormatError, is_abort_marker, whole_batches
from pyspark_odradek.record.encode import EncodedBatch
from pyspark_odradek.record.partitioner import partitions_of
from pyspark_odradek.topic_sink.task_writers.prepared import Prepared

log = logging.getLogger("pyspark_odradek")

# Settings of a created topic. Only closed segments are compacted, and transaction markers stay for
# delete.retention.ms: with the defaults, 1 GiB and a day, each start of a query would read that much. A marker with
# tasks has 20 to 50 bytes for each, and may be as large as a segment.
SETTINGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),
    "max.message.bytes": str(4 << 20),
    "delete.retention.ms": "3600000",
}
ASKED_ABOVE_BYTES = 64 << 10  # a marker up to here is not compared with the topic's settings
END_OF_LOG = 1 << 62  # above any offset
READ_UNCOMMITTED = 0
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)


class Marker(NamedTuple):
    """The newest batch of a query that is in the topics, the run of the query that brought it, and the batch's plan.

    `tasks` is None where the driver wrote the batch. Else tasks did, and these are their transactions, which the query
    has decided at `decided_ms` (since 1970 UTC) to commit; none are named where only the group's marker is known.
    `before` are the runs that this one has taken the query over from, the last one first.
    """

    batch_id: int
    run_id: str
    plan: str = ""
    tasks: tuple[Prepared, ...] | None = None
    decided_ms: int = 0
    before: tuple[str, ...] = ()


def newer(one: Marker | None, other: Marker | None) -> Marker | None:
    """The marker of the later batch; None if there is none."""
    return max(filter(None, (one, other)), key=lambda marker: marker.batch_id, default=None)


class Entry(NamedTuple):
    """A record with the key; the value None deletes the marker."""

    offset: int
    value: bytes | None


class NewestOfKey:
    """Finds the newest committed record of one key in a partition's log, whose batches are passed in order.

    `newest` is that record; `open` are the records behind it, by producer id, whose transactions have not ended yet.
    Source: KIP-98.
    """

    def __init__(self, key: bytes, newest: Entry | None = None) -> None:
        self._key = pa.scalar(key, pa.binary())
        self.newest = newest
        self.open: dict[int, Entry] = {}

    def add_batches(self, fetched: memoryview, batches: Sequence[Batch]) -> None:
        """Go on with the batches of a fetch. Raises RecordFormatError."""
        records = [batch for batch in batches if not batch.header.is_control]
        starts = [batch.header.base_offset for batch in records]
        found = [(entry, records[bisect_right(starts, entry.offset) - 1]) for entry in self._entries(fetched, records)]
        ends = [batch for batch in batches if batch.header.is_control]
        at = 0
        for entry, batch in found:
            while at < len(ends) and ends[at].last_offset < entry.offset:
                self._end(ends[at], fetched)
                at += 1
            if batch.header.is_transactional:
                self.open[batch.header.producer_id] = entry
            else:
                self._commit(entry)
        for batch in ends[at:]:
            self._end(batch, fetched)

    def settle(self, last_stable_offset: int) -> None:
        """When the log was read to there at least: below the last stable offset nothing is open.

        A record there is committed though no end of its transaction was met: a cleaner may take the end of a committed
        transaction before its records, but not that of an aborted one.
        """
        for producer_id, entry in list(self.open.items()):
            if entry.offset < last_stable_offset:
                self._commit(self.open.pop(producer_id))

    def _entries(self, fetched: memoryview, records: Sequence[Batch]) -> Iterator[Entry]:
        for rows in Decoder(_SCHEMA, "", 0, 0, END_OF_LOG).decode(fetched, records):
            mine = rows.filter(pc.equal(rows.column("key"), self._key))
            yield from map(Entry, mine.column("offset").to_pylist(), mine.column("value").to_pylist())

    def _end(self, batch: Batch, fetched: memoryview) -> None:
        entry = self.open.pop(batch.header.producer_id, None)
        if entry is not None and not is_abort_marker(batch, fetched):
            self._commit(entry)

    def _commit(self, entry: Entry) -> None:
        if self.newest is None or entry.offset > self.newest.offset:
            self.newest = entry


class MarkerTopic:
    """The topic in which queries keep their markers.

    Args:
        cluster: of the topic.
        topic: its name.
        replication_factor: of a created topic; -1 for the brokers' default.
    """

    def __init__(self, cluster: Cluster, topic: str, *, replication_factor: int = -1) -> None:
        self.cluster = cluster
        self.topic = topic
        self.replication_factor = replication_factor

    def ensure(self) -> None:
        """Create the topic if it is missing. Raises ClusterError, also if its records would expire."""
        cluster, topic = self.cluster, self.topic
        if topic not in cluster.partitions([topic]) and cluster.create_topic(
            topic, 1, self.replication_factor, SETTINGS
        ):
            log.warning("created the marker topic %s", topic)
        found = cluster.retrying(
            f"the settings of topic {topic}", lambda: cluster.settings_of(TOPIC, topic, ["cleanup.policy"])
        )
        policy = found.get("cleanup.policy") or ""
        if policy.replace(" ", "") != "compact":
            raise ClusterError(
                f"markerTopic: the topic {topic} has cleanup.policy={policy or '(nothing)'}, and has to have compact "
                "alone: with delete its markers would expire, too, and without compact it would grow for ever. Alter "
                "that, or name a topic that does not exist: it is made as it should be"
            )

    def record(self, key: str, marker: Marker) -> EncodedBatch:
        """The marker as a record batch, and the partition that it goes to.

        Raises:
            OSError, ProtocolError, RetriableError: ask again.
            ClusterError: the topic is deleted, or the marker with all tasks is too large for it.
        """
        content: dict[str, Any] = {"batch": marker.batch_id, "run": marker.run_id, "plan": marker.plan}
        if marker.tasks is not None:
            content |= {"decided": marker.decided_ms, "tasks": marker.tasks}
        if marker.before:
            content["before"] = marker.before
        value = json.dumps(content, separators=(",", ":"))
        record = Record(key.encode(), value.encode(), (), timestamp_ms=time.time_ns() // 1_000_000)
        # Names of a thousand transactions are alike, and have to fit into one record.
        batch = build_batch([record], compression="gzip" if marker.tasks else "none")
        if len(batch) > ASKED_ABOVE_BYTES:
            self._refuse_if_too_large(marker, len(batch))
        return EncodedBatch(self.topic, _place(key, len(self._partitions())), 1, batch)

    def _refuse_if_too_large(self, marker: Marker, size_bytes: int) -> None:
        found = self.cluster.settings_of(TOPIC, self.topic, ["max.message.bytes", "segment.bytes"])
        limits = {name: int(value) for name, value in found.items() if value}
        name = min(limits, key=lambda each: limits[each], default="")
        if name and size_bytes > limits[name]:
            raise ClusterError(
                f"markerTopic: the marker of batch {marker.batch_id} names {len(marker.tasks or ()):,} tasks in "
                f"{size_bytes:,} bytes, and the topic {self.topic} has {name}={limits[name]}. The batch is not "
                "decided, and none of it can be read. Alter max.message.bytes and segment.bytes of the topic, or write "
                "by fewer tasks, as with coalesce(n) before the writer, and start the query again"
            )

    def read(self, key: str, *, stable: bool, known: Marker | None = None) -> Marker | None:
        """The newest committed marker of a query, or `known` if that is newer; None if there is none.

        It may be in any partition, because added partitions change the partition of a key.

        Args:
            key: the query's transactional id.
            stable: a transaction of this query that is open is waited for, by a RetriableError; not where it is of a
                batch that is marked already, so that whatever becomes of it the answer is the same.
            known: the marker that is committed elsewhere.
        Raises:
            OSError, ProtocolError, RetriableError: ask again.
            ClusterError: the topic is deleted, may not be read, or has another record with this key.
        """
        found: Marker | None = None
        unended: list[tuple[int, Entry]] = []
        for partition_id in self._partitions():
            log_end = self._newest(key, partition_id)
            found = newer(found, self._parsed(key, log_end.newest))
            unended += [(partition_id, entry) for entry in log_end.open.values()]
        found = newer(found, known)
        for partition_id, entry in unended if stable else ():
            batch_id = _batch_of(entry)
            if found is None or batch_id is None or batch_id > found.batch_id:
                where = f"--topic {self.topic} --partition {partition_id}"
                raise RetriableError(
                    f"a transaction of {key} is open in {self.topic}-{partition_id} at offset {entry.offset}. Where it "
                    f"stays so, `odradek transactions find-hanging {where}` shows whether it will be ended, and "
                    f"`odradek transactions abort {where} --start-offset …` ends it: the batch of its marker "
                    f"{(entry.value or b'')[:200]!r} counts as not written then"
                )
        return found

    def _partitions(self) -> list[int]:
        advice = "It is the option markerTopic, and was there before: start the query again, which recreates it"
        return self.cluster.partitions([self.topic], must_exist=True, advice=advice)[self.topic]

    def _newest(self, key: str, partition_id: int) -> NewestOfKey:
        """Read the partition to its end; after an error the position is kept."""
        partition = TopicPartition(self.topic, partition_id)
        start = self.cluster.list_offsets({partition: EARLIEST}).get(partition)
        # A new leader may have an old high watermark: then it returns an error for the end, and the request is retried.
        # So the end is requested last; uncommitted, since an open transaction of another query would hold it back.
        end = self.cluster.list_offsets({partition: LATEST}, READ_UNCOMMITTED).get(partition)
        if end is None or start is None:
            raise RetriableError(f"{self.topic}-{partition_id} is not there")
        topic_id = self.cluster.topic_ids.get(self.topic)
        place = (os.getpid(), topic_id, partition, key)
        position, newest = _READ.get(place, (start, None))
        position = max(position, start)
        found = NewestOfKey(key.encode(), newest)
        while True:
            answer = self._fetch(partition, position)
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                _READ.pop(place, None)  # it may have been cut at its end, too: what was read does not count any more
                raise RetriableError(f"{self.topic}-{partition_id} does not have offset {position} any more")
            fetched = memoryview(received(answer.records))
            try:
                batches = list(whole_batches(fetched, check_crc=self.cluster.settings.check_crcs))
                found.add_batches(fetched, batches)
            except RecordFormatError as error:
                raise ClusterError(
                    f"markerTopic: {self.topic}-{partition_id} cannot be read from offset {position} on: {error}. "
                    "Repair the broker's log, or name another topic: the group's marker counts then"
                ) from error
            position = batches[-1].last_offset + 1 if batches else position
            # A broker checks its high watermark first: the last stable offset may be lower, with an abort in between.
            is_end = position >= max(answer.high_watermark, answer.last_stable_offset, end)
            if is_end:
                found.settle(answer.last_stable_offset)
            if topic_id is not None:  # without one a recreated topic cannot be distinguished from the old one
                undecided = [entry.offset for entry in found.open.values()]
                _READ[place] = (min([position, *undecided]), found.newest)
            if is_end:
                return found
            if not batches:
                raise RetriableError(f"{self.topic}-{partition_id} has no record from offset {position} on")

    def _fetch(self, partition: TopicPartition, position: int) -> PartitionData:
        """Fetch once; the response may be OFFSET_OUT_OF_RANGE. Waits while a quota throttles the fetch."""
        settings = self.cluster.settings
        where = f"fetch of {partition.topic}-{partition.partition_id}"
        deadline = time.monotonic() + settings.default_api_timeout_ms / 1000
        while True:
            connection = self.cluster.leader(partition)
            size = settings.max_partition_fetch_bytes
            self.cluster.send_fetch(connection, {partition: position}, 0, size, isolation_level=READ_UNCOMMITTED)
            answer = connection.receive()
            assert isinstance(answer, FetchResponse)
            check(answer.error_code, where)
            parts = [part for topic in answer.responses for part in topic.partitions]
            if parts or not answer.throttle_time_ms:
                break
            if time.monotonic() > deadline:
                raise RetriableError(f"{where} is throttled by a quota in every attempt")
            time.sleep(answer.throttle_time_ms / 1000)
        if len(parts) != 1:
            raise ProtocolError(f"{where} was answered with {len(parts)} partitions")
        if parts[0].error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            check(parts[0].error_code, where)
        return parts[0]

    def _parsed(self, key: str, entry: Entry | None) -> Marker | None:
        if entry is None or entry.value is None:
            return None
        try:
            found = json.loads(entry.value)
            if not isinstance(found, dict):
                raise ValueError("not a JSON object")
            before = tuple(map(str, found.get("before", ())))
            marker = Marker(int(found["batch"]), str(found["run"]), str(found["plan"]), before=before)
            if "tasks" not in found:
                return marker
            tasks = tuple(Prepared(*each) for each in found["tasks"])
            return marker._replace(tasks=tasks, decided_ms=int(found["decided"]))
        except (ValueError, TypeError, KeyError):
            raise ClusterError(
                f"markerTopic: the topic {self.topic} has {entry.value[:60]!r} under the key {key} at offset "
                f"{entry.offset}, which is not a marker: somebody else writes there; name another topic"
            ) from None


# The position (exclusive) and the result of this process, by process id, topic id, partition and key. The process id
# distinguishes the copies of a fork.
_READ: dict[tuple[int, UUID | None, TopicPartition, str], tuple[int, Entry | None]] = {}


def _batch_of(entry: Entry) -> int | None:
    """The batch of a record that may be uncommitted; None if it is not a marker."""
    try:
        return int(json.loads(entry.value or b"")["batch"])
    except (ValueError, TypeError, KeyError):
        return None


def _place(key: str, partition_count: int) -> int:
    return int(partitions_of(pa.array([key.encode()], pa.binary()), partition_count)[0])
