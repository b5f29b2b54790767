"""Decodes values in a task, and handles records that do not decode.

A record that does not decode ends the query, or gets a null value, or is sent to another topic with the reason in its
headers and is skipped; the options `badRecords` and `deadLetterTopic` decide.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, Producer

from pyspark_odradek.errors import BadRecordError, ClusterError, OptionError
from pyspark_odradek.extras import needing
from pyspark_odradek.options import ReadOptions
from pyspark_odradek.values.frame import BehindFrame

log = logging.getLogger("pyspark_odradek")

REASON, TOPIC, PARTITION, OFFSET = (f"odradek.{name}" for name in ("reason", "topic", "partition", "offset"))
FLUSH_S = 120.0


class Values(Protocol):
    """Decodes a column of values."""

    def decode(self, values: Any) -> tuple[Any, dict[int, str]]:
        """Decode values; returns (an array of structs, reasons by row of invalid values)."""


def decoded(batches: Iterator[Any], options: ReadOptions, schema: Any) -> Iterator[Any]:
    """Batches of raw records, headers included, as batches of `schema`.

    Raises:
        BadRecordError: a record does not decode, and there are no dead letters.
        ClusterError: dead letters were not acknowledged.
    """
    values = decoder(options, schema.field("value").type)
    letters = DeadLetters(options.kafka, options.dead_letter_topic) if options.dead_letter_topic else None
    for batch in batches:
        column, wrong = values.decode(batch.column("value"))
        if wrong and letters is not None:
            letters.send(batch, wrong)
            right = _all_but(wrong, batch.num_rows)
            batch, column = batch.filter(right), column.filter(right)
        elif wrong and options.bad_records == "fail":
            raise BadRecordError(_reported(batch, wrong))
        columns = [column if name == "value" else batch.column(name) for name in schema.names]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
    if letters is not None:
        letters.finish()


def _all_but(rows: Iterable[int], count: int) -> Any:
    """A mask without these rows."""
    keep = np.ones(count, np.bool_)
    keep[list(rows)] = False
    return pa.array(keep)


def decoder(options: ReadOptions, wanted: Any) -> Values:
    """The decoder for the values of a query."""
    if options.value_format == "json":
        from pyspark_odradek.values.json_values import JsonValues

        return JsonValues(wanted) if options.registry is None else BehindFrame(JsonValues(wanted))
    assert options.value_schema is not None
    if options.value_format == "protobuf":
        with needing("protobuf", "valueFormat=protobuf"):
            from pyspark_odradek.values.protobuf_values import ProtobufValues

        found = ProtobufValues(options.value_schema, options.value_message, wanted)
        return found if options.registry is None else BehindFrame(found, found.place)
    with needing("avro", "valueFormat=avro"):
        from pyspark_odradek.values.avro_values import AvroValues

    if options.registry is None:
        return AvroValues(options.value_schema, wanted)
    from pyspark_odradek.values.framed_values import FramedValues
    from pyspark_odradek.values.registry import Registry

    return FramedValues(Registry(options.registry), options.value_schema, wanted)


class DeadLetters:
    """Sends records to a topic as they are, with reason and origin as headers beside their own; at least once."""

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        from pyspark_odradek.client.librdkafka import client_config, producer_config

        self._topic = topic
        self._failures: list[str] = []
        try:
            self._producer = Producer(producer_config({}) | client_config(settings), logger=log)
        except KafkaException as error:
            raise OptionError(f"kafka.*: {error.args[0].str()}") from None

    def send(self, batch: Any, wrong: Mapping[int, str]) -> None:
        """Send the invalid rows of a batch, with their reasons."""
        rows = sorted(wrong)
        chosen = batch.take(pa.array(rows))
        times_ms = pc.divide(chosen.column("timestamp").cast(pa.int64()), 1000).to_pylist()
        chosen = chosen.drop_columns(["timestamp"])  # a year that Python has not would end the query
        for number, time_ms, row in zip(rows, times_ms, chosen.to_pylist(), strict=True):
            self._one(row, time_ms, wrong[number])

    def _one(self, row: Mapping[str, Any], time_ms: int, reason: str) -> None:
        own = [(pair["key"], pair["value"]) for pair in row["headers"] or ()]
        origin = [
            (REASON, reason),
            (TOPIC, row["topic"]),
            (PARTITION, str(row["partition"])),
            (OFFSET, str(row["offset"])),
        ]
        headers = [*own, *((name, text.encode()) for name, text in origin)]
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    row["value"],
                    row["key"],
                    headers=headers,
                    timestamp=max(time_ms, 0),  # librdkafka takes 0 for now
                    on_delivery=self._noted,
                )
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise ClusterError(f"a dead letter cannot be sent to {self._topic}: {error.args[0].str()}") from None

    def finish(self) -> None:
        """Wait until all are acknowledged. Raises ClusterError."""
        left = self._producer.flush(FLUSH_S)
        if self._failures or left:
            why = "; ".join(self._failures) or f"{left} were not acknowledged in {FLUSH_S:g} s"
            raise ClusterError(f"dead letters did not reach topic {self._topic}: {why}")

    def _noted(self, error: Any, _: Any) -> None:
        if error is not None and len(self._failures) < 3:
            self._failures.append(error.str())


def _reported(batch: Any, wrong: Mapping[int, str]) -> str:
    row = min(wrong)
    topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    more = f" (and {len(wrong) - 1} more near it)" if len(wrong) > 1 else ""
    return (
        f"{topic}-{partition}, offset {offset}: {wrong[row]}{more}. Set deadLetterTopic to put such records aside, or "
        "badRecords=null to have a null in their place."
    )
