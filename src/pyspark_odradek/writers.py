"""The writer of a query, by its options: of topics, of tables, or of an output that it shares with others.

Each is imported where a query asks for it: none needs what the others need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import StructType

from pyspark_odradek.errors import OptionError
from pyspark_odradek.extras import needing
from pyspark_odradek.options import lowered
from pyspark_odradek.spark_api import DataSourceStreamArrowWriter
from pyspark_odradek.topic_sink.sink_options import EXACTLY_ONCE, TASKS, parse_sink_options

if TYPE_CHECKING:
    from pyspark_odradek.table_sinks.table_sink import TableStreamWriter

SINKS = ("topic", "delta", "iceberg", "postgres")


def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of `df.write`. Raises OptionError."""
    if _sink(given) != "topic":
        raise OptionError(f"sink={_sink(given)} is for streams; a batch query needs no marker, and has other writers")
    options = parse_sink_options(given, streaming=False, overwrite=overwrite)
    if options.delivery == EXACTLY_ONCE:
        from pyspark_odradek.topic_sink.exact_sink import ExactBatchWriter

        return ExactBatchWriter(options, schema)
    from pyspark_odradek.topic_sink.at_least_once import TopicWriter

    return TopicWriter(options, schema)


def stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """The writer of `df.writeStream`. Raises OptionError."""
    sink = _sink(given)
    if sink != "topic":
        return table_writer(sink)(given, schema, overwrite=overwrite)
    # Spark says overwrite for the output mode complete; a topic then gets all rows of each batch, as with Spark's.
    options = parse_sink_options(given, streaming=True, overwrite=False)
    if options.exactly_once_writers == TASKS:
        from pyspark_odradek.topic_sink.task_writers.sink import TaskWritersStreamWriter

        return TaskWritersStreamWriter(options, schema)
    if options.gate is not None:
        from pyspark_odradek.standby.sink import LeasedStreamWriter

        return LeasedStreamWriter(options, schema)
    if options.delivery == EXACTLY_ONCE:
        from pyspark_odradek.topic_sink.exact_sink import ExactStreamWriter

        return ExactStreamWriter(options, schema)
    from pyspark_odradek.topic_sink.at_least_once import StreamTopicWriter

    return StreamTopicWriter(options, schema)


def table_writer(sink: str) -> type[TableStreamWriter]:
    """The writer of one of the sinks into tables. Raises OptionError where a package that it needs is missing."""
    with needing(sink, f"sink={sink}"):
        if sink == "delta":
            from pyspark_odradek.table_sinks.delta_sink import DeltaStreamWriter

            return DeltaStreamWriter
        if sink == "iceberg":
            from pyspark_odradek.table_sinks.iceberg_sink import IcebergStreamWriter

            return IcebergStreamWriter
        from pyspark_odradek.table_sinks.postgres_sink import PostgresStreamWriter

        return PostgresStreamWriter


def _sink(given: Mapping[str, str]) -> str:
    name = lowered(given).get("sink", SINKS[0]).lower()
    if name not in SINKS:
        raise OptionError(f"sink is one of {', '.join(SINKS)}, not {name!r}")
    return name
