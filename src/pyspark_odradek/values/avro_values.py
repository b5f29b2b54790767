"""Values in Avro's binary encoding to a column of structs, by the schema that they were written with.

fastavro reads the bytes. This module says which type of Spark a type of Avro becomes, and changes what fastavro gives
where that is another value: maps, decimals, uuids in bytes. Records, enums, arrays, maps, fixed, unions of null and one
other type, and the logical types date, timestamp, local-timestamp, decimal and uuid. Values that were written with
another schema than that of the columns are brought to it (`evolution`). Source: the Avro specification, 1.12. Not done:
single-object encoding.
"""

from __future__ import annotations

import decimal
import io
import json
import secrets
import struct
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import fastavro
import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's own documentation gives it

from odradek.record.varint import zigzag
from pyspark_odradek.errors import OptionError

Change: TypeAlias = Callable[[Any], Any]

_EXACT = decimal.Context(prec=decimal.MAX_PREC)  # Python's own context rounds to 28 digits
NO_DEFAULT: Final = object()
_MARK = secrets.token_bytes(8)
_END = "\0end"  # a name that no field of a schema has
_DAMAGE = (ValueError, EOFError, IndexError, OverflowError, struct.error, ArithmeticError)
_UNFIT = (pa.ArrowException, OverflowError, ValueError)


class Type(NamedTuple):
    """One type.

    Attributes:
        spark: its type in Spark.
        avro: its schema for fastavro: without parts that reading does not use, named types by numbers.
        change: converts fastavro's value to that for Arrow; None if they are the same.
        is_empty: whether its values take no bytes.
        fields: of a record.
        item: the type of what an array or a map has.
    """

    spark: T.DataType
    avro: Any
    change: Change | None = None
    is_empty: bool = False
    fields: tuple[Field, ...] = ()
    item: Type | None = None


class Field(NamedTuple):
    """A field of a record; `default` is NO_DEFAULT or a value as JSON has it."""

    name: str
    type: Type
    default: Any = None
    aliases: tuple[str, ...] = ()


class AvroValues:
    """Decodes values by a schema.

    Args:
        schema: of the writer, in JSON; a record.
        wanted: the struct of Arrow that each value becomes.
        evolved: gives what brings values of this schema to that of the columns, where it may be another one.
    Raises:
        OptionError: the schema cannot be read, or not as that of the columns.
    """

    def __init__(self, schema: str, wanted: Any, evolved: Callable[[Type], Change | None] | None = None) -> None:
        self.wanted = wanted
        found = parse(schema)
        self._one = known_to_fastavro(found.avro)
        end = {"name": _END, "type": {"type": "fixed", "name": "end", "size": len(_MARK)}}
        row = {"type": "record", "name": "row", "fields": [*found.avro["fields"], end]}
        self._many = known_to_fastavro({"type": "array", "items": row})
        self._change = _both(found.change, None if evolved is None else evolved(found))

    def decode(self, values: Any) -> tuple[Any, dict[int, str]]:
        """Decode values; returns (an array of structs, reasons by row of invalid values, which are null like nulls)."""
        raw = values.to_pylist()
        wrong: dict[int, str] = {}
        rows = self._read_together(raw)
        if rows is None:
            rows = [self._read_one(value, number, wrong) for number, value in enumerate(raw)]
        try:
            return pa.array(rows, self.wanted), wrong
        except _UNFIT:  # a number that its type cannot hold: find the rows that have one
            return pa.array([self._fitting(row, number, wrong) for number, row in enumerate(rows)], self.wanted), wrong

    def _read_together(self, raw: list[bytes | None]) -> list[Any] | None:
        """All rows by one call, as an array of Avro; None where one of them is not whole.

        A call of fastavro costs as much as three fields. So a mark that no value can know follows each value and is the
        last field of the array's items: after a value that is too short or too long, something else is read there.
        """
        whole = [value for value in raw if value is not None]
        whole.append(b"\0")  # the array ends with a block of no items
        data = io.BytesIO(zigzag(len(whole) - 1) + _MARK.join(whole))
        try:
            read: Any = fastavro.schemaless_reader(data, self._many, None)
            if not len(read) == len(whole) - 1 == [row[_END] for row in read].count(_MARK):
                return None
            if self._change is not None:
                read = [self._change(row) for row in read]
        except _DAMAGE:
            return None
        rows = iter(read)
        return [None if value is None else next(rows) for value in raw]

    def _read_one(self, value: bytes | None, number: int, wrong: dict[int, str]) -> Any:
        if value is None:
            return None
        data = io.BytesIO(value)
        try:
            row = fastavro.schemaless_reader(data, self._one, None)
            if data.tell() != len(value):
                raise ValueError(f"{len(value) - data.tell()} bytes are left over")
            return row if self._change is None else self._change(row)
        except _DAMAGE as error:
            wrong[number] = _reason(error)
            return None

    def _fitting(self, row: Any, number: int, wrong: dict[int, str]) -> Any:
        try:
            pa.array([row], self.wanted)
        except _UNFIT as error:
            wrong[number] = _reason(error)
            return None
        return row


def _reason(error: Exception) -> str:
    return f"not Avro of the schema: {str(error)[:300] or 'the value ends within a field'}"


def spark_schema(schema: str) -> T.StructType:
    """The struct that values of a schema become. Raises OptionError."""
    found = parse(schema)
    known_to_fastavro(found.avro)
    assert isinstance(found.spark, T.StructType)
    return found.spark


def known_to_fastavro(schema: Any) -> Any:
    """A schema as fastavro reads and writes by it. Raises OptionError."""
    try:
        return fastavro.parse_schema(schema)
    except fastavro.schema.SchemaParseException as error:
        raise OptionError(f"valueSchema: {error}") from None


def parse(text: str) -> Type:
    """The type that a schema of a record describes. Raises OptionError."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise OptionError(f"valueSchema is not valid JSON: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise OptionError("valueSchema must be an Avro schema of a record")
    return _Schema().type_of(schema, "")


class _Schema:
    """The types of one schema, those with names by their names."""

    def __init__(self) -> None:
        self._named: dict[str, Type] = {}
        self._count = 0

    def type_of(self, schema: Any, space: str) -> Type:
        """The type that a part of the schema describes, in a namespace. Raises OptionError."""
        if isinstance(schema, list):
            return self._union(schema, space)
        if isinstance(schema, str):
            return self._by_name(schema, space)
        if not isinstance(schema, dict) or "type" not in schema:
            raise OptionError(f"valueSchema: {json.dumps(schema)[:60]} is not a known type")
        try:
            return self._complex(schema, space)
        except KeyError as missing:
            raise OptionError(f"valueSchema: a {schema['type']} lacks {missing}") from None

    def _by_name(self, name: str, space: str) -> Type:
        found = _PRIMITIVES.get(name) or self._named.get(name) or self._named.get(f"{space}.{name}")
        if found is None:
            raise OptionError(
                f"valueSchema: {name!r} is not a known type, or is recursive, which Spark does not support"
            )
        # A type that has a name is described once and named from then on, as the specification wants it.
        return found._replace(avro=found.avro["name"]) if "name" in found.avro else found

    def _union(self, branches: list[Any], space: str) -> Type:
        types = [self.type_of(branch, space) for branch in branches]
        others = [type_ for type_ in types if not isinstance(type_.spark, T.NullType)]
        if len(others) != 1:
            raise OptionError(f"valueSchema: of a union only null and one other type can be read, not {branches}")
        return others[0]._replace(
            avro=[type_.avro for type_ in types], change=unless_null(others[0].change), is_empty=False
        )

    def _complex(self, schema: dict[str, Any], space: str) -> Type:
        kind = schema["type"]
        if kind == "array":
            return self._array(schema, space)
        if kind == "map":
            item = self.type_of(schema["values"], space)
            return Type(
                T.MapType(T.StringType(), item.spark),
                {"type": "map", "values": item.avro},
                _pairs(item.change),
                item=item,
            )
        if kind not in ("record", "enum", "fixed"):
            return _logical(schema, self.type_of(kind, space))
        space = schema.get("namespace", space)
        if kind == "record":
            found = self._record(schema, space)
        elif kind == "enum":
            found = Type(T.StringType(), {"type": "enum", "symbols": schema["symbols"]})
        else:
            found = self._fixed(schema)
        found = found._replace(avro={**found.avro, "name": f"t{self._count}"})
        self._count += 1
        self._named[schema["name"]] = self._named[f"{space}.{schema['name']}"] = found
        return found

    def _array(self, schema: dict[str, Any], space: str) -> Type:
        item = self.type_of(schema["items"], space)
        if item.is_empty:  # then a few bytes announce more items than memory holds, and nothing contradicts them
            raise OptionError("valueSchema: items of an array take no bytes, so that nothing bounds their number")
        return Type(T.ArrayType(item.spark), {"type": "array", "items": item.avro}, each(item.change), item=item)

    def _record(self, schema: dict[str, Any], space: str) -> Type:
        fields = tuple(
            Field(
                field["name"],
                self.type_of(field["type"], space),
                field.get("default", NO_DEFAULT),
                tuple(field.get("aliases", ())),
            )
            for field in schema["fields"]
        )
        return Type(
            T.StructType([T.StructField(field.name, field.type.spark) for field in fields]),
            {"type": "record", "fields": [{"name": field.name, "type": field.type.avro} for field in fields]},
            in_fields((field.name, field.type.change) for field in fields),
            all(field.type.is_empty for field in fields),
            fields,
        )

    def _fixed(self, schema: dict[str, Any]) -> Type:
        size = schema["size"]
        if type(size) is not int or size < 0:
            raise OptionError(f"valueSchema: a fixed cannot have size {size}")
        return _logical(schema, Type(T.BinaryType(), {"type": "fixed", "size": size}, is_empty=size == 0))


_PRIMITIVES = {
    "null": Type(T.NullType(), "null", is_empty=True),
    "boolean": Type(T.BooleanType(), "boolean"),
    "int": Type(T.IntegerType(), "int"),
    "long": Type(T.LongType(), "long"),
    "float": Type(T.FloatType(), "float"),
    "double": Type(T.DoubleType(), "double"),
    "bytes": Type(T.BinaryType(), "bytes"),
    "string": Type(T.StringType(), "string"),
}
# Logical types that fastavro reads as Arrow needs them, with the type in which they must be stored.
_TIMES: dict[str, tuple[str, T.DataType]] = {
    "date": ("int", T.DateType()),
    "timestamp-millis": ("long", T.TimestampType()),
    "timestamp-micros": ("long", T.TimestampType()),
    "local-timestamp-millis": ("long", T.TimestampNTZType()),
    "local-timestamp-micros": ("long", T.TimestampNTZType()),
}


def _logical(schema: dict[str, Any], base: Type) -> Type:
    """The logical type of a schema; an unknown one is ignored, as the specification says."""
    logical = schema.get("logicalType")
    stored, spark = _TIMES.get(logical, (None, None)) if isinstance(logical, str) else (None, None)
    if stored is not None and spark is not None and base.avro == stored:
        return Type(spark, {"type": stored, "logicalType": logical})
    # fastavro rounds a decimal that has too many digits; here such a record is a bad one. So it reads bytes.
    if logical == "decimal" and isinstance(base.spark, T.BinaryType):
        spark_decimal = _decimal_type(schema)
        return base._replace(spark=spark_decimal, change=_decimal(spark_decimal.scale))
    if logical == "uuid" and isinstance(base.spark, T.BinaryType):
        return base._replace(spark=T.StringType(), change=lambda raw: str(uuid.UUID(bytes=raw)))
    return base


def _decimal_type(schema: dict[str, Any]) -> T.DecimalType:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if not (type(precision) is type(scale) is int and 0 <= scale <= precision and 1 <= precision <= 38):
        raise OptionError(
            f"valueSchema: a decimal has precision {precision} and scale {scale}, and Spark's have 1 to 38 digits, "
            "none to all of them behind the point. Remove its logicalType, and cast the bytes"
        )
    return T.DecimalType(precision, scale)


def _decimal(scale: int) -> Change:
    def change(raw: bytes) -> decimal.Decimal:
        return _EXACT.scaleb(decimal.Decimal(int.from_bytes(raw, "big", signed=True)), -scale)

    return change


def unless_null(change: Change | None) -> Change | None:
    """The change of a value that may be null."""
    return None if change is None else lambda value: None if value is None else change(value)


def each(change: Change | None) -> Change | None:
    """The change of a list, by that of its items."""
    return None if change is None else lambda items: [change(item) for item in items]


def _pairs(change: Change | None) -> Change:
    """Arrow takes a map as pairs."""
    if change is None:
        return lambda items: list(items.items())
    return lambda items: [(key, change(value)) for key, value in items.items()]


def _both(first: Change | None, second: Change | None) -> Change | None:
    if first is None or second is None:
        return first or second
    return lambda value: second(first(value))


def in_fields(fields: Iterable[tuple[str, Change | None]]) -> Change | None:
    """The change of a record, in place, by those of its fields."""
    changes = [(name, change) for name, change in fields if change is not None]
    if not changes:
        return None

    def change_fields(row: dict[str, Any]) -> dict[str, Any]:
        for name, change in changes:
            row[name] = change(row[name])
        return row

    return change_fields
