"""The readers of topics, for batch queries and streams.

The driver plans ranges of offsets; each task opens its own connection, fetches raw batches and yields Arrow. Readers
hold no connection themselves, since Spark sends them to its executors.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_odradek.client.cluster import ClientSettings, Cluster, shared_cluster
from pyspark_odradek.client.offsets import (
    OffsetRange,
    Positions,
    SourceOffset,
    backlog,
    capped,
    cut,
    find_lost,
    from_json,
    limit_offsets,
    to_json,
    topic_ids_in,
)
from pyspark_odradek.errors import ClusterError, LeaseError, OptionError, report
from pyspark_odradek.options import READ_SETTINGS, ReadOptions, warn_of_unread_settings
from pyspark_odradek.source.fetch import read_range
from pyspark_odradek.source.planning import (
    OffsetBounds,
    bytes_per_offset,
    lost_ranges,
    offset_bounds,
    plan_ranges,
    recreated_topics,
    refuse_another_query,
    resolve,
    selected_partitions,
    without_topics,
)
from pyspark_odradek.source.schema import source_schema
from pyspark_odradek.spark_api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    arrow_schema,
)

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_odradek.source.group_member import GroupMember
    from pyspark_odradek.standby.source import LeasedSource

log = logging.getLogger("pyspark_odradek")


class RangePartition(InputPartition):
    """One task's range of offsets."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class _Reader:
    """The common part of both readers; picklable."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.settings = ClientSettings.parse(options.kafka)
        self.settings.security()  # a wrong setting is reported here and not by the first task
        self.spark_schema = schema
        self._has_found_letters = False
        warn_of_unread_settings(options.kafka, READ_SETTINGS, "reading")

    @property
    def cluster(self) -> Cluster:
        return shared_cluster(self.settings)

    def find_dead_letter_topic(self) -> None:
        """Learn at the start, and not from the first bad record, that it is not there. Raises ClusterError."""
        letters = self.options.dead_letter_topic
        if letters is not None and not self._has_found_letters:
            advice = "Create it, or correct the option deadLetterTopic"
            self.cluster.partitions([letters], must_exist=True, advice=advice)
        self._has_found_letters = True

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield one task's records as Arrow batches."""
        wanted = partition.value
        if wanted is None:  # Spark's stand-in where there is nothing to read
            return iter(())
        schema = arrow_schema(self.spark_schema)
        limits: dict[str, Any] = {
            "fail_on_data_loss": self.options.fail_on_data_loss,
            "timeout_ms": self.options.read_timeout_ms,
        }
        if self.options.value_format == "binary":
            return read_range(self.settings, wanted, schema, **limits)
        from pyspark_odradek.values.decoding import decoded

        raw = arrow_schema(source_schema(True))  # a dead letter keeps its headers
        return decoded(read_range(self.settings, wanted, raw, **limits), self.options, schema)

    def cut(self, ranges: list[OffsetRange]) -> list[InputPartition]:
        options = self.options
        pieces = cut(ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)
        return [RangePartition(piece) for piece in pieces]


class BatchReader(_Reader, DataSourceReader):
    """A range of each partition, resolved once, when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        """One task a partition, or as many as `minPartitions` asks for."""
        cluster, options = self.cluster, self.options
        self.find_dead_letter_topic()
        partitions = selected_partitions(cluster, options, must_exist=True)
        marks = offset_bounds(cluster, partitions)
        end = resolve(cluster, options, partitions, marks, at_start=False)
        start = resolve(cluster, options, partitions, marks, at_start=True, until=end)
        ids = cluster.topic_ids
        return self.cut([OffsetRange(*p, start[p], end[p], ids.get(p.topic)) for p in partitions if end[p] > start[p]])


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches. Spark keeps one instance on the driver for a query's life; copies of it read on executors."""

    def __init__(self, options: ReadOptions, schema: StructType, lease: LeasedSource | None = None) -> None:
        super().__init__(options, schema)
        self._target: Positions | None = None
        self._latest: Positions = {}
        self._topic_ids: dict[str, UUID] = {}  # of the topics whose ends were seen last
        self._first_end: SourceOffset | None = None  # where a query starts that may start at the end of a log
        self._first_is_planned = False
        self._committed: Positions = {}
        self._member: GroupMember | None = None
        self._delayed_until = 0.0  # on the monotonic clock; no batch below the least goes before
        self._lease = lease

    def __getstate__(self) -> dict[str, Any]:
        """Copies on executors read, and are no member."""
        return self.__dict__ | {"_member": None}

    def initialOffset(self) -> SourceOffset:  # noqa: N802 - Spark's name
        """The start of a new query.

        Spark stores the end of a batch, and requests the start of the first batch again if the query ended before that
        batch was complete. If the start is the end of the log, which may change, the first batch is empty.
        """
        partitions = selected_partitions(self.cluster, self.options, must_exist=True)
        ids = dict(self.cluster.topic_ids)
        marks = offset_bounds(self.cluster, partitions)
        start = to_json(resolve(self.cluster, self.options, partitions, marks, at_start=True), ids)
        if self.options.may_start_at_the_end:
            self._first_end = start
        return start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """A sign that limits are set: Spark has no limit that holds all of ours, so `latestOffset` applies them."""
        options = self.options
        limits = (options.max_offsets_per_trigger, options.min_offsets_per_trigger, options.max_bytes_per_trigger)
        return ReadAllAvailable() if not any(limits) else ReadMaxRows(options.max_offsets_per_trigger or (1 << 62))

    def latestOffset(self, start: SourceOffset, limit: ReadLimit) -> SourceOffset:  # noqa: N802 - Spark's name
        """The end of the next batch; `start` if there is nothing to read. Raises DataLossError, ClusterError."""
        began, ids = self._known(start)
        self._commit_progress(began)
        end, known = self._available(began, ids)
        if start == self._first_end and not self._first_is_planned:
            self._first_is_planned = True
            return start
        self._first_end = None
        waiting = backlog(known, end)
        if end == began and self._target is None and self.options.poll_timeout_ms:
            self._wait_for_records(end, self.options.poll_timeout_ms)
            end, known = self._available(began, ids)
            waiting = backlog(known, end)
        if isinstance(limit, ReadAllAvailable) or waiting == 0:
            return to_json(end, self._topic_ids)
        if not (self._is_enough(waiting) or _goes_back(began, end)):
            return start
        return to_json(self._limited(known, end, waiting), self._topic_ids)

    def _wait_for_records(self, end: Positions, timeout_ms: int) -> None:
        if self._lease is not None and self._lease.is_standby:  # for the output of another group, not for records
            time.sleep(timeout_ms / 1000)
        else:
            self.cluster.wait_for_records(end, timeout_ms)

    def reportLatestOffset(self) -> SourceOffset | None:  # noqa: N802 - Spark's name
        """The ends as last seen, for the query's progress."""
        return to_json(self._latest, self._topic_ids) if self._latest else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of this run: later records are not read."""
        partitions = selected_partitions(self.cluster, self.options, must_exist=True)
        self._target = offset_bounds(self.cluster, partitions).latest

    def partitions(self, start: SourceOffset, end: SourceOffset) -> Sequence[InputPartition]:
        """The tasks of a batch. Raises DataLossError, ClusterError."""
        self.find_dead_letter_topic()
        began, began_ids = self._known(start)
        if start == self._first_end:  # of the first batch, whose end was the start of then
            self._first_is_planned = True
            return []
        return self.cut(plan_ranges(self.cluster, self.options, began, from_json(end), began_ids, topic_ids_in(end)))

    def commit(self, end: SourceOffset) -> None:
        """Nothing: Spark's checkpoint is the truth, and a group's offsets are committed from `latestOffset`."""

    def stop(self) -> None:
        """Commit the completed offsets, leave the group, and close the driver's connections."""
        if self._member is not None:
            self._member.close()
        self.cluster.close()

    def _known(self, start: object) -> tuple[Positions, dict[str, UUID]]:
        """(positions, the ids of their topics) of the checkpoint, once it is certain that it speaks of this query.

        Raises:
            OptionError: it speaks of another one.
        """
        try:
            known, ids = from_json(start), topic_ids_in(start)  # type: ignore[arg-type]  # or else it raises
        except (AttributeError, TypeError, ValueError):
            raise OptionError(
                f"the checkpoint holds {str(start)[:60]!r}, which is not a position in topics: it is of a query over "
                "another source. Start with another checkpointLocation"
            ) from None
        refuse_another_query(self.options, known)
        wanted = {partition: offset for partition, offset in known.items() if self.options.wants(*partition)}
        return wanted, {topic: ids[topic] for topic in {topic for topic, _ in wanted} & ids.keys()}

    def _available(self, began: Positions, began_ids: dict[str, UUID]) -> tuple[Positions, Positions]:
        """(the end of all that can be read, where each of these partitions stands)."""
        partitions = selected_partitions(self.cluster, self.options, must_exist=False, known=began, topic_ids=began_ids)
        if self._target is not None:
            partitions = [partition for partition in partitions if partition in self._target or partition in began]
        # Known before the ends are: if a topic is recreated in between, nothing is read of it by the old one's id.
        self._topic_ids = began_ids | self.cluster.topic_ids
        others = recreated_topics(began_ids, self._topic_ids)
        same = without_topics(began, others)
        marks = offset_bounds(self.cluster, partitions, behind=same)
        self._report_lost(began, others, marks)
        self._latest = dict(marks.latest)
        end = self._within_limits(began, dict(marks.latest))
        end |= {partition: marks.earliest[partition] for partition in end if partition.topic in others}
        lost = find_lost(same, end, marks.earliest, marks.latest)
        report(lost, fail=self.options.fail_on_data_loss)
        return end, {p: same.get(p, marks.earliest[p]) for p in end}

    def _within_limits(self, began: Positions, end: Positions) -> Positions:
        """No further than the end of this run, and than an output lease lets a group read."""
        if self._target is not None:
            end = capped(began, end, self._target)
        limit = self._lease.limit(self.cluster, began) if self._lease is not None else None
        if limit is None:
            return end
        return capped(began, {p: offset for p, offset in end.items() if p in limit or p in began}, limit)

    def _report_lost(self, began: Positions, others: set[str], marks: OffsetBounds) -> None:
        """Report the unread ranges of recreated topics.

        Without `failOnDataLoss` a batch moves all their partitions to the beginning of the new topics, and reads
        nothing: so the checkpoint has the new ids before a record is read, and no range has the old id.

        Raises:
            DataLossError: if `failOnDataLoss` is true.
            LeaseError: the query has a gate, whose lease has positions of the old topic.
        """
        report(lost_ranges(began, others, marks, self._latest), fail=self.options.fail_on_data_loss)
        if others and self._lease is not None:
            raise LeaseError(
                f"the gate {self._lease.name} says how far the output of {', '.join(sorted(others))} goes, and other "
                "topics have these names now. Begin with another gate and another checkpointLocation"
            )

    def _is_enough(self, waiting: int) -> bool:
        """Whether a batch may begin, by `minOffsetsPerTrigger` and `maxTriggerDelay`; the first of a run may."""
        least = self.options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return True
        now = time.monotonic()
        if waiting < least and now < self._delayed_until:
            return False
        self._delayed_until = now + self.options.max_trigger_delay_ms / 1000
        return True

    def _limited(self, known: Positions, end: Positions, waiting: int) -> Positions:
        most = self.options.max_offsets_per_trigger or waiting
        if self.options.max_bytes_per_trigger is not None:
            behind = {partition: offset for partition, offset in known.items() if end[partition] > offset}
            size = bytes_per_offset(self.cluster, behind)
            most = min(most, max(1, int(self.options.max_bytes_per_trigger / size)))
        return limit_offsets(known, end, most)

    def _commit_progress(self, done: Positions) -> None:
        """Commit the completed offsets, for tools that show lag, as a member of the group.

        A run with `availableNow` is no member, since it ends soon.
        """
        group = self.options.group_id
        if group is None:
            return
        if self._target is None:
            if self._member is None:
                from pyspark_odradek.source.group_member import GroupMember  # librdkafka, which no task needs

                self._member = GroupMember(self.options.kafka, group)
            self._member.report(done)
        elif done != self._committed:
            try:
                self.cluster.commit(group, done)
            except ClusterError as error:
                log.warning("progress is not committed for group %s: %s", group, error)
            self._committed = done


def _goes_back(began: Positions, end: Positions) -> bool:
    return any(offset < began.get(partition, offset) for partition, offset in end.items())
