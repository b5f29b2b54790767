"""Columns of structs to values in Avro's binary encoding, by a schema whose types hold each value of the columns.

fastavro writes the bytes. A field without a column takes its default, or null; a column without a field is refused,
since it would be lost. Source: the Avro specification, 1.12.
"""

from __future__ import annotations

import io
import json
import re
import struct
from typing import Any

import fastavro
import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's own documentation gives it

from pyspark_odradek.errors import OptionError
from pyspark_odradek.values.avro_values import (
    NO_DEFAULT,
    Change,
    Type,
    each,
    in_fields,
    known_to_fastavro,
    parse,
    unless_null,
)

RECORD = "value"  # the name of the outermost record of a schema that is made of columns
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNFIT = (AttributeError, ArithmeticError, KeyError, TypeError, ValueError, struct.error)
_SMALL = (T.IntegerType, T.LongType, T.FloatType, T.DoubleType)
# The types of a field that hold each value of a column, by the column's.
_HOLD: dict[type[T.DataType], tuple[type[T.DataType], ...]] = {
    T.BooleanType: (T.BooleanType,),
    T.ByteType: _SMALL,
    T.ShortType: _SMALL,
    T.IntegerType: (T.IntegerType, T.LongType, T.DoubleType),
    T.LongType: (T.LongType,),
    T.FloatType: (T.FloatType, T.DoubleType),
    T.DoubleType: (T.DoubleType,),
    T.StringType: (T.StringType,),
    T.BinaryType: (T.BinaryType,),
    T.DateType: (T.DateType,),
    T.TimestampType: (T.TimestampType,),
    T.TimestampNTZType: (T.TimestampNTZType,),
}
# The Avro type of a column in a generated schema.
_MADE: dict[type[T.DataType], Any] = {
    T.BooleanType: "boolean",
    T.ByteType: "int",
    T.ShortType: "int",
    T.IntegerType: "int",
    T.LongType: "long",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.StringType: "string",
    T.BinaryType: "bytes",
    T.DateType: {"type": "int", "logicalType": "date"},
    T.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    T.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


class AvroRows:
    """Encodes structs of these columns by a schema, in JSON, that `refuse_unfit` has let pass."""

    def __init__(self, columns: T.StructType, schema: str) -> None:
        self._schema = known_to_fastavro(json.loads(schema))
        self._change = _change_of(columns)

    def encode(self, column: Any, head: bytes) -> Any:
        """An array of bytes, each with `head` before it, and nulls where structs are null. Raises OptionError."""
        data = io.BytesIO()
        values: list[bytes | None] = []
        try:
            for row in column.to_pylist():
                if row is None:
                    values.append(None)
                    continue
                data.seek(0)
                data.truncate()
                data.write(head)
                fastavro.schemaless_writer(data, self._schema, row if self._change is None else self._change(row))
                values.append(data.getvalue())
        except _UNFIT as error:
            raise OptionError(f"a row does not fit the schema of the values: {str(error)[:300]}") from None
        return pa.array(values, pa.binary())


def refuse_unfit(columns: T.StructType, schema: str) -> None:
    """Raise OptionError where the schema cannot be written, or one of its types does not hold all of its column."""
    found = parse(schema)
    known_to_fastavro(json.loads(schema))
    _compare(columns, found, "value")


def _compare(column: T.DataType, field: Type, where: str) -> None:
    if isinstance(column, T.StructType) and isinstance(field.spark, T.StructType):
        _compare_fields(column, field, where)
    elif isinstance(column, T.ArrayType) and isinstance(field.spark, T.ArrayType):
        assert field.item is not None
        _compare(column.elementType, field.item, f"{where}[]")
    elif isinstance(column, T.MapType) and isinstance(field.spark, T.MapType) and _is_text(column.keyType):
        assert field.item is not None
        _compare(column.valueType, field.item, f"{where}[]")
    elif not _holds(field, column):
        raise OptionError(
            f"{where} is {column.simpleString()} and {field.spark.simpleString()} in the schema of the values, which "
            "does not hold each of its values as it is: cast it"
        )


def _compare_fields(columns: T.StructType, record: Type, where: str) -> None:
    fields = {field.name: field for field in record.fields}
    for column in columns:
        if column.name not in fields:
            raise OptionError(f"{where}.{column.name} is in no field of the schema of the values: select it away")
        _compare(column.dataType, fields[column.name].type, f"{where}.{column.name}")
    given = set(columns.names)
    for field in record.fields:
        if field.name not in given and field.default is NO_DEFAULT and not _may_be_null(field.type):
            raise OptionError(
                f"{where} has no column {field.name}, which the schema of the values has, without a default"
            )


def _holds(field: Type, column: T.DataType) -> bool:
    spark = field.spark
    if isinstance(column, T.NullType):
        return _may_be_null(field)
    if isinstance(column, T.DecimalType):
        if not isinstance(spark, T.DecimalType) or spark.scale < column.scale:
            return False
        return spark.precision - spark.scale >= column.precision - column.scale
    if _is_text(column) and "fixed" in [base.get("type") for base in _bases(field) if isinstance(base, dict)]:
        return False  # a uuid in 16 bytes
    return isinstance(spark, _HOLD.get(type(column), ()))


def _bases(field: Type) -> list[Any]:
    return field.avro if isinstance(field.avro, list) else [field.avro]


def _may_be_null(field: Type) -> bool:
    return "null" in _bases(field)


def _is_text(column: T.DataType) -> bool:
    return isinstance(column, T.StringType)


def _change_of(column: T.DataType) -> Change | None:
    """The conversion of Arrow's value to fastavro's, as maps are pairs in Arrow; None if they are equal."""
    if isinstance(column, T.StructType):
        return unless_null(in_fields((field.name, _change_of(field.dataType)) for field in column))
    if isinstance(column, T.ArrayType):
        return unless_null(each(_change_of(column.elementType)))
    if isinstance(column, T.MapType):
        of_value = _change_of(column.valueType)
        if of_value is None:
            return unless_null(dict)
        return unless_null(lambda pairs: {key: of_value(value) for key, value in pairs})
    return None


def schema_of(columns: T.StructType) -> str:
    """A schema for columns, in JSON; each field may be null where its column may. Raises OptionError."""
    return json.dumps(_record_of(columns, "", RECORD), separators=(",", ":"))


def _record_of(columns: T.StructType, space: str, name: str) -> dict[str, Any]:
    """A record, whose namespace is where it is: records within records may have columns of one name."""
    where = f"{space}.{name}" if space else name
    fields: list[dict[str, Any]] = []
    for column in columns:
        if not _NAME.fullmatch(column.name):
            raise OptionError(
                f"{where}.{column.name} has no name of a field in Avro, of letters, digits and '_': rename it"
            )
        kind = _kind_of(column.dataType, column.nullable, where, column.name)
        fields.append({"name": column.name, "type": kind} | ({"default": None} if column.nullable else {}))
    record = {"type": "record", "name": name, "fields": fields}
    return record | {"namespace": space} if space else record


def _kind_of(column: T.DataType, nullable: bool, space: str, name: str) -> Any:
    kind: Any
    within = f"{space}.{name}"
    if isinstance(column, T.StructType):
        kind = _record_of(column, space, name)
    elif isinstance(column, T.ArrayType):
        kind = {"type": "array", "items": _kind_of(column.elementType, column.containsNull, within, "item")}
    elif isinstance(column, T.MapType) and _is_text(column.keyType):
        kind = {"type": "map", "values": _kind_of(column.valueType, column.valueContainsNull, within, "item")}
    elif isinstance(column, T.DecimalType):
        kind = {"type": "bytes", "logicalType": "decimal", "precision": column.precision, "scale": column.scale}
    else:
        kind = _MADE.get(type(column))
        if kind is None:
            raise OptionError(f"{within} is {column.simpleString()}, for which Avro has no type: cast it")
    return ["null", kind] if nullable else kind
