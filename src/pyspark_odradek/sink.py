"""The topic sink as asked for, and the one that is at-least-once; `exact_sink` has the other.

A task of the at-least-once sink produces through librdkafka with an idempotent producer and waits for every
acknowledgement (acks=all). A task or batch that Spark runs again writes its records again: that is what at-least-once
means, and the first batch of a query says so in the log. Readers that need each record once must tell by key or id.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.common.numbers import INT64_MAX
from pyspark_odradek.cluster import ClientSettings, shared_cluster
from pyspark_odradek.encode import refuse_before_1970
from pyspark_odradek.errors import ClusterError, OptionError
from pyspark_odradek.extras import needing
from pyspark_odradek.options import lowered
from pyspark_odradek.sink_options import EXACTLY_ONCE, LEVELS, TASKS, SinkOptions, number_setting, parse_sink_options
from pyspark_odradek.spark_api import DataSourceStreamArrowWriter

if TYPE_CHECKING:
    from pyspark_odradek.table_sink import TableStreamWriter

log = logging.getLogger("pyspark_odradek")

SINKS = ("topic", "delta", "iceberg", "postgres")
AT_LEAST_ONCE = (
    "the topic sink is at-least-once: a task or batch that runs again writes its records again; "
    "let readers tell them by key or id"
)
# What Kafka's Java producer knows and librdkafka does not, with what holds instead where that matters.
JAVA_ONLY = {
    "default.api.timeout.ms": "kafka.delivery.timeout.ms is the time of a record",
    "max.block.ms": "a task waits for room in the queue until kafka.delivery.timeout.ms is over",
    "partitioner.ignore.keys": "kafka.partitioner says where keys go",
    "socket.connection.setup.timeout.max.ms": "kafka.socket.connection.setup.timeout.ms is the time of each attempt",
    "ssl.enabled.protocols": "librdkafka takes the versions that OpenSSL has",
} | dict.fromkeys(
    (
        "auto.include.jmx.reporter",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "security.providers",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "transaction.two.phase.commit.enable",
    ),
    "librdkafka has no such setting",
)
# What Kafka's Java producer calls otherwise than librdkafka; None has no counterpart.
JAVA_NAMES: dict[str, str | None] = {
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "buffer.memory": None,
    "isolation.level": None,
} | dict.fromkeys(JAVA_ONLY)
DEFAULTS: dict[str, Any] = {
    "partitioner": "murmur2_random",
    "enable.idempotence": "true",
    "linger.ms": "10",
    "compression.type": "none",
    "message.max.bytes": "16777216",
    "queue.buffering.max.kbytes": "65536",
    "client.id": "odradek-spark",
    "delivery.report.only.error": True,
}
# What librdkafka says that was built without Kerberos.
NO_KERBEROS = "No provider for SASL mechanism GSSAPI"
POLL_EVERY = 1000  # records between two looks for delivery reports, which come for failures only


@dataclass
class Written(WriterCommitMessage):
    """How many records a task has had acknowledged."""

    records: int


class _Writer:
    """What both writers share; picklable."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.topic = options.topic
        self.columns = options.columns(schema)
        self._made: set[str] = set()
        self._producer()  # a wrong setting is reported here and not by the first task
        for name in sorted(JAVA_ONLY.keys() & options.kafka.keys()):
            log.warning("kafka.%s has no effect on the at-least-once sink: %s", name, JAVA_ONLY[name])

    def write(self, iterator: Iterator[Any]) -> Written:
        """Produce all rows of a task and wait until each is acknowledged. Raises ClusterError, OptionError."""
        delivery = _Delivery()
        producer = self._producer()
        for batch in iterator:
            self._produce(producer, batch, delivery)
        while producer.flush(1.0) and not delivery.failures:
            continue  # delivery.timeout.ms ends it: every record is acknowledged or failed by then
        delivery.check()
        return Written(delivery.produced)

    def _producer(self) -> Producer:
        try:
            return Producer(producer_config(self.options.kafka), logger=log)
        except KafkaException as error:
            text = error.args[0].str()
            if NO_KERBEROS in text:
                text = f"{NO_KERBEROS}, as that of confluent-kafka's wheel; delivery=exactly_once needs no librdkafka"
            raise OptionError(f"kafka.*: {text}") from None

    def _produce(self, producer: Producer, batch: Any, delivery: _Delivery) -> None:
        names = {name.lower(): name for name in batch.schema.names}
        lists = {column: batch.column(names[column]).to_pylist() for column in self.columns}
        count = batch.num_rows
        keys, values = _as_bytes(lists.get("key"), count), _as_bytes(lists["value"], count)
        topics = [self.topic] * count if self.topic is not None else lists["topic"]
        self._make(set(topics))
        times = _as_ms(batch.column(names["timestamp"])) if "timestamp" in self.columns else [0] * count
        partitions, headers = lists.get("partition", [None] * count), lists.get("headers", [None] * count)
        rows = zip(keys, values, topics, partitions, headers, times, strict=True)
        for number, (key, value, topic, partition, pairs, time_ms) in enumerate(rows):
            if topic is None:
                raise OptionError("a row has no topic: its column topic is null, and the option topic is not set")
            extra: dict[str, Any] = {} if partition is None else {"partition": partition}
            if pairs:
                extra["headers"] = [(pair["key"], pair["value"]) for pair in pairs]
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=delivery, timestamp=time_ms, **extra)
                    break
                except BufferError:
                    producer.poll(0.1)
                except KafkaException as error:
                    raise ClusterError(
                        f"a record for topic {topic} cannot be produced: {error.args[0].str()}"
                    ) from None
            if number % POLL_EVERY == 0:
                producer.poll(0)
        producer.poll(0)
        delivery.check()
        delivery.produced += count

    def _make(self, topics: set[str | None]) -> None:
        """Create those that do not exist, where the options say so."""
        if not self.options.create_topic:
            return
        for topic in sorted(filter(None, topics - self._made)):
            self.options.ensure(shared_cluster(ClientSettings.parse(self.options.kafka)), topic)
            self._made.add(topic)


class _Delivery:
    """Counts what was produced and keeps the first failures; what has not failed when a flush ends is acknowledged."""

    def __init__(self) -> None:
        self.produced = 0
        self.failures: list[str] = []

    def __call__(self, error: Any, message: Any) -> None:
        if error is not None and len(self.failures) < 3:
            self.failures.append(f"{message.topic()}: {error.str()}")

    def check(self) -> None:
        """Raise ClusterError where a record was refused."""
        if self.failures:
            raise ClusterError(f"records were not acknowledged: {'; '.join(self.failures)}")


class TopicWriter(_Writer, DataSourceArrowWriter):
    """`df.write.format("odradek").mode("append")`."""


class StreamTopicWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("odradek")`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing to do: what the tasks wrote is acknowledged already."""
        if batchId == 0:
            log.warning("%s", AT_LEAST_ONCE)


def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of `df.write`. Raises OptionError."""
    if _sink(given) != "topic":
        raise OptionError(f"sink={_sink(given)} is for streams; a batch query needs no marker, and has other writers")
    options = parse_sink_options(given, streaming=False, overwrite=overwrite)
    if options.delivery == EXACTLY_ONCE:
        from pyspark_odradek.exact_sink import ExactBatchWriter

        return ExactBatchWriter(options, schema)
    return TopicWriter(options, schema)


def stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """The writer of `df.writeStream`. Raises OptionError."""
    sink = _sink(given)
    if sink != "topic":
        return table_writer(sink)(given, schema, overwrite=overwrite)
    # Spark says overwrite for the output mode complete; a topic then gets all rows of each batch, as with Spark's.
    options = parse_sink_options(given, streaming=True, overwrite=False)
    if options.exactly_once_writers == TASKS:
        from pyspark_odradek.task_writers.sink import TaskWritersStreamWriter

        return TaskWritersStreamWriter(options, schema)
    if options.delivery == EXACTLY_ONCE:
        from pyspark_odradek.exact_sink import ExactStreamWriter

        return ExactStreamWriter(options, schema)
    return StreamTopicWriter(options, schema)


def table_writer(sink: str) -> type[TableStreamWriter]:
    """The writer of one of the sinks into tables. Raises OptionError where a package that it needs is missing."""
    with needing(sink, f"sink={sink}"):
        if sink == "delta":
            from pyspark_odradek.delta_sink import DeltaStreamWriter

            return DeltaStreamWriter
        if sink == "iceberg":
            from pyspark_odradek.iceberg_sink import IcebergStreamWriter

            return IcebergStreamWriter
        from pyspark_odradek.postgres_sink import PostgresStreamWriter

        return PostgresStreamWriter


def _sink(given: Mapping[str, str]) -> str:
    name = lowered(given).get("sink", SINKS[0]).lower()
    if name not in SINKS:
        raise OptionError(f"sink is one of {', '.join(SINKS)}, not {name!r}")
    return name


def producer_config(settings: Mapping[str, str]) -> dict[str, Any]:
    """Settings of Kafka's Java producer, or of librdkafka, as a configuration of librdkafka."""
    config = dict(DEFAULTS)
    if settings.get("acks", "all") not in ("all", "-1") and "enable.idempotence" not in settings:
        config["enable.idempotence"] = "false"
    return config | translated(settings)


def client_config(settings: Mapping[str, str]) -> dict[str, Any]:
    """What of these settings says how to reach a cluster, as a configuration of librdkafka."""
    reaching = ("bootstrap.servers", "client.id", "security.", "ssl.", "sasl.", "https.")
    return {"client.id": DEFAULTS["client.id"]} | translated(
        {name: value for name, value in settings.items() if name.startswith(reaching)}
    )


def translated(settings: Mapping[str, str]) -> dict[str, Any]:
    """Settings by the names that librdkafka has for them. Raises OptionError."""
    from odradek.client.sasl import SaslSettingError
    from odradek.security.client.settings import librdkafka_settings
    from odradek.security.tls.config import TlsSettingError

    named = {JAVA_NAMES.get(name, name): value for name, value in settings.items()}
    if "buffer.memory" in settings:
        memory_bytes = number_setting(settings, "buffer.memory", 1 << 25, 1024, INT64_MAX)
        named["queue.buffering.max.kbytes"] = str(memory_bytes >> 10)
    levels = {codec: named.pop(f"compression.{codec}.level", None) for codec in LEVELS}
    level = levels.get(settings.get("compression.type", "none").lower())
    if level is not None:
        named["compression.level"] = level
    try:
        return librdkafka_settings({name: value for name, value in named.items() if name is not None})
    except (SaslSettingError, TlsSettingError) as error:
        raise OptionError(f"kafka.{error}") from None


def _as_ms(times: Any) -> list[int]:
    """ms since 1970 UTC; librdkafka takes 0 for now."""
    micros = times.cast(pa.int64())
    refuse_before_1970(micros)
    return [0 if each is None else each // 1000 for each in micros.to_pylist()]


def _as_bytes(values: list[Any] | None, count: int) -> list[Any]:
    """librdkafka takes text and bytes alike; a missing column is all nulls."""
    return [None] * count if values is None else values
