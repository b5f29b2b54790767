"""The options of the topic sink, and the columns that it takes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from odradek.record.batch import COMPRESSION_NAMES
from pyspark_odradek.client.cluster import Cluster
from pyspark_odradek.errors import OptionError
from pyspark_odradek.options import (
    LEVELS,
    READ_SETTINGS,
    WRITE_OPTIONS,
    boolean,
    check_names,
    count,
    kafka_settings,
    lease_name,
    lowered,
    number_setting,
    warn_of_unread_settings,
)
from pyspark_odradek.record.encode import BatchFormat
from pyspark_odradek.value_options import WrittenValues, written_values

if TYPE_CHECKING:
    from pyspark_odradek.values.framing import Framing

log = logging.getLogger("pyspark_odradek")

_TYPES: dict[str, tuple[type[DataType], str]] = {
    "topic": (StringType, "a string"),
    "partition": (IntegerType, "an int"),
    "timestamp": (TimestampType, "a timestamp"),
}
_HEADERS = "array<struct<key:string,value:binary>>"
COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")
# Columns of the source that a broker sets: INSERT INTO a table of this format cannot omit them.
OF_THE_BROKER = frozenset({"offset", "timestamptype"})
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
DRIVER, TASKS = "driver", "tasks"  # the writers of an exactly-once stream
# A task's transaction is open until the last task of its batch has ended, or until a dead driver is restarted: a
# timeout before that costs a repair. Consumers are blocked for so long only without a driver. Brokers allow 15 minutes.
TASKS_TIMEOUT_MS = 300_000
DEFAULT_PREFIX = "odradek-sink."
# Settings of Kafka's Java producer that the exactly-once sink honours, beside those of any client.
EXACT_SETTINGS = [
    *(name for name in READ_SETTINGS if not name.startswith(("fetch.", "max.partition", "isolation", "check."))),
    "acks",
    "enable.idempotence",
    "batch.size",
    "compression.type",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "transaction.timeout.ms",
]
_OFF = ("0", "1", "false")


@dataclass(frozen=True)
class SinkOptions:
    """A sink's options after validation."""

    delivery: str
    topic: str | None = None
    with_headers: bool = True
    staging_location: str | None = None
    transactional_id_prefix: str = DEFAULT_PREFIX
    marker_topic: str | None = None
    exactly_once_writers: str = DRIVER
    gate: str | None = None
    group_id: str = ""
    checkpoint: str = ""
    create_topic: bool = False
    topic_partitions: int = -1
    topic_replication_factor: int = -1
    topic_settings: dict[str, str] = field(default_factory=dict)
    kafka: dict[str, str] = field(default_factory=dict)
    values: WrittenValues | None = None

    @property
    def transaction_timeout_ms(self) -> int:
        default = TASKS_TIMEOUT_MS if self.exactly_once_writers == TASKS else 60_000
        return number_setting(self.kafka, "transaction.timeout.ms", default, 1)

    def batch_format(self) -> BatchFormat:
        """Codec, level and size of record batches. Raises OptionError."""
        codec = self.kafka.get("compression.type", "none").lower()
        if codec not in COMPRESSION_NAMES:
            raise OptionError(f"kafka.compression.type is one of {', '.join(COMPRESSION_NAMES)}, not {codec!r}")
        level = None
        if codec in LEVELS and f"compression.{codec}.level" in self.kafka:
            low, high = LEVELS[codec]
            level = number_setting(self.kafka, f"compression.{codec}.level", low, low, high)
        return BatchFormat(codec, level, number_setting(self.kafka, "batch.size", BatchFormat.batch_bytes, 1, 1 << 28))

    def columns(self, schema: StructType) -> dict[str, str]:
        """The columns to be written, with their types. Raises OptionError for other columns."""
        found = {field.name.lower(): field for field in schema}
        unknown = sorted(found.keys() - set(COLUMNS) - OF_THE_BROKER)
        if unknown:
            raise OptionError(
                f"the topic sink takes the columns {', '.join(COLUMNS)}; select away {', '.join(unknown)}"
            )
        if "value" not in found:
            raise OptionError(
                "the topic sink needs a column value, of type string or binary, or as valueFormat takes it"
            )
        if "topic" not in found and self.topic is None:
            raise OptionError("set the option topic, or give each row a column topic")
        types = {name: field.dataType for name, field in found.items()}
        _check_types(types, has_own_values=self.values is not None)
        left_out = set() if self.with_headers else {"headers"}
        return {name: types[name].simpleString() for name in COLUMNS if name in types.keys() - left_out}

    def framing(self, schema: StructType) -> Framing | None:
        """The encoder of the value column; None if it is binary. Raises OptionError, ClusterError."""
        if self.values is None:
            return None
        from pyspark_odradek.values.framing import framing_of

        return framing_of(self.values, next(field.dataType for field in schema if field.name.lower() == "value"))

    def ensure(self, cluster: Cluster, topic: str) -> None:
        """Create a missing topic, if the options allow it. Raises ClusterError."""
        if not self.create_topic or topic in cluster.partitions([topic]):
            return
        if cluster.create_topic(topic, self.topic_partitions, self.topic_replication_factor, self.topic_settings):
            log.warning("created topic %s", topic)

    def refuse_rows_among_markers(self, topics: Collection[str]) -> None:
        """Raise OptionError where rows go to the marker topic, which would lose them to its compaction."""
        if self.marker_topic is not None and self.marker_topic in topics:
            raise OptionError(
                f"rows go to the topic {self.marker_topic}, which is the option markerTopic: give the markers a topic "
                "of their own. Nothing of this batch was written"
            )

    def warn_of_unread_settings(self) -> None:
        """Say which `kafka.*` settings the exactly-once sink does not honour."""
        warn_of_unread_settings(self.kafka, EXACT_SETTINGS, "the exactly-once sink")


def _check_types(types: Mapping[str, DataType], *, has_own_values: bool) -> None:
    for name in ("key",) if has_own_values else ("key", "value"):
        if not isinstance(types.get(name, BinaryType()), StringType | BinaryType):
            raise OptionError(f"column {name} is {types[name].simpleString()}; cast it to string or binary")
    for name, (type_, words) in _TYPES.items():
        if not isinstance(types.get(name, type_()), type_):
            raise OptionError(f"column {name} must be {words}")
    if "headers" in types and types["headers"].simpleString() != _HEADERS:
        raise OptionError(f"column headers must be {_HEADERS}")


def parse_sink_options(given: Mapping[str, str], *, streaming: bool, overwrite: bool) -> SinkOptions:
    """Validate a sink's options; by default a stream is exactly-once, a batch at-least-once.

    Raises:
        OptionError: with the name of the option and its valid values.
    """
    options = lowered(given)
    check_names({name: value for name, value in options.items() if not name.startswith("topic.")}, WRITE_OPTIONS)
    if overwrite:
        raise OptionError("a topic cannot be overwritten; use mode append, or delete its records first")
    delivery = options.get("delivery", EXACTLY_ONCE if streaming else AT_LEAST_ONCE).lower()
    if delivery not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise OptionError(f"delivery is {EXACTLY_ONCE} or {AT_LEAST_ONCE}, not {delivery!r}")
    kafka = kafka_settings(options)
    if delivery == EXACTLY_ONCE:
        _refuse_contradictions(options, kafka)
    marker_topic = _marker_topic(options, delivery, streaming)
    new_topic = _new_topic(options, has_marker_topic=marker_topic is not None)
    staging = options.get("staginglocation")
    if staging is None and options.get("checkpointlocation"):
        staging = options["checkpointlocation"].rstrip("/") + "/odradek-staging"
    return SinkOptions(
        delivery=delivery,
        topic=options.get("topic") or None,
        with_headers=boolean(options, "includeHeaders", True),
        staging_location=staging,
        transactional_id_prefix=options.get("transactionalidprefix", DEFAULT_PREFIX),
        marker_topic=marker_topic,
        exactly_once_writers=_writers(options, delivery, streaming),
        gate=_gate(options, delivery, streaming),
        group_id=options.get("groupid", ""),
        checkpoint=options.get("checkpointlocation", "").rstrip("/"),
        kafka=kafka,
        values=written_values(options, options.get("topic") or None, kafka),
        **new_topic,
    )


def _new_topic(options: Mapping[str, str], *, has_marker_topic: bool) -> dict[str, Any]:
    """The settings of a created topic, if requested. Raises OptionError for options without effect."""
    create = boolean(options, "createTopic", False)
    partitions = count(options, "topicPartitions")
    replication_factor = count(options, "topicReplicationFactor")
    settings = {name[6:]: value for name, value in options.items() if name.startswith("topic.")}
    if not create:
        for given, name in ((partitions, "topicPartitions"), (settings, "topic.*")):
            if given:
                raise OptionError(f"{name} has an effect only with createTopic=true")
        if replication_factor and not has_marker_topic:
            raise OptionError("topicReplicationFactor has an effect only with createTopic=true or markerTopic")
    return {
        "create_topic": create,
        "topic_partitions": partitions or -1,
        "topic_replication_factor": replication_factor or -1,
        "topic_settings": settings,
    }


def _gate(options: Mapping[str, str], delivery: str, streaming: bool) -> str | None:
    """The name of the output lease, if there is one. Raises OptionError for incompatible options."""
    gate = lease_name(options)
    if gate is None:
        if "groupid" in options:
            raise OptionError("groupId has an effect on a sink only with the option gate")
        return None
    if not streaming or delivery != EXACTLY_ONCE:
        raise OptionError("gate needs a streaming query and delivery=exactly_once")
    if not options.get("checkpointlocation"):
        raise OptionError("gate needs the option checkpointLocation at the writer, not only in the session's settings")
    if "transactionalidprefix" in options:
        raise OptionError("gate names the transactional id; remove transactionalIdPrefix")
    return gate


def _marker_topic(options: Mapping[str, str], delivery: str, streaming: bool) -> str | None:
    """The marker topic, if there is one. Raises OptionError for incompatible options."""
    topic = options.get("markertopic")
    if topic is None:
        return None
    if not streaming or delivery != EXACTLY_ONCE:
        raise OptionError("markerTopic needs a streaming query and delivery=exactly_once: nothing else has a marker")
    if not topic:
        raise OptionError("markerTopic names no topic")
    if lease_name(options) is not None:
        raise OptionError("a gate itself marks batches; remove markerTopic")
    if topic == options.get("topic"):
        raise OptionError("markerTopic and topic are the same: give the markers a topic of their own")
    return topic


def _writers(options: Mapping[str, str], delivery: str, streaming: bool) -> str:
    """The writers to the brokers: the driver or tasks. Raises OptionError for incompatible options."""
    writers = options.get("exactlyoncewriters", DRIVER).lower()
    if writers not in (DRIVER, TASKS):
        raise OptionError(f"exactlyOnceWriters is {DRIVER} or {TASKS}, not {writers!r}")
    if writers == DRIVER:
        return writers
    if not streaming or delivery != EXACTLY_ONCE:
        raise OptionError("exactlyOnceWriters=tasks needs a streaming query and delivery=exactly_once")
    if lease_name(options) is not None:
        raise OptionError("with a gate the driver writes, who holds it; remove exactlyOnceWriters, or the gate")
    if not options.get("markertopic"):
        raise OptionError(
            "exactlyOnceWriters=tasks needs the option markerTopic: a record there names the transactions of a "
            "batch's tasks before the first one of them is committed"
        )
    return writers


def _refuse_contradictions(options: Mapping[str, str], kafka: Mapping[str, str]) -> None:
    if boolean(options, "asyncProgressTrackingEnabled", False):
        raise OptionError(
            "asyncProgressTrackingEnabled contradicts delivery=exactly_once: Spark must write down each batch before "
            "the next one; remove it, or set delivery=at_least_once"
        )
    if kafka.get("acks", "all") not in ("all", "-1"):
        raise OptionError("kafka.acks must be all with delivery=exactly_once")
    if kafka.get("enable.idempotence", "true").lower() in _OFF:
        raise OptionError("kafka.enable.idempotence must be true with delivery=exactly_once")
    if "transactional.id" in kafka:
        raise OptionError(
            "kafka.transactional.id is made of the query's id, so that a restarted query finds its own; "
            "set transactionalIdPrefix where access rules need a name of yours"
        )
