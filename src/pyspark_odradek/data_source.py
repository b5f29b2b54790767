"""The format `odradek` for Spark: a batch and a streaming source, and a topic sink, over any Kafka cluster.

Modules for reading and writing are imported where they are needed: Spark starts a Python process to find the format,
another one to ask for its columns, and more to plan and to run, and each would import all of it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pyspark_odradek import sql_table
from pyspark_odradek.errors import OptionError
from pyspark_odradek.extras import needing
from pyspark_odradek.options import ReadOptions, parse_read_options
from pyspark_odradek.source.schema import source_schema, with_value

if TYPE_CHECKING:
    from pyspark_odradek.standby.source import LeasedSource

log = logging.getLogger("pyspark_odradek")


class OdradekDataSource(DataSource):
    """`spark.read.format("odradek")` and its three siblings; found by Spark through `pyspark_odradek.DefaultSource`."""

    @classmethod
    def name(cls) -> str:
        return "odradek"

    def schema(self) -> StructType:
        """Fixed, but for `includeHeaders`, which adds a column, and `valueFormat`, which decodes another.

        Wrong options are reported here, when `load()` is called. A table of SQL keeps its options (`sql_table`).

        Raises:
            OptionError: the options make neither a batch nor a streaming query, or no schema can be inferred.
        """
        for streaming in (True, False):  # Spark has not said yet which of them it will ask for
            try:
                options = parse_read_options(self.options, streaming=streaming)
                break
            except OptionError as error:
                refusal = error
        else:
            raise refusal from None
        options = with_registered_schema(options)
        schema = source_schema(options.include_headers)
        if options.value_format != "binary":
            schema = decoded_schema(options, schema)
        given = dict(self.options.items())
        if not sql_table.is_of_a_table(given):
            return schema
        return sql_table.with_options(schema, given)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader. Raises OptionError."""
        from pyspark_odradek.source.readers import BatchReader

        given = sql_table.to_read(schema, dict(self.options.items()))
        options = self_contained(parse_read_options(given, streaming=False))
        return BatchReader(options, self._own(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A streaming reader. Raises OptionError."""
        from pyspark_odradek.spark_api import HAS_ADMISSION_CONTROL

        if HAS_ADMISSION_CONTROL:
            from pyspark_odradek.source.readers import StreamReader
        else:
            from pyspark_odradek.source.earlier_reader import EarlierStreamReader as StreamReader

        given = sql_table.to_read(schema, dict(self.options.items()))
        options = self_contained(parse_read_options(given, streaming=True))
        return StreamReader(options, self._own(options, schema), lease_of(options))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """A batch writer to topics, at-least-once where the options say nothing else. Raises OptionError."""
        from pyspark_odradek.writers import batch_writer

        return batch_writer(sql_table.to_write(schema, dict(self.options.items())), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        """A streaming writer to topics, exactly-once where the options say nothing else. Raises OptionError."""
        from pyspark_odradek.writers import stream_writer

        return stream_writer(sql_table.to_write(schema, dict(self.options.items())), schema, overwrite)

    def _own(self, options: ReadOptions, schema: StructType) -> StructType:
        own = source_schema(options.include_headers)
        if [field.name for field in schema] != [field.name for field in own]:
            raise OptionError(f"the format odradek has its own schema, {own.simpleString()}; give none")
        value = schema["value"].dataType
        if options.value_format == "protobuf" and options.value_schema is not None and isinstance(value, StructType):
            from pyspark_odradek.values.protobuf_values import refuse_other_types

            refuse_other_types(value, options.value_schema, options.value_message)
        return with_value(own, value) if isinstance(value, StructType) else own


def lease_of(options: ReadOptions) -> LeasedSource | None:
    """The end of the reads of a query that shares its output with others; None where it has no gate."""
    if options.gate is None:
        return None
    from pyspark_odradek.standby.source import LeasedSource

    return LeasedSource(options)


def decoded_schema(options: ReadOptions, schema: StructType) -> StructType:
    """The columns with a value as the options decode it. Raises OptionError."""
    if options.value_format == "avro":
        with needing("avro", "valueFormat=avro"):
            from pyspark_odradek.values.avro_values import spark_schema

        assert options.value_schema is not None
        return with_value(schema, spark_schema(options.value_schema))
    if options.value_format == "protobuf":
        with needing("protobuf", "valueFormat=protobuf"):
            from pyspark_odradek.values import protobuf_values

        assert options.value_schema is not None
        return with_value(schema, protobuf_values.spark_schema(options.value_schema, options.value_message))
    if options.value_schema is None:
        from pyspark_odradek.client.cluster import ClientSettings, shared_cluster
        from pyspark_odradek.source.planning import samples
        from pyspark_odradek.values.frame import HEAD_BYTES, schema_id_of
        from pyspark_odradek.values.json_values import infer

        found = samples(shared_cluster(ClientSettings.parse(options.kafka)), options)
        if options.registry is not None:
            found = [value[HEAD_BYTES:] for value in found if schema_id_of(value) is not None]
        value = infer(found)
        log.warning("inferred valueSchema %s; give it as an option to keep it", value.json())
        return with_value(schema, value)
    from pyspark_odradek.values.value_schema import parse

    return with_value(schema, parse(options.value_schema))


def with_registered_schema(options: ReadOptions) -> ReadOptions:
    """With the newest schema of the subject, where the options say a registry and no schema.

    A given schema has in it what the option schemaRegistryReferences names.

    Raises:
        OptionError: the registry has none, or not what it refers to.
        ClusterError: it refuses, or does not answer.
    """
    if options.registry is None or (options.registry_subject is None and options.registry_references is None):
        return options
    from pyspark_odradek.values.registry import Registry, no_subject, parse_references

    registry = Registry(options.registry)
    if options.value_schema is not None:
        schema = registry.whole(options.value_schema, parse_references(options.registry_references))
        return replace(options, value_schema=schema, registry_references=None)
    assert options.registry_subject is not None
    if options.value_format == "avro":
        return replace(options, value_schema=registry.newest(options.registry_subject))
    with needing("protobuf", "valueFormat=protobuf"):
        from pyspark_odradek.values.protobuf_files import newest
    found = newest(registry, options.registry_subject)
    if found is None:
        raise no_subject(options.registry_subject)
    return replace(options, value_schema=found.schema)


def self_contained(options: ReadOptions) -> ReadOptions:
    """Options that need no file of the driver and no newest schema, since they go to executors. Raises OptionError."""
    options = with_registered_schema(options)
    if options.value_format != "protobuf" or options.value_schema is None:
        return options
    from pyspark_odradek.values.protobuf_values import embedded

    return replace(options, value_schema=embedded(options.value_schema))
