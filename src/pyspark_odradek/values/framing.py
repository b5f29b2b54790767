"""Encodes a column of values for the topic sink with a schema of a registry: the frame, and Avro or Protobuf behind it.

The driver finds the schema, or registers it, and tasks get its id. It repeats that for each batch of a stream, since
Spark then creates the writer in another process. Values in Avro and Protobuf are structs; values in JSON are already
text, and only get the frame. Rules and encryption of Confluent's serializers are not supported.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from pyspark_odradek.errors import OptionError, one_line
from pyspark_odradek.extras import needing
from pyspark_odradek.value_options import WrittenValues
from pyspark_odradek.values.avro_references import whole
from pyspark_odradek.values.frame import frame_of
from pyspark_odradek.values.registry import Registry, parse_references

log = logging.getLogger("pyspark_odradek")


class _Rows(Protocol):
    def encode(self, column: Any, head: bytes) -> Any: ...


class Structs(NamedTuple):
    """The encoding of structs as values; picklable.

    Attributes:
        columns: of the structs.
        schema: as the option valueSchema gives it, without files and references.
        message: the full name of the message; None for Avro.
    """

    columns: StructType
    schema: str
    message: str | None = None

    def rows(self) -> _Rows:
        """Their encoder. Raises OptionError where the schema does not hold the columns."""
        if self.message is None:
            from pyspark_odradek.values.avro_writing import AvroRows

            return AvroRows(self.columns, self.schema)
        from pyspark_odradek.values.protobuf_writing import ProtobufRows

        return ProtobufRows(self.columns, self.schema, self.message)


class Framing:
    """Encodes columns of values; picklable.

    Args:
        schema_id: the id in the registry.
        structs: None for text that only gets the frame.
    """

    def __init__(self, schema_id: int, structs: Structs | None = None) -> None:
        self.schema_id = schema_id
        self._structs = structs
        self._rows: _Rows | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state without the encoder, which each task creates."""
        return self.__dict__ | {"_rows": None}

    def encode(self, column: Any) -> Any:
        """Encode a column as an array of bytes; nulls stay null. Raises OptionError."""
        head = frame_of(self.schema_id)
        if self._structs is None:
            return pc.binary_join_element_wise(head, column.cast(pa.binary()), b"")
        if self._rows is None:
            self._rows = self._structs.rows()
        return self._rows.encode(column, head)


def framing_of(values: WrittenValues, column: DataType) -> Framing:
    """The encoder of a column, with its schema in the registry.

    The schema is the option valueSchema, which is registered if its subject does not have it. Without the option it is
    the newest schema of the subject; if there is none, a schema for Avro is derived from the columns, and registered.

    Raises:
        OptionError: the column does not fit, or the registry refuses the schema.
        ClusterError: the registry refuses, or does not answer.
    """
    return _FORMS[values.form](values, column, Registry(values.registry))


def _json(values: WrittenValues, column: DataType, registry: Registry) -> Framing:
    if not isinstance(column, StringType | BinaryType):
        raise OptionError(
            f"column value is {column.simpleString()}: valueFormat=json takes text, as of to_json(struct(*))"
        )
    if values.schema is not None:
        _refuse_other_than_json(values.schema)
        references = parse_references(values.references)
        return Framing(registry.register(values.subject, values.schema, "json", references))
    newest = registry.latest(values.subject, "json")
    if newest is None:
        raise _no_subject(values, "its JSON Schema")
    return Framing(newest.schema_id)


def _avro(values: WrittenValues, column: DataType, registry: Registry) -> Framing:
    columns = _columns(values, column)
    with needing("avro", "valueFormat=avro"):
        from pyspark_odradek.values.avro_writing import refuse_unfit, schema_of
    if values.schema is not None:
        references = parse_references(values.references)
        schema = registry.whole(values.schema, references)
        refuse_unfit(columns, schema)
        schema_id = registry.register(values.subject, values.schema, "avro", references)
        return Framing(schema_id, Structs(columns, schema))
    newest = registry.latest(values.subject, "avro")
    if newest is not None:
        schema = whole(newest.schema, newest.needed)
        refuse_unfit(columns, schema)
        return Framing(newest.schema_id, Structs(columns, schema))
    schema = schema_of(columns)
    schema_id = registry.register(values.subject, schema, "avro")
    log.warning("registered schema %d of the columns under %s: %s", schema_id, values.subject, schema)
    return Framing(schema_id, Structs(columns, schema))


def _protobuf(values: WrittenValues, column: DataType, registry: Registry) -> Framing:
    columns = _columns(values, column)
    with needing("protobuf", "valueFormat=protobuf"):
        from pyspark_odradek.values.protobuf_files import newest, register
        from pyspark_odradek.values.protobuf_values import embedded, find_message
    if values.schema is not None:
        schema = embedded(values.schema)
        message = find_message(schema, values.message)
        structs = Structs(columns, schema, message.full_name)
        structs.rows()
        return Framing(register(registry, values.subject, message.file), structs)
    found = newest(registry, values.subject)
    if found is None:
        raise _no_subject(values, "a descriptor set")
    structs = Structs(columns, found.schema, find_message(found.schema, values.message).full_name)
    structs.rows()
    return Framing(found.schema_id, structs)


_FORMS: dict[str, Callable[[WrittenValues, DataType, Registry], Framing]] = {
    "avro": _avro,
    "json": _json,
    "protobuf": _protobuf,
}


def _columns(values: WrittenValues, column: DataType) -> StructType:
    if not isinstance(column, StructType):
        raise OptionError(
            f"column value is {column.simpleString()}: valueFormat={values.form} takes a struct, as of struct(*)"
        )
    return column


def _no_subject(values: WrittenValues, schema: str) -> OptionError:
    return OptionError(
        f"the schema registry has no subject {values.subject}: give {schema} as the option valueSchema, "
        "which registers it, or set schemaRegistrySubject"
    )


def _refuse_other_than_json(schema: str) -> None:
    try:
        found = json.loads(schema)
    except ValueError as error:
        raise OptionError(f"valueSchema is not valid JSON: {one_line(error)}") from None
    if not isinstance(found, dict | bool):
        raise OptionError("valueSchema must be a JSON Schema")
