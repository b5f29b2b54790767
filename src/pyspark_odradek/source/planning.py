"""Resolves the start and end of a query to offsets: the names, numbers and timestamps of the options."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.records_field import received
from pyspark_odradek.client.cluster import GONE_PATIENCE_S, Cluster
from pyspark_odradek.client.offsets import OffsetRange, Positions, TopicPartition, find_lost, flat
from pyspark_odradek.errors import ClusterError, LostRange, OptionError, report
from pyspark_odradek.options import EARLIEST, LATEST, Offsets, ReadOptions, Timestamps
from pyspark_odradek.record.decode import locating_errors, whole_batches

log = logging.getLogger("pyspark_odradek")

SAMPLE_BYTES = 64 << 10
SAMPLE_RECORDS = 1000


@dataclass(frozen=True)
class OffsetBounds:
    """The log start offset and the readable end of every partition of the query at one moment."""

    earliest: Positions
    latest: Positions


def selected_partitions(
    cluster: Cluster,
    options: ReadOptions,
    *,
    must_exist: bool,
    known: Iterable[TopicPartition] = (),
    topic_ids: Mapping[str, UUID] | None = None,
) -> list[TopicPartition]:
    """The partitions that the query reads now.

    Args:
        must_exist: raise ClusterError if a topic or partition of the options does not exist.
        known: earlier partitions; a missing one is looked up again for some time.
        topic_ids: the ids of their topics; a recreated topic is looked up again too.
    """
    named = [*options.topics, *options.assigned] if options.pattern is None else None
    existing = _existing(cluster, named, known, must_exist=must_exist, topic_ids=topic_ids)
    if must_exist and options.pattern is not None and not any(options.wants(*partition) for partition in existing):
        log.warning("subscribePattern %r matches no topic", options.pattern)
    if must_exist:
        _check_assigned(options, existing)
    return sorted(partition for partition in existing if options.wants(*partition))


def _check_assigned(options: ReadOptions, existing: Collection[TopicPartition]) -> None:
    """Raise ClusterError where a partition that is named does not exist."""
    for topic, parts in options.assigned.items():
        missing = [part for part in parts if TopicPartition(topic, part) not in existing]
        if missing:
            count = sum(partition.topic == topic for partition in existing)
            raise ClusterError(f"topic {topic} has {count} partitions; assign names {missing}")


def recreated_topics(known: Mapping[str, UUID], found: Mapping[str, UUID]) -> set[str]:
    """The recreated topics; a topic without an id cannot be checked."""
    return {topic for topic, topic_id in known.items() if found.get(topic, topic_id) != topic_id}


def without_topics(positions: Positions, topics: Collection[str]) -> Positions:
    """The positions in other topics than these."""
    return {partition: offset for partition, offset in positions.items() if partition.topic not in topics}


def lost_ranges(began: Positions, others: set[str], marks: OffsetBounds, seen: Positions) -> list[LostRange]:
    """The unread ranges of recreated topics; none if no records in them are known.

    Args:
        began: the present positions.
        others: the recreated topics.
        marks: the offsets of the new topics.
        seen: the last known ends of the old ones.
    """
    why = "another topic has its name now: it was deleted and recreated, or this is another cluster"
    left = sorted(
        p
        for p, offset in began.items()
        if p.topic in others and (offset != marks.earliest.get(p) or seen.get(p, 0) > offset)
    )
    return [LostRange(*p, began[p], max(began[p], seen.get(p, 0)), why) for p in left]


def offset_bounds(cluster: Cluster, partitions: list[TopicPartition], behind: Positions | None = None) -> OffsetBounds:
    """Ask for both ends of the partitions; again for a while where an end lies before a position of `behind`."""
    deadline = time.monotonic() + GONE_PATIENCE_S
    while True:
        earliest = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
        latest = cluster.list_offsets(dict.fromkeys(partitions, LATEST))
        both = earliest.keys() & latest.keys()
        # Asked one after the other: the start may have been moved past the end of the first response.
        marks = OffsetBounds({p: earliest[p] for p in both}, {p: max(latest[p], earliest[p]) for p in both})
        went_back = [p for p, offset in (behind or {}).items() if p in both and marks.latest[p] < offset]
        if not went_back or time.monotonic() > deadline:
            return marks
        time.sleep(0.2)


def resolve(
    cluster: Cluster,
    options: ReadOptions,
    partitions: list[TopicPartition],
    marks: OffsetBounds,
    *,
    at_start: bool,
    until: Positions | None = None,
) -> Positions:
    """The start or the end of the options, one offset for each partition.

    Args:
        until: the end of reading (exclusive), if known: deleted records behind it do not count as lost, and no given
            start may be behind it.
    Raises:
        OptionError: the options name other partitions than the query reads, no record is as young as a starting
            timestamp and the strategy is `error`, an offset lies behind the log and `failOnDataLoss` is true, or a
            start lies behind its end.
        DataLossError: an offset before the log, and `failOnDataLoss` is true.
    """
    name, position = ("startingOffsets", options.starting) if at_start else ("endingOffsets", options.ending)
    if isinstance(position, Timestamps):
        return _by_time(cluster, options, partitions, marks, position, at_start, until)
    if isinstance(position, int):
        return dict(marks.earliest if position == EARLIEST else marks.latest)
    given = _covering(name, position, partitions)
    _refuse_backwards(given, until)
    wanted = {partition: _without_names(offset, partition, marks) for partition, offset in given.items()}
    _report_beyond(name, wanted, marks.latest, fail=options.fail_on_data_loss)
    resolved = {partition: min(offset, marks.latest[partition]) for partition, offset in wanted.items()}
    if at_start:
        report(_lost_before(resolved, marks.earliest, until), fail=options.fail_on_data_loss)
        resolved = {partition: max(offset, marks.earliest[partition]) for partition, offset in resolved.items()}
    return resolved


def _without_names(offset: int, partition: TopicPartition, marks: OffsetBounds) -> int:
    """An offset as given, with the numbers that mean the ends of a log replaced by these."""
    if offset == EARLIEST:
        return marks.earliest[partition]
    return marks.latest[partition] if offset == LATEST else offset


def _lost_before(starts: Positions, earliest: Positions, until: Positions | None) -> list[LostRange]:
    """The ranges between the starts and the log start offsets, up to the end of the query."""
    lost = []
    for partition, offset in starts.items():
        start = earliest[partition]
        missed = start if until is None else min(start, until[partition])
        if missed > offset:
            lost.append(LostRange(*partition, offset, missed, f"the log now starts at {start}"))
    return lost


def _refuse_backwards(starts: Positions, until: Positions | None) -> None:
    """Raise OptionError where reading would begin behind its end."""
    ends = until or {}
    wrong = [
        f"{where.topic}-{where.partition_id} from {start} to {ends[where]}"
        for where, start in starts.items()
        if start > ends.get(where, start)
    ]
    if wrong:
        raise OptionError(
            f"the query would start behind its end: {', '.join(wrong)}. Correct the offsets or timestamps"
        )


def _report_beyond(name: str, wanted: Positions, latest: Positions, *, fail: bool) -> None:
    beyond = [
        f"{partition.topic}-{partition.partition_id} ends at {latest[partition]}, before {offset}"
        for partition, offset in wanted.items()
        if offset > latest[partition]
    ]
    if not beyond:
        return
    problem = f"{name} is beyond the end of the log: {'; '.join(beyond)}"
    if fail:
        raise OptionError(f"{problem}. Correct it, or set failOnDataLoss=false to take the end of the log instead")
    log.warning("%s; the end of the log is taken (failOnDataLoss=false)", problem)


def refuse_another_query(options: ReadOptions, known: Positions) -> None:
    """Refuse a checkpoint with partitions that this query does not read.

    It is another query's, or the query has changed.

    Raises:
        OptionError: if `failOnDataLoss` is true; otherwise it only warns, and ignores those partitions.
    """
    others = sorted({topic for topic, partition_id in known if not options.wants(topic, partition_id)})
    if not others:
        return
    problem = (
        f"the checkpoint holds offsets of {', '.join(others)}, which this query does not read: it is another query's, "
        "or subscribe, subscribePattern or assign was changed"
    )
    if options.fail_on_data_loss:
        raise OptionError(
            f"{problem}. Start with another checkpointLocation; or set failOnDataLoss=false to leave them and go on"
        )
    log.warning("%s; they are left (failOnDataLoss=false)", problem)


def plan_ranges(
    cluster: Cluster,
    options: ReadOptions,
    start: Positions,
    end: Positions,
    start_ids: Mapping[str, UUID],
    end_ids: Mapping[str, UUID],
) -> list[OffsetRange]:
    """The ranges of a batch from `start` to `end`; new partitions in `end` are read from their beginning.

    Nothing is read of a topic whose id changes in the batch, nor of one whose end is before its start: its log was
    truncated.

    Args:
        start_ids: the known ids of the topics of `start`.
        end_ids: the ids of those of `end`; without an id a range is of the present topic.
    """
    recreated = recreated_topics(start_ids, end_ids)
    start, end = without_topics(start, recreated), without_topics(end, recreated)
    existing = _existing(cluster, {topic for topic, _ in end}, end, topic_ids=end_ids)
    marks = offset_bounds(cluster, sorted(end.keys() & existing), behind=end)
    lost = find_lost(start, end, marks.earliest, marks.latest)
    report(lost, fail=options.fail_on_data_loss)
    ranges = []
    for partition in sorted(end):
        if partition not in marks.earliest:
            continue
        first = start.get(partition, marks.earliest[partition])
        if end[partition] < first and partition.topic not in start_ids.keys() & end_ids.keys():
            first = marks.earliest[partition]  # it was recreated, and what was read before is of another one
        first = max(first, marks.earliest[partition])
        topic_id = end_ids.get(partition.topic) or cluster.topic_ids.get(partition.topic)
        ranges.append(OffsetRange(*partition, first, end[partition], topic_id))
    return ranges


def _existing(
    cluster: Cluster,
    topics: Iterable[str] | None,
    known: Iterable[TopicPartition],
    *,
    must_exist: bool = False,
    topic_ids: Mapping[str, UUID] | None = None,
) -> set[TopicPartition]:
    """The existing partitions; brokers are asked in turn while one of `known` is missing or its topic was recreated.

    That ends after GONE_PATIENCE_S.
    """
    deadline = time.monotonic() + GONE_PATIENCE_S
    while True:
        found = cluster.partitions(topics, must_exist=must_exist)
        existing = {TopicPartition(topic, part) for topic, parts in found.items() for part in parts}
        is_as_known = existing.issuperset(known) and not recreated_topics(topic_ids or {}, cluster.topic_ids)
        if is_as_known or time.monotonic() > deadline:
            return existing
        cluster.rotate_bootstrap()
        time.sleep(0.2)


def bytes_per_offset(cluster: Cluster, positions: Positions) -> float:
    """The approximate bytes of one offset, from the first batches at these positions.

    Raises:
        ClusterError: a log is damaged there or has an old format, or no broker responds.
    """

    def sample() -> tuple[int, int]:
        size = span = 0
        for partition, offset in positions.items():
            connection = cluster.leader(partition)
            cluster.send_fetch(connection, {partition: offset}, 0, SAMPLE_BYTES)
            answer = connection.receive()
            assert isinstance(answer, FetchResponse)
            for topic in answer.responses:
                for part in topic.partitions:
                    fetched = memoryview(received(part.records))
                    with locating_errors(*partition, offset):
                        batches = list(whole_batches(fetched, check_crc=False))
                    if batches:
                        size += batches[-1].end
                        span += batches[-1].last_offset - batches[0].header.base_offset + 1
        return size, span

    size, span = cluster.retrying("a sample of its records", sample)
    return size / span if span else 1.0


def samples(cluster: Cluster, options: ReadOptions) -> list[bytes]:
    """Values of the newest records of each partition, SAMPLE_RECORDS of them or fewer; raises as reading does."""
    from pyspark_odradek.source.fetch import read_range
    from pyspark_odradek.source.schema import source_schema
    from pyspark_odradek.spark_api import arrow_schema

    schema = arrow_schema(source_schema(False))
    partitions = selected_partitions(cluster, options, must_exist=True)
    marks = offset_bounds(cluster, partitions)
    found: list[bytes] = []
    for partition in partitions:
        end = marks.latest[partition]
        start = max(marks.earliest[partition], end - SAMPLE_RECORDS // len(partitions) - 1)
        if start < end:
            wanted = OffsetRange(*partition, start, end)
            for batch in read_range(cluster.settings, wanted, schema, fail_on_data_loss=False):
                found += batch.column("value").drop_null().to_pylist()
    return found


def _covering(name: str, given: Offsets, partitions: list[TopicPartition]) -> Positions:
    offsets = dict(flat(given))
    missing, extra = set(partitions) - offsets.keys(), offsets.keys() - set(partitions)
    if missing or extra:
        text = ", ".join(f"{topic}-{part}" for topic, part in sorted(missing or extra))
        raise OptionError(f"{name} must name every partition that is read and no other; {text} is {_which(missing)}")
    return offsets


def _which(missing: set[TopicPartition]) -> str:
    return "missing" if missing else "not read by this query"


def _by_time(
    cluster: Cluster,
    options: ReadOptions,
    partitions: list[TopicPartition],
    marks: OffsetBounds,
    position: Timestamps,
    at_start: bool,
    until: Positions | None,
) -> Positions:
    if position.for_all_ms is not None:
        asked = dict.fromkeys(partitions, position.for_all_ms)
    else:
        name = "startingOffsetsByTimestamp" if at_start else "endingOffsetsByTimestamp"
        asked = _covering(name, position.by_partition_ms, partitions)
    found = cluster.list_offsets(asked)
    _refuse_backwards(found, until)
    resolved: Positions = {}
    for partition in partitions:
        offset = found.get(partition, -1)
        if offset < 0 and at_start and options.starting_strategy == "error":
            raise OptionError(
                f"{partition.topic}-{partition.partition_id} has no record at or after {asked[partition]} ms "
                "(startingOffsetsByTimestampStrategy=latest would start at its end)"
            )
        resolved[partition] = offset if offset >= 0 else marks.latest[partition]
    return resolved
