"""The columns of the source."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_FIELDS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]


def source_schema(include_headers: bool) -> StructType:
    """The columns of Spark's Kafka source; `headers` only if requested."""
    headers = [StructField("headers", ArrayType(_HEADER))] if include_headers else []
    return StructType([*_FIELDS, *headers])


def with_value(schema: StructType, value: StructType) -> StructType:
    """The same columns with a value that is decoded."""
    fields = [StructField("value", value) if field.name == "value" else field for field in schema]
    return StructType(fields)
