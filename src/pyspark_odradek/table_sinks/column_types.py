"""The stored types of columns with simple types in the sinks into tables; each sink has its own rule for decimals."""

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
    """The types of a simple Spark type in the tables.

    Attributes:
        iceberg: the name of a class of `pyiceberg.types`, as that package may not be installed.
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
    """The row of a Spark type or of a subclass; None for decimals and for nested types."""
    return next((each for each in SCALAR_TYPES if isinstance(type_, each.spark)), None)
