"""The at-least-once topic sink; `exact_sink` has the exactly-once one.

A task produces through librdkafka with an idempotent producer and waits for every
acknowledgement (acks=all). A task or batch that Spark runs again writes its records again, which the first batch of
a query logs. Consumers that need each record once must recognize repeats by a key or an id.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_odradek.client.cluster import ClientSettings, shared_cluster
from pyspark_odradek.client.librdkafka import JAVA_ONLY, producer_config
from pyspark_odradek.errors import ClusterError, OptionError
from pyspark_odradek.record.encode import refuse_before_1970
from pyspark_odradek.spark_api import DataSourceStreamArrowWriter
from pyspark_odradek.topic_sink.sink_options import SinkOptions

log = logging.getLogger("pyspark_odradek")

AT_LEAST_ONCE = (
    "the topic sink is at-least-once: a task or batch that runs again writes its records again; "
    "let readers tell them by key or id"
)
# The error of librdkafka if it was built without Kerberos.
NO_KERBEROS = "No provider for SASL mechanism GSSAPI"
POLL_EVERY = 1000  # records between two looks for delivery reports, which come for failures only


@dataclass
class Written(WriterCommitMessage):
    """The number of acknowledged records of a task."""

    records: int


class _Writer:
    """The common part of both writers; picklable."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.topic = options.topic
        self.columns = options.columns(schema)
        self._made: set[str] = set()
        self._producer()  # a wrong setting is reported here and not by the first task
        self.framing = options.framing(schema)  # behind all checks, since it may register a schema
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
        lists = {column: self._column(batch, column, names[column]).to_pylist() for column in self.columns}
        count = batch.num_rows
        keys, values = lists.get("key", [None] * count), lists["value"]
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

    def _column(self, batch: Any, column: str, name: str) -> Any:
        found = batch.column(name)
        return self.framing.encode(found) if self.framing is not None and column == "value" else found

    def _make(self, topics: set[str | None]) -> None:
        """Create missing topics, if the options allow it."""
        if not self.options.create_topic:
            return
        for topic in sorted(filter(None, topics - self._made)):
            self.options.ensure(shared_cluster(ClientSettings.parse(self.options.kafka)), topic)
            self._made.add(topic)


class _Delivery:
    """Counts produced records, and stores the first errors.

    After a flush all records without an error are acknowledged.
    """

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
        """Nothing to do: the records of the tasks are acknowledged already."""
        if batchId == 0:
            log.warning("%s", AT_LEAST_ONCE)


def _as_ms(times: Any) -> list[int]:
    """ms since 1970 UTC; librdkafka takes 0 for now."""
    micros = times.cast(pa.int64())
    refuse_before_1970(micros)
    return [0 if each is None else each // 1000 for each in micros.to_pylist()]
