"""Columns of structs to messages of Protocol Buffers, whose fields hold each value of the columns.

Types are compared once. Each row is checked for what no type of Spark says: the range of unsigned numbers and of times,
the names of an enum, nulls within lists and maps, fields of one oneof, required fields. A null, or a field without a
column, leaves the field unset. A column without a field is refused, since it would be lost. Source: the language guide
of Protocol Buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's own documentation gives it

from pyspark_odradek.errors import OptionError
from pyspark_odradek.values.frame import place_frame
from pyspark_odradek.values.protobuf_values import (
    TIMESTAMP,
    WRAPPERS,
    find_message,
    is_map,
    is_repeated,
    is_required,
    place_of,
)

# Of a value that is not null; None where the library takes it as it is.
Convert: TypeAlias = Callable[[Any], Any] | None

_INTS = (T.ByteType, T.ShortType, T.IntegerType)
_HOLD: dict[int, tuple[type[T.DataType], ...]] = {
    FieldDescriptor.CPPTYPE_INT32: _INTS,
    FieldDescriptor.CPPTYPE_INT64: (*_INTS, T.LongType),
    FieldDescriptor.CPPTYPE_UINT32: (*_INTS, T.LongType),
    FieldDescriptor.CPPTYPE_UINT64: (*_INTS, T.LongType, T.DecimalType),
    FieldDescriptor.CPPTYPE_FLOAT: (T.ByteType, T.ShortType, T.FloatType),
    FieldDescriptor.CPPTYPE_DOUBLE: (*_INTS, T.FloatType, T.DoubleType),
    FieldDescriptor.CPPTYPE_BOOL: (T.BooleanType,),
    FieldDescriptor.CPPTYPE_ENUM: (T.StringType, *_INTS),
}
_UNSIGNED = {FieldDescriptor.CPPTYPE_UINT32: 32, FieldDescriptor.CPPTYPE_UINT64: 64}
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799  # of google.protobuf.Timestamp: the years 1 to 9999
_SHOWN = 60  # characters of a value in a reason


class _UnfitError(Exception):
    """A value that its field cannot have; `place` leads from the row to it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.place = ""


class ProtobufRows:
    """Encodes structs of these columns as messages.

    Args:
        columns: those of the structs.
        schema: a descriptor set, as the option valueSchema gives it.
        message: the full name of the message.
    Raises:
        OptionError: a field does not hold all of its column, or the message lacks a column, or needs another.
    """

    def __init__(self, columns: T.StructType, schema: str, message: str) -> None:
        found = find_message(schema, message)
        self._place = place_frame(place_of(found))
        self._message = _Messages(columns, found, "value")

    def encode(self, column: Any, head: bytes) -> Any:
        """An array of bytes, each behind `head` and the message's place; nulls stay null. Raises OptionError."""
        head += self._place
        values: list[bytes | None] = []
        try:
            for row in column.cast(_with_micros(column.type)).to_pylist():
                values.append(None if row is None else head + self._message(row).SerializeToString())
        except _UnfitError as error:
            where = f"row {len(values) + 1} of {len(column)} of a batch: value{error.place}"
            raise OptionError(f"a row does not fit the schema of the values: {where} {error.reason}") from None
        except (TypeError, ValueError) as error:
            where = f"row {len(values) + 1} of {len(column)} of a batch: " if values else ""
            raise OptionError(f"a row does not fit the schema of the values: {where}{str(error)[:300]}") from None
        return pa.array(values, pa.binary())


def _with_micros(kind: Any) -> Any:
    """The type with times as numbers: Python's own times end with the year 9999."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_with_micros(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_micros(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_with_micros(kind.item_type)))
    return kind


class _Messages:
    """Makes messages of rows.

    Raises:
        OptionError: a column and its field do not go together.
    """

    def __init__(self, columns: T.StructType, message: Descriptor, where: str) -> None:
        fields = message.fields_by_name
        self._name = message.full_name
        self._make = message_factory.GetMessageClass(message)
        self._members: list[tuple[str, Convert]] = []
        for column in columns:
            if column.name not in fields:
                raise OptionError(f"{where}.{column.name} is in no field of {self._name}: select it away")
            if not isinstance(column.dataType, T.NullType):
                convert = _field(column.dataType, fields[column.name], f"{where}.{column.name}")
                self._members.append((column.name, convert))
        given = {name for name, _ in self._members}
        self._required = [field.name for field in message.fields if is_required(field)]
        for name in self._required:
            if name not in given:
                raise OptionError(f"{where} has no column {name}, which {self._name} requires")
        choices = [(each.name, [field.name for field in each.fields if field.name in given]) for each in message.oneofs]
        self._choices = [(name, names) for name, names in choices if len(names) > 1]

    def __call__(self, row: dict[str, Any]) -> Any:
        found = {}
        for name, convert in self._members:
            value = row[name]
            if value is None:
                continue
            try:
                found[name] = value if convert is None else convert(value)
            except _UnfitError as error:
                error.place = f".{name}{error.place}"
                raise
        for name in self._required:
            if name not in found:
                raise _UnfitError(f"has no {name}, which {self._name} requires")
        for name, names in self._choices:
            chosen = [each for each in names if each in found]
            if len(chosen) > 1:
                raise _UnfitError(f"has {' and '.join(chosen)}, of which only one may be set: oneof {name}")
        return self._make(**found)


def _field(column: T.DataType, field: FieldDescriptor, where: str) -> Convert:
    if is_map(field):
        if not isinstance(column, T.MapType):
            raise _refusal(column, field, where)
        entry = field.message_type.fields_by_name
        key = _one(column.keyType, entry["key"], f"{where}.key")
        return _entries(key, _one(column.valueType, entry["value"], f"{where}[]"))
    if is_repeated(field):
        if not isinstance(column, T.ArrayType):
            raise _refusal(column, field, where)
        return _items(_one(column.elementType, field, f"{where}[]"))
    return _one(column, field, where)


def _one(column: T.DataType, field: FieldDescriptor, where: str) -> Convert:
    """The writer of one value of a field, which may be repeated."""
    message = field.message_type
    if message is None:
        return _scalar(column, field, where)
    if message.full_name == TIMESTAMP and isinstance(column, T.TimestampType):
        return _time_of(message)
    if message.full_name in WRAPPERS:
        inner = _scalar(column, message.fields_by_name["value"], where)
        make = message_factory.GetMessageClass(message)
        return lambda value: make(value=value if inner is None else inner(value))
    if not isinstance(column, T.StructType) or message.full_name == TIMESTAMP:
        raise _refusal(column, field, where)
    return _Messages(column, message, where)


def _scalar(column: T.DataType, field: FieldDescriptor, where: str) -> Convert:
    text = T.BinaryType if field.type == FieldDescriptor.TYPE_BYTES else T.StringType
    if not isinstance(column, _HOLD.get(field.cpp_type, (text,))):
        raise _refusal(column, field, where)
    if isinstance(column, T.DecimalType) and column.scale:
        raise _refusal(column, field, where)
    if field.enum_type is not None:
        return _enum(field.enum_type)
    if field.cpp_type in _UNSIGNED:
        return _unsigned(_UNSIGNED[field.cpp_type])
    return None


def _refusal(column: T.DataType, field: FieldDescriptor, where: str) -> OptionError:
    kind = field.message_type or field.enum_type
    name = kind.full_name if kind is not None else _NAMES[field.type]
    named = "a map" if is_map(field) else f"{'repeated ' if is_repeated(field) else ''}{name}"
    return OptionError(
        f"{where} is {column.simpleString()} and {named} in the schema of the values, which does not hold each of its "
        "values as it is: cast it"
    )


_NAMES = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}


def _time_of(message: Descriptor) -> Convert:
    make = message_factory.GetMessageClass(message)

    def time_of(micros: int) -> Any:
        seconds, rest = divmod(micros, 1_000_000)
        if not _FIRST_S <= seconds <= _LAST_S:
            raise _UnfitError(f"is {micros} µs after 1970, and {TIMESTAMP} has the years 1 to 9999")
        return make(seconds=seconds, nanos=rest * 1000)

    return time_of


def _unsigned(bits: int) -> Convert:
    def unsigned(value: Any) -> int:
        number = int(value)
        if not 0 <= number < 1 << bits:
            raise _UnfitError(f"is {number}, and uint{bits} is 0 to {(1 << bits) - 1}")
        return number

    return unsigned


def _enum(enum: EnumDescriptor) -> Convert:
    """The writer of a name, or a number: readers give the number of a value that their schema has not."""
    numbers = {name: value.number for name, value in enum.values_by_name.items()}

    def number_of(value: str | int) -> int:
        found = numbers.get(value) if isinstance(value, str) else value
        if found is None:
            try:
                found = int(value)
            except ValueError:
                raise _no_member(enum, value) from None
        if found not in enum.values_by_number and (enum.is_closed or not -(1 << 31) <= found < 1 << 31):
            raise _no_member(enum, value)
        return found

    return number_of


def _no_member(enum: EnumDescriptor, value: str | int) -> _UnfitError:
    names = ", ".join(enum.values_by_name)
    return _UnfitError(f"is {str(value)[:_SHOWN]!r}, and {enum.full_name} has {names[: 4 * _SHOWN]}")


def _items(one: Convert) -> Convert:
    def items(values: list[Any]) -> list[Any]:
        return [_within(one, f"[{number}]", value) for number, value in enumerate(values)]

    return items


def _entries(key: Convert, one: Convert) -> Convert:
    def entries(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        return {_within(key, ".key", name): _within(one, f"[{str(name)[:_SHOWN]!r}]", value) for name, value in pairs}

    return entries


def _within(convert: Convert, place: str, value: Any) -> Any:
    """A value of a list or a map, neither of which have nulls in Protocol Buffers."""
    try:
        if value is None:
            raise _UnfitError("is null, which neither lists nor maps of Protobuf have")
        return value if convert is None else convert(value)
    except _UnfitError as error:
        error.place = f"{place}{error.place}"
        raise
