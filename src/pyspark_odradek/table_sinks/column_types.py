"""Types of columns that have no types within, as the sinks into tables store them; decimals are each sink's own."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)


class ScalarType(NamedTuple):
    """One row.

    Attributes:
        iceberg: a class of `pyiceberg.types`, by name, as that package may not be there.
        postgresql: the type in SQL.
    """

    spark: type[DataType]
    iceberg: str
    postgresql: str


SCALAR_TYPES = (
    ScalarType(BooleanType, "BooleanType", "boolean"),
    ScalarType(ByteType, "IntegerType", "smallint"),
    ScalarType(ShortType, "IntegerType", "smallint"),
    ScalarType(IntegerType, "IntegerType", "integer"),
    ScalarType(LongType, "LongType", "bigint"),
    ScalarType(FloatType, "FloatType", "real"),
    ScalarType(DoubleType, "DoubleType", "double precision"),
    ScalarType(StringType, "StringType", "text"),
    ScalarType(BinaryType, "BinaryType", "bytea"),
    ScalarType(DateType, "DateType", "date"),
    ScalarType(TimestampType, "TimestamptzType", "timestamptz"),
    ScalarType(TimestampNTZType, "TimestampType", "timestamp"),
)


def scalar_type(type_: DataType) -> ScalarType | None:
    """The row of a type of Spark, or of one that is derived from it; None for decimals and what has types within."""
    return next((each for each in SCALAR_TYPES if isinstance(type_, each.spark)), None)
