"""Values that were written with one schema of Avro, as another one has them: its fields, types and defaults.

A field is found by its name, or by an alias that the reader gives it; one that the writer does not have takes the
reader's default; one that the reader does not have is left out. An int may become a long, float or double, a long a
float or double, a float a double, and strings and bytes each other. Names of records do not matter, nor do an enum's
symbols. Source: the Avro specification, 1.12, schema resolution.
"""

from __future__ import annotations

import datetime
from typing import Any

from pyspark.sql import types as T  # noqa: N812 - the name that Spark's own documentation gives it

from pyspark_odradek.errors import OptionError
from pyspark_odradek.values.avro_values import NO_DEFAULT, Change, Field, Type

_INTS, _FLOATS = (T.IntegerType, T.LongType), (T.FloatType, T.DoubleType)
_PROMOTED: dict[type[T.DataType], tuple[type[T.DataType], ...]] = {
    T.IntegerType: (T.LongType, *_FLOATS),
    T.LongType: _FLOATS,
    T.FloatType: (T.DoubleType,),
    T.StringType: (T.BinaryType,),
    T.BinaryType: (T.StringType,),
}


def resolved(writer: Type, reader: Type, where: str = "value") -> Change | None:
    """The conversion of the writer's values to the reader's; None if Arrow converts them.

    Raises:
        OptionError: the types cannot be converted.
    """
    if isinstance(writer.spark, T.NullType) or writer.spark == reader.spark == T.NullType():
        return None
    if isinstance(writer.spark, T.StructType) and isinstance(reader.spark, T.StructType):
        return _projection(writer, reader, where)
    for kind, change_of in ((T.ArrayType, _each), (T.MapType, _each_value)):
        if isinstance(writer.spark, kind) and isinstance(reader.spark, kind):
            assert writer.item is not None and reader.item is not None
            return change_of(resolved(writer.item, reader.item, f"{where}[]"))
    is_decimal = isinstance(writer.spark, T.DecimalType) and isinstance(reader.spark, T.DecimalType)
    if writer.spark == reader.spark or is_decimal or type(reader.spark) in _PROMOTED.get(type(writer.spark), ()):
        return None  # of a decimal too many digits are refused when it is stored
    raise OptionError(
        f"{where} was written as {writer.spark.simpleString()} and cannot be read as {reader.spark.simpleString()}"
    )


def _projection(writer: Type, reader: Type, where: str) -> Change | None:
    """The resolution of a record: the source of each field, and those that are not there."""
    there = {field.name: field for field in writer.fields}
    taken: list[tuple[str, str, Change | None]] = []
    missing: dict[str, Any] = {}
    for field in reader.fields:
        name = next((each for each in (field.name, *field.aliases) if each in there), None)
        if name is not None:
            taken.append((field.name, name, resolved(there[name].type, field.type, f"{where}.{field.name}")))
        else:
            missing[field.name] = default_of(field, f"{where}.{field.name}")
    if not missing and all(name == source and change is None for name, source, change in taken):
        return None

    def project(row: dict[str, Any] | None) -> dict[str, Any] | None:
        if row is None:
            return None
        found = {
            name: row[source] if change is None or row[source] is None else change(row[source])
            for name, source, change in taken
        }
        return missing | found

    return project


def _each(change: Change | None) -> Change | None:
    return None if change is None else lambda items: [None if item is None else change(item) for item in items]


def _each_value(change: Change | None) -> Change | None:
    """The resolution of a map, whose entries are pairs for Arrow."""
    if change is None:
        return None
    return lambda pairs: [(key, None if value is None else change(value)) for key, value in pairs]


def default_of(field: Field, where: str) -> Any:
    """The value of a field that a record does not have. Raises OptionError."""
    if field.default is NO_DEFAULT:
        raise OptionError(f"{where} is not in what was written, and has no default")
    try:
        return _value(field.type, field.default)
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError):
        raise OptionError(f"the default of {where} is no {field.type.spark.simpleString()}") from None


def _value(kind: Type, given: Any) -> Any:
    """A value for Arrow of one in JSON."""
    if given is None:
        return None
    if isinstance(kind.spark, T.StructType):
        return {field.name: _of_record(field, given) for field in kind.fields}
    if kind.item is not None:
        if isinstance(kind.spark, T.MapType):
            return [(key, _value(kind.item, value)) for key, value in given.items()]
        return [_value(kind.item, each) for each in given]
    if isinstance(kind.spark, T.DateType):
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=given)
    if isinstance(kind.spark, T.TimestampType | T.TimestampNTZType):
        return _time(kind, given)
    if isinstance(kind.spark, T.BinaryType) or kind.change is not None:  # bytes are text, a character each
        raw = given.encode("latin-1")
        return raw if kind.change is None else kind.change(raw)
    return given


def _of_record(field: Field, given: dict[str, Any]) -> Any:
    if field.name in given:
        return _value(field.type, given[field.name])
    return default_of(field, field.name)


def _time(kind: Type, given: int) -> datetime.datetime:
    stored = next(each for each in (kind.avro if isinstance(kind.avro, list) else [kind.avro]) if each != "null")
    unit = "milliseconds" if stored["logicalType"].endswith("millis") else "microseconds"
    zone = datetime.UTC if isinstance(kind.spark, T.TimestampType) else None
    return datetime.datetime(1970, 1, 1, tzinfo=zone) + datetime.timedelta(**{unit: given})
