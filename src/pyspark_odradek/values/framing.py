"""Encodes a column of values for the topic sink with a schema of a registry: the frame, and Avro behind it.

The driver finds the schema, or registers it, and tasks get its id. It repeats that for each batch of a stream, since
Spark then creates the writer in another process. Values in Avro are structs; values in JSON are already text, and only
get the frame. Rules and encryption of Confluent's serializers are not supported.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from pyspark_odradek.errors import OptionError, one_line
from pyspark_odradek.extras import needing
from pyspark_odradek.value_options import WrittenValues
from pyspark_odradek.values.frame import frame_of
from pyspark_odradek.values.registry import Registry

if TYPE_CHECKING:
    from pyspark_odradek.values.avro_writing import AvroRows

log = logging.getLogger("pyspark_odradek")


class Framing:
    """Encodes columns of values; picklable.

    Args:
        schema_id: the id in the registry.
        schema: the schema of the rows, in JSON; None for text that only gets the frame.
        columns: the columns of the structs.
    """

    def __init__(self, schema_id: int, schema: str | None = None, columns: StructType | None = None) -> None:
        self.schema_id = schema_id
        self._schema = schema
        self._columns = columns
        self._rows: AvroRows | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state without the encoder, which each task creates."""
        return self.__dict__ | {"_rows": None}

    def encode(self, column: Any) -> Any:
        """Encode a column as an array of bytes; nulls stay null. Raises OptionError."""
        head = frame_of(self.schema_id)
        if self._schema is None:
            return pc.binary_join_element_wise(head, column.cast(pa.binary()), b"")
        if self._rows is None:
            from pyspark_odradek.values.avro_writing import AvroRows

            assert self._columns is not None
            self._rows = AvroRows(self._columns, self._schema)
        return self._rows.encode(column, head)


def framing_of(values: WrittenValues, column: DataType) -> Framing:
    """The encoder of a column, with its schema in the registry.

    The schema is the option valueSchema, which is registered if its subject does not have it. Without the option it is
    the newest schema of the subject; if there is none, a schema for Avro is derived from the columns, and registered.

    Raises:
        OptionError: the column does not fit, or the registry refuses the schema.
        ClusterError: the registry refuses, or does not answer.
    """
    if values.form == "avro":
        return _avro(values, column)
    if not isinstance(column, StringType | BinaryType):
        raise OptionError(
            f"column value is {column.simpleString()}: valueFormat=json takes text, as of to_json(struct(*))"
        )
    registry = Registry(values.registry)
    if values.schema is not None:
        _refuse_other_than_json(values.schema)
        return Framing(registry.register(values.subject, values.schema, "json"))
    newest = registry.latest(values.subject, "json")
    if newest is None:
        raise OptionError(
            f"the schema registry has no subject {values.subject}: give its JSON Schema as the option valueSchema, "
            "which registers it, or set schemaRegistrySubject"
        )
    return Framing(newest.schema_id)


def _avro(values: WrittenValues, column: DataType) -> Framing:
    if not isinstance(column, StructType):
        raise OptionError(f"column value is {column.simpleString()}: valueFormat=avro takes a struct, as of struct(*)")
    with needing("avro", "valueFormat=avro"):
        from pyspark_odradek.values.avro_writing import refuse_unfit, schema_of
    registry = Registry(values.registry)
    if values.schema is not None:
        refuse_unfit(column, values.schema)
        return Framing(registry.register(values.subject, values.schema, "avro"), values.schema, column)
    newest = registry.latest(values.subject, "avro")
    if newest is not None:
        refuse_unfit(column, newest.schema)
        return Framing(newest.schema_id, newest.schema, column)
    schema = schema_of(column)
    schema_id = registry.register(values.subject, schema, "avro")
    log.warning("registered schema %d of the columns under %s: %s", schema_id, values.subject, schema)
    return Framing(schema_id, schema, column)


def _refuse_other_than_json(schema: str) -> None:
    try:
        found = json.loads(schema)
    except ValueError as error:
        raise OptionError(f"valueSchema is not valid JSON: {one_line(error)}") from None
    if not isinstance(found, dict | bool):
        raise OptionError("valueSchema must be a JSON Schema")
