"""Values in Avro's binary encoding to a column of structs, by the one schema that they were written with.

Records, enums, arrays, maps, fixed, unions of null and one other type, and the logical types date, time, timestamp,
decimal and uuid. Each type is made a function once; nothing is looked up per record. Source: the Avro specification,
1.12. Not done: a schema registry and its five leading bytes, single-object encoding, resolution between two schemas.
"""

from __future__ import annotations

import datetime
import decimal
import json
import struct
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from odradek.record.varint import read_zigzag
from pyspark_odradek.errors import OptionError

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]

MAX_ITEMS = 1_000_000  # of one array or map: items may take no bytes, so the bytes that are left are no limit
_EXACT = decimal.Context(prec=decimal.MAX_PREC)  # Python's own context rounds to 28 digits
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=datetime.UTC)


class _Type:
    """One type: what Spark calls it, and how a value is read."""

    def __init__(self, spark: DataType, read: Read) -> None:
        self.spark = spark
        self.read = read


class AvroValues:
    """Decodes values by a schema.

    Args:
        schema: of the writer, in JSON; a record.
        wanted: the struct of Arrow that each value becomes.
    """

    def __init__(self, schema: str, wanted: Any) -> None:
        self.wanted = wanted
        self._read = _parse(schema).read

    def decode(self, values: Any) -> tuple[Any, dict[int, str]]:
        """(an array of structs, what is wrong by row); rows that are wrong are null, and so are null values."""
        rows: list[Any] = []
        wrong: dict[int, str] = {}
        for number, value in enumerate(values.to_pylist()):
            rows.append(None)
            if value is None:
                continue
            try:
                row, end = self._read(value, 0)
                if end != len(value):
                    raise ValueError(f"{len(value) - end} bytes are left over")
            except (ValueError, IndexError, OverflowError, struct.error, ArithmeticError) as error:
                wrong[number] = _told(error)
            else:
                rows[-1] = row
        try:
            return pa.array(rows, self.wanted), wrong
        except (pa.ArrowException, OverflowError, ValueError):  # a number that its type cannot hold
            return pa.array([self._fitting(row, number, wrong) for number, row in enumerate(rows)], self.wanted), wrong

    def _fitting(self, row: Any, number: int, wrong: dict[int, str]) -> Any:
        try:
            pa.array([row], self.wanted)
        except (pa.ArrowException, OverflowError, ValueError) as error:
            wrong[number] = _told(error)
            return None
        return row


def _told(error: Exception) -> str:
    return f"not Avro of the schema: {str(error)[:300]}"


def spark_schema(schema: str) -> StructType:
    """The struct that values of a schema become. Raises OptionError."""
    found = _parse(schema).spark
    assert isinstance(found, StructType)
    return found


def _parse(text: str) -> _Type:
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise OptionError(f"valueSchema is not valid JSON: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise OptionError("valueSchema must be an Avro schema of a record")
    return _type(schema, {}, "")


def _type(schema: Any, named: dict[str, _Type], space: str) -> _Type:
    if isinstance(schema, list):
        return _union(schema, named, space)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        found = named.get(schema) or named.get(f"{space}.{schema}")
        if found is None:
            raise OptionError(
                f"valueSchema: {schema!r} is not a known type, or is recursive, which Spark does not support"
            )
        return found
    if not isinstance(schema, dict) or "type" not in schema:
        raise OptionError(f"valueSchema: {json.dumps(schema)[:60]} is not a known type")
    try:
        return _complex(schema, named, space)
    except KeyError as missing:
        raise OptionError(f"valueSchema: a {schema['type']} lacks {missing}") from None


def _complex(schema: dict[str, Any], named: dict[str, _Type], space: str) -> _Type:
    kind = schema["type"]
    if kind == "array":
        item = _type(schema["items"], named, space)
        return _Type(ArrayType(item.spark), _blocks(item.read, list))
    if kind == "map":
        item = _type(schema["values"], named, space)
        return _Type(MapType(StringType(), item.spark), _blocks(_pair(item.read), list))
    if kind not in ("record", "enum", "fixed"):
        return _logical(schema, _type(kind, named, space))
    space = schema.get("namespace", space)
    if kind == "record":
        fields = [(field["name"], _type(field["type"], named, space)) for field in schema["fields"]]
        spark: DataType = StructType([StructField(name, type_.spark) for name, type_ in fields])
        found = _Type(spark, _record([(name, type_.read) for name, type_ in fields]))
    elif kind == "enum":
        found = _Type(StringType(), _enum(schema["symbols"]))
    else:
        found = _logical(schema, _Type(BinaryType(), _fixed(schema["size"])))
    named[schema["name"]] = named[f"{space}.{schema['name']}"] = found
    return found


def _union(branches: list[Any], named: dict[str, _Type], space: str) -> _Type:
    types = [_type(branch, named, space) for branch in branches]
    others = [type_ for type_ in types if not isinstance(type_.spark, NullType)]
    if len(others) != 1:
        raise OptionError(f"valueSchema: of a union only null and one other type can be read, not {branches}")

    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, at = read_zigzag(data, at)
        if not 0 <= index < len(types):
            raise ValueError(f"a union has no branch {index}")
        return types[index].read(data, at)

    return _Type(others[0].spark, read)


def _record(fields: list[tuple[str, Read]]) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found = {}
        for name, field in fields:
            found[name], at = field(data, at)
        return found, at

    return read


def _enum(symbols: list[str]) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        index, at = read_zigzag(data, at)
        if not 0 <= index < len(symbols):
            raise ValueError(f"an enum has no symbol {index}")
        return symbols[index], at

    return read


def _fixed(size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        return _slice(data, at, size)

    return read


def _pair(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        key, at = _string(data, at)
        value, at = item(data, at)
        return (key, value), at

    return read


def _blocks(item: Read, kind: type[list[Any]]) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found = kind()
        while True:
            count, at = read_zigzag(data, at)
            if count == 0:
                return found, at
            if count < 0:  # then the block's size in bytes follows, for readers that skip it
                count = -count
                _, at = read_zigzag(data, at)
            if len(found) + count > MAX_ITEMS:
                raise ValueError(f"an array or map has over {MAX_ITEMS} items")
            for _ in range(count):
                value, at = item(data, at)
                found.append(value)

    return read


def _slice(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size < 0 or at + size > len(data):
        raise ValueError(f"{size} bytes are announced where {len(data) - at} are left")
    return data[at : at + size], at + size


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_zigzag(data, at)
    return _slice(data, at, size)


def _string(data: bytes, at: int) -> tuple[str, int]:
    raw, at = _bytes(data, at)
    return raw.decode(), at


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise ValueError(f"byte {data[at]} is neither true nor false")
    return data[at] == 1, at + 1


def _packed(layout: str) -> Read:
    form = struct.Struct(layout)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return form.unpack_from(data, at)[0], at + form.size

    return read


_PRIMITIVES = {
    "null": _Type(NullType(), lambda data, at: (None, at)),
    "boolean": _Type(BooleanType(), _boolean),
    "int": _Type(IntegerType(), read_zigzag),
    "long": _Type(LongType(), read_zigzag),
    "float": _Type(FloatType(), _packed("<f")),
    "double": _Type(DoubleType(), _packed("<d")),
    "bytes": _Type(BinaryType(), _bytes),
    "string": _Type(StringType(), _string),
}


def _logical(schema: dict[str, Any], base: _Type) -> _Type:
    """The type with its meaning; one that is not known is read as what it is stored as, as the specification says."""
    logical = schema.get("logicalType")
    if logical == "date":
        return _Type(DateType(), _then(base.read, lambda days: (_EPOCH + datetime.timedelta(days=days)).date()))
    for name, epoch, spark in (
        ("timestamp", _EPOCH_UTC, TimestampType()),
        ("local-timestamp", _EPOCH, TimestampNTZType()),
    ):
        if logical in (f"{name}-millis", f"{name}-micros"):
            unit = datetime.timedelta(milliseconds=1) if logical.endswith("millis") else datetime.timedelta.resolution
            return _Type(spark, _then(base.read, partial(_moment, epoch, unit)))
    if logical == "decimal" and isinstance(base.spark, BinaryType):
        precision, scale = schema["precision"], schema.get("scale", 0)
        if not (type(precision) is type(scale) is int and 0 <= scale <= precision and 1 <= precision <= 38):
            raise OptionError(
                f"valueSchema: a decimal has precision {precision} and scale {scale}, and Spark's have 1 to 38 digits, "
                "none to all of them behind the point. Leave its logicalType away, and cast the bytes"
            )

        def number(raw: bytes) -> decimal.Decimal:
            return _EXACT.scaleb(decimal.Decimal(int.from_bytes(raw, "big", signed=True)), -scale)

        return _Type(DecimalType(precision, scale), _then(base.read, number))
    if logical == "uuid" and isinstance(base.spark, BinaryType):
        return _Type(StringType(), _then(base.read, lambda raw: str(uuid.UUID(bytes=raw))))
    return base


def _moment(epoch: datetime.datetime, unit: datetime.timedelta, count: int) -> datetime.datetime:
    return epoch + count * unit


def _then(read: Read, change: Callable[[Any], Any]) -> Read:
    def changed(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read(data, at)
        return change(value), at

    return changed
