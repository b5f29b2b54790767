"""Values of Protocol Buffers to a column of structs, by a descriptor and the name of a message.

The descriptor is what `protoc --include_imports --descriptor_set_out=FILE` writes: that file, or its bytes in base64.
Messages are parsed by the library of those who define the format; then each field becomes a column at once. Fields that
know whether they are set are null where they are not, the others have their default. Source: the Protocol Buffers
language guide. Not done: extensions, fields that the descriptor has not.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_odradek.errors import OptionError

_TYPE = FieldDescriptor
_SAYS_REPEATED = hasattr(FieldDescriptor, "is_repeated")  # releases before 6.31 have `label` alone, which 7 has not
_SCALARS: dict[int, DataType] = {
    _TYPE.CPPTYPE_INT32: IntegerType(),
    _TYPE.CPPTYPE_INT64: LongType(),
    _TYPE.CPPTYPE_UINT32: LongType(),
    _TYPE.CPPTYPE_UINT64: DecimalType(20, 0),
    _TYPE.CPPTYPE_FLOAT: FloatType(),
    _TYPE.CPPTYPE_DOUBLE: DoubleType(),
    _TYPE.CPPTYPE_BOOL: BooleanType(),
    _TYPE.CPPTYPE_ENUM: StringType(),
}
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class ProtobufValues:
    """Decodes values by a descriptor.

    Args:
        schema: the descriptor, as the option valueSchema gives it.
        message: the full name of the message; None where the descriptor's last file has only one.
        wanted: the struct of Arrow that each value becomes.
    """

    def __init__(self, schema: str, message: str | None, wanted: Any) -> None:
        self.wanted = wanted
        self._message = find_message(schema, message)
        self._parse: Callable[[bytes], Any] = message_factory.GetMessageClass(self._message).FromString
        self._nothing = message_factory.GetMessageClass(self._message)()

    @property
    def place(self) -> tuple[int, ...]:
        """The index of the message in its file."""
        return place_of(self._message)

    def decode(self, values: Any) -> tuple[Any, dict[int, str]]:
        """Decode values; returns (an array of structs, reasons by row of invalid values, which are null like nulls)."""
        messages: list[Any] = []
        wrong: dict[int, str] = {}
        for number, value in enumerate(values.to_pylist()):
            found = None
            if value is not None:
                try:
                    found = self._parse(value)
                    if not found.IsInitialized():
                        raise DecodeError(f"it lacks {', '.join(found.FindInitializationErrors())}")
                except DecodeError as error:
                    found, wrong[number] = None, self._reported(error)
            messages.append(found)
        try:
            return self._structs(messages), wrong
        except (pa.ArrowException, OverflowError, ValueError):  # a time or text that no column can hold
            for number, found in enumerate(messages):
                try:
                    self._structs([found])
                except (pa.ArrowException, OverflowError, ValueError) as error:
                    messages[number], wrong[number] = None, self._reported(error)
            return self._structs(messages), wrong

    def _structs(self, messages: list[Any]) -> Any:
        return _structs(messages, self._nothing, self._message, self.wanted)

    def _reported(self, error: Exception) -> str:
        return f"not a {self._message.full_name} of Protobuf: {str(error)[:300]}"


def _structs(messages: list[Any], nothing: Any, message: Descriptor, wanted: Any) -> Any:
    """Messages, or None, as an array of structs; `nothing` stands in for None."""
    mask = pa.array([each is None for each in messages], pa.bool_())
    whole = [nothing if each is None else each for each in messages]
    known, fields = message.fields_by_name, list(wanted)
    columns = [
        _column(whole, known[field.name], field.type) if field.name in known else pa.nulls(len(whole), field.type)
        for field in fields
    ]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _column(messages: list[Any], field: FieldDescriptor, wanted: Any) -> Any:
    """The values of one field of all messages as an array."""
    name = field.name
    found = [getattr(each, name) for each in messages]
    if is_map(field):
        return _maps(found, field, wanted)
    if is_repeated(field):
        items = _array([item for each in found for item in each], field, wanted.value_type)
        return pa.ListArray.from_arrays(_ends(found), items).cast(wanted)
    if field.has_presence:
        found = [value if each.HasField(name) else None for each, value in zip(messages, found, strict=True)]
    return _array(found, field, wanted)


def _maps(maps: list[Any], field: FieldDescriptor, wanted: Any) -> Any:
    entry = field.message_type.fields_by_name
    keys = _array([key for each in maps for key in each], entry["key"], wanted.key_type)
    values = _array([each[key] for each in maps for key in each], entry["value"], wanted.item_type)
    return pa.MapArray.from_arrays(_ends(maps), keys, values).cast(wanted)


def _array(found: list[Any], field: FieldDescriptor, wanted: Any) -> Any:
    """Values of one field, or None, as an array."""
    if field.message_type is None:
        return pa.array(_scalars(found, field), wanted)
    message = field.message_type
    if message.full_name == TIMESTAMP:
        micros = [None if each is None else each.seconds * 1_000_000 + each.nanos // 1000 for each in found]
        return pa.array(micros, pa.int64()).cast(wanted)
    if message.full_name in WRAPPERS:
        inner = message.fields_by_name["value"]
        return pa.array(_scalars([None if each is None else each.value for each in found], inner), wanted)
    return _structs(found, message_factory.GetMessageClass(message)(), message, wanted)


def _scalars(found: list[Any], field: FieldDescriptor) -> list[Any]:
    if field.enum_type is None:
        return found
    names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
    return [None if each is None else names.get(each, str(each)) for each in found]


def _ends(collections: list[Any]) -> Any:
    ends = [0]
    for each in collections:
        ends.append(ends[-1] + len(each))
    return pa.array(ends, pa.int32())


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether a field is a list or a map."""
    return bool(field.is_repeated if _SAYS_REPEATED else field.label == _TYPE.LABEL_REPEATED)


def is_required(field: FieldDescriptor) -> bool:
    """Whether a message without the field is invalid."""
    return bool(field.is_required if _SAYS_REPEATED else field.label == _TYPE.LABEL_REQUIRED)


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def spark_schema(schema: str, message: str | None) -> StructType:
    """The struct that values become. Raises OptionError."""
    return _struct_type(find_message(schema, message), ())


def refuse_other_types(columns: StructType, schema: str, message: str | None) -> None:
    """Raise OptionError where a field has another type than its column: columns may be older than the schema.

    Fields without a column are left out then, and columns without a field are null.
    """
    _compare(columns, spark_schema(schema, message), "value")


def _compare(column: DataType, field: DataType, where: str) -> None:
    if isinstance(column, StructType) and isinstance(field, StructType):
        for each in column:
            if each.name in field.names:
                _compare(each.dataType, field[each.name].dataType, f"{where}.{each.name}")
    elif isinstance(column, ArrayType) and isinstance(field, ArrayType):
        _compare(column.elementType, field.elementType, f"{where}[]")
    elif isinstance(column, MapType) and isinstance(field, MapType):
        _compare(column.keyType, field.keyType, f"{where}.key")
        _compare(column.valueType, field.valueType, f"{where}[]")
    elif column != field:
        raise OptionError(
            f"{where} is {column.simpleString()}, and by now {field.simpleString()} in the schema of the values: start "
            "the query again, or create the table again"
        )


def _struct_type(message: Descriptor, above: tuple[str, ...]) -> StructType:
    if message.full_name in above:
        raise OptionError(f"valueSchema: the message {message.full_name} is within itself, which Spark has not")
    above = (*above, message.full_name)
    return StructType([StructField(field.name, _field_type(field, above)) for field in message.fields])


def _field_type(field: FieldDescriptor, above: tuple[str, ...]) -> DataType:
    if is_map(field):
        entry = field.message_type.fields_by_name
        return MapType(_one_type(entry["key"], above), _one_type(entry["value"], above))
    one = _one_type(field, above)
    return ArrayType(one) if is_repeated(field) else one


def _one_type(field: FieldDescriptor, above: tuple[str, ...]) -> DataType:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == TIMESTAMP:
            return TimestampType()
        if name in WRAPPERS:
            return _one_type(field.message_type.fields_by_name["value"], above)
        return _struct_type(field.message_type, above)
    if field.type == _TYPE.TYPE_BYTES:
        return BinaryType()
    return _SCALARS.get(field.cpp_type, StringType())


def find_message(schema: str, message: str | None) -> Descriptor:
    """The message that values are. Raises OptionError."""
    pool, names = _messages(schema)
    if message is None and len(names) == 1:
        message = names[0]
    if message is None:
        raise OptionError(f"set the option valueMessage: valueSchema has the messages {', '.join(names) or 'none'}")
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        raise OptionError(f"valueSchema has no message {message}; it has {', '.join(names) or 'none'}") from None


def _messages(schema: str) -> tuple[descriptor_pool.DescriptorPool, list[str]]:
    """All messages of a descriptor set, and the names of those of its last file."""
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(base64.b64decode(embedded(schema), validate=True))
        pool = descriptor_pool.DescriptorPool()
        for each in files.file:
            pool.Add(each)
        last = [pool.FindFileByName(each.name) for each in files.file][-1:]
    except (DecodeError, TypeError, KeyError) as error:
        raise OptionError(
            f"valueSchema is not a whole descriptor set of Protobuf ({error}); make one with protoc --include_imports "
            "--descriptor_set_out=FILE"
        ) from None
    return pool, [each.full_name for file in last for each in file.message_types_by_name.values()]


def place_of(message: Descriptor) -> tuple[int, ...]:
    """The index of a message in its file; of a nested one, those of the enclosing messages and its own."""
    file = descriptor_pb2.FileDescriptorProto()
    message.file.CopyToProto(file)
    path = message.full_name.removeprefix(f"{file.package}.").split(".")
    there, place = file.message_type, []
    for name in path:
        place.append([each.name for each in there].index(name))
        there = there[place[-1]].nested_type
    return tuple(place)


def embedded(schema: str) -> str:
    """The descriptor in base64, where it was given as a file too: executors need not have the file.

    Raises:
        OptionError: it is neither base64 nor a file that can be read.
    """
    try:  # first, since many a path is also base64
        return base64.b64encode(Path(schema.removeprefix("file://")).read_bytes()).decode()
    except (OSError, ValueError) as error:
        refusal = error
    try:
        base64.b64decode(schema, validate=True)
    except ValueError:
        raise OptionError(f"valueSchema is neither base64 nor a descriptor file that can be read: {refusal}") from None
    return schema


def descriptor_of(message: Any) -> str:
    """The option valueSchema for a message class that `protoc` has generated for Python."""
    files = descriptor_pb2.FileDescriptorSet()
    seen: set[str] = set()

    def add(file: FileDescriptor) -> None:
        if file.name not in seen:
            seen.add(file.name)
            for needed in file.dependencies:
                add(needed)
            file.CopyToProto(files.file.add())

    add(message.DESCRIPTOR.file)
    return base64.b64encode(files.SerializeToString()).decode()
