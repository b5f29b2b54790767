"""Checks the ends of a pipeline, its topics and sinks: whether topics exist, and whether options are valid.

Spark checks neither before a flow starts, and then tries it three times. The timeout of a cluster is short: one that
does not respond is reported and does not prevent the start, since the source waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from odradek.common.errors import ProtocolError
from pyspark_odradek.client.cluster import ClientSettings, Cluster, RetriableError
from pyspark_odradek.client.offsets import Positions, SourceOffset, find_lost, from_json, topic_ids_in
from pyspark_odradek.errors import ClusterError, LostRange, OptionError, describe
from pyspark_odradek.options import ReadOptions, kafka_settings, lowered, parse_read_options
from pyspark_odradek.pipelines.compatibility import Finding
from pyspark_odradek.source.planning import (
    lost_ranges,
    offset_bounds,
    recreated_topics,
    refuse_another_query,
    selected_partitions,
    without_topics,
)
from pyspark_odradek.topic_sink.sink_options import AT_LEAST_ONCE, SinkOptions, parse_sink_options
from pyspark_odradek.writers import stream_writer, table_writer

ANSWER_MS, RETRY_MS = 3000, 1000


@dataclass(frozen=True)
class End:
    """A source or a sink of a flow in the format `odradek`.

    Attributes:
        options: with lower-case names; they may contain secrets.
        schema: of the rows that are written, as Spark's JSON; None for a source.
        is_view: the flow has no stream of its own; the flows that read it have.
    """

    flow: str
    options: Mapping[str, str] = field(repr=False)
    schema: Any = None
    is_view: bool = False


@dataclass(frozen=True)
class CheckpointState:
    """The state of a flow's checkpoint: the offsets of each source of topics, and advice if it cannot continue."""

    offsets: Sequence[SourceOffset]
    advice: str


def check_ends(ends: Iterable[End], standing: Mapping[str, CheckpointState] | None = None) -> list[Finding]:
    """The problems of the ends, and of the checkpoints that continue there. Writes nothing to a cluster.

    Args:
        ends: of all flows.
        standing: flow -> its checkpoint, of flows that continue from one.
    """
    found: list[Finding] = []
    asked: dict[ClientSettings, list[_Needs]] = {}
    made: set[str] = set()
    for end in ends:
        try:
            ask = _needs_of(end)
        except OptionError as error:
            found.append(Finding(end.flow, str(error), stops=True))
            continue
        if ask is not None and ask.write is not None and ask.write.create_topic:
            made.update(ask.topics)
        elif ask is not None:
            asked.setdefault(ask.settings, []).append(ask)
    found += _shared_groups(asked.values())
    for settings, asks in asked.items():
        found += _check_cluster(settings, asks, made, standing or {})
    return found


def _shared_groups(asked: Iterable[Sequence[_Needs]]) -> list[Finding]:
    """Flows that commit as one group in one cluster, such as readers of a view whose source has a groupId."""
    found = []
    for asks in asked:
        flows: dict[str, set[str]] = {}
        for ask in asks:
            if ask.end.is_view or ask.read is None or ask.read.group_id is None or ask.read.gate is not None:
                continue
            flows.setdefault(ask.read.group_id, set()).add(ask.end.flow)
        found += [
            Finding(
                ", ".join(sorted(of_group)),
                f"report as one group, {group}, whose lag is then that of whichever committed last: give each flow a "
                "source with a groupId of its own",
            )
            for group, of_group in sorted(flows.items())
            if len(of_group) > 1
        ]
    return found


@dataclass(frozen=True)
class _Needs:
    """The needs of one end in a cluster; `read` has the options of a source, `write` those of a sink."""

    end: End
    settings: ClientSettings
    topics: list[str]
    read: ReadOptions | None = None
    write: SinkOptions | None = None

    def is_made_by_brokers(self) -> bool:
        """Whether brokers may create a missing topic when the sink requests its metadata, as librdkafka does."""
        write = self.write
        if write is None or write.delivery != AT_LEAST_ONCE:
            return False
        return write.kafka.get("allow.auto.create.topics", "true").lower() != "false"


def _needs_of(end: End) -> _Needs | None:
    """The cluster and the topics of an end. Raises OptionError, also for TLS and SASL."""
    if end.schema is None:
        options = parse_read_options(end.options, streaming=True)
        return _Needs(end, _reached_by(options.kafka), sorted({*options.topics, *options.assigned}), options)
    sink = lowered(end.options).get("sink", "topic").lower()
    if sink == "iceberg":  # to make that one opens its catalog
        table_writer(sink)
    else:
        from pyspark.sql.types import StructType

        placed = {"checkpointlocation": "/", **end.options} if sink == "topic" else end.options
        stream_writer(placed, StructType.fromJson(end.schema), False)
    if sink != "topic":
        return None
    write = parse_sink_options(end.options, streaming=True, overwrite=False)
    needed = [write.topic] if write.topic is not None else []
    return _Needs(end, _reached_by(kafka_settings(end.options)), needed, write=write)


def _reached_by(kafka: Mapping[str, str]) -> ClientSettings:
    """The checked client settings of a cluster: files exist, and settings agree. Raises OptionError."""
    settings = ClientSettings.parse(kafka)
    settings.security()
    return settings


def _missing(cluster: Cluster, ask: _Needs, topic: str) -> Finding:
    advice = f"`odradek topics create --topic {topic}` makes it"
    if ask.write is None:
        return Finding(ask.end.flow, f"reads topic {topic}, which does not exist: {advice}", stops=True)
    problem = f"writes to topic {topic}, which does not exist: {advice}, or the sink with createTopic=true"
    if not ask.is_made_by_brokers() or _makes_no_topics(cluster):
        return Finding(ask.end.flow, problem, stops=True)
    return Finding(ask.end.flow, f"{problem}; else the brokers have to (auto.create.topics.enable)")


def _makes_no_topics(cluster: Cluster) -> bool:
    """Whether a broker reports `auto.create.topics.enable=false`."""
    try:
        return cluster.broker_setting("auto.create.topics.enable") == "false"
    except (ClusterError, OSError, RetriableError, ProtocolError):
        return False


def _check_cluster(
    settings: ClientSettings, asks: Sequence[_Needs], made: set[str], standing: Mapping[str, CheckpointState]
) -> list[Finding]:
    """The problems of the ends in one cluster."""
    short = replace(
        settings,
        request_timeout_ms=min(settings.request_timeout_ms, ANSWER_MS),
        default_api_timeout_ms=min(settings.default_api_timeout_ms, RETRY_MS),
    )
    needed = _needed(asks, made)
    with closing(Cluster(short)) as cluster:
        try:
            there = cluster.partitions(needed) if needed else {}
            found = [_missing(cluster, ask, topic) for topic, ask in needed.items() if topic not in there]
            for ask in asks:
                if ask.read is not None and ask.end.flow in standing and not found:
                    found += _lost_records(cluster, ask.end.flow, ask.read, standing[ask.end.flow])
        except ClusterError as error:
            flows = ", ".join(sorted({ask.end.flow for ask in asks}))
            return [Finding(flows, f"the cluster was not looked at, and a run waits for it: {error}")]
    return found


def _needed(asks: Sequence[_Needs], made: set[str]) -> dict[str, _Needs]:
    """The topics that must exist, each with the end that needs it most."""
    needed: dict[str, _Needs] = {}
    for ask in sorted(asks, key=_Needs.is_made_by_brokers):
        needed |= {name: ask for name in ask.topics if name not in made | needed.keys()}
    return needed


def _lost_records(cluster: Cluster, flow: str, options: ReadOptions, standing: CheckpointState) -> list[Finding]:
    """A finding for each partition without the records that a checkpoint reads next. Raises ClusterError."""
    sources = [from_json(offset) for offset in standing.offsets]
    if len(sources) == 1:  # of several it is not known which one has these options
        try:
            refuse_another_query(options, sources[0])
        except OptionError as error:
            return [Finding(flow, f"{error}: {standing.advice}", stops=True)]
    ids = topic_ids_in(standing.offsets[0]) if len(sources) == 1 else {}
    lost = _lost_ranges(cluster, options, sources, ids)
    if not lost:
        return []
    problem = f"its checkpoint continues at offsets that do not exist: {describe(lost)}"
    if not options.fail_on_data_loss:
        return [Finding(flow, f"{problem}; it goes on with what is left (failOnDataLoss=false)")]
    return [Finding(flow, f"{problem}; {standing.advice}; failOnDataLoss=false goes on with what is left", stops=True)]


def _lost_ranges(
    cluster: Cluster, options: ReadOptions, sources: Sequence[Positions], ids: Mapping[str, UUID]
) -> list[LostRange]:
    known = {at: offset for one in sources for at, offset in one.items() if options.wants(*at)}
    partitions = selected_partitions(cluster, options, must_exist=False, topic_ids=ids)
    others = recreated_topics(ids, cluster.topic_ids)
    marks = offset_bounds(cluster, partitions)
    same = without_topics(known, others)
    return lost_ranges(known, others, marks, {}) + find_lost(same, marks.latest, marks.earliest, marks.latest)
