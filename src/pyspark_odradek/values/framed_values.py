"""Decodes Avro values of a schema registry, each by the schema whose id is in its frame.

Values of several schemas become the columns of the query's own schema.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyspark_odradek.errors import OptionError
from pyspark_odradek.values.avro_values import AvroValues, Change, Type, parse
from pyspark_odradek.values.evolution import resolved
from pyspark_odradek.values.frame import HEAD_BYTES, WITHOUT_FRAME, schema_id_of
from pyspark_odradek.values.registry import Registry, UnknownSchemaError


class FramedValues:
    """Decodes values, each by the schema that its frame names.

    Args:
        registry: has those schemas.
        reader: the schema of the columns, in JSON.
        wanted: the struct of Arrow that each value becomes.
    """

    def __init__(self, registry: Registry, reader: str, wanted: Any) -> None:
        self._registry = registry
        self._reader = parse(reader)
        self._wanted = wanted
        self._by_id: dict[int, AvroValues | str] = {}  # or why values of this schema cannot be read

    def decode(self, values: Any) -> tuple[Any, dict[int, str]]:
        """Decode values; returns (an array of structs, reasons by row of invalid values, which are null like nulls).

        Raises:
            ClusterError: the registry refuses, or does not answer.
        """
        raw = values.to_pylist()
        wrong: dict[int, str] = {}
        of_schema: dict[int, list[int]] = {}
        for row, value in enumerate(raw):
            if value is None:
                continue
            schema_id = schema_id_of(value)
            if schema_id is None:
                wrong[row] = WITHOUT_FRAME
            else:
                of_schema.setdefault(schema_id, []).append(row)
        columns: list[Any] = []
        order: list[int] = []
        for schema_id, rows in of_schema.items():
            decoder = self._decoder(schema_id)
            if isinstance(decoder, str):
                wrong |= dict.fromkeys(rows, decoder)
                continue
            column, reasons = decoder.decode(pa.array([raw[row][HEAD_BYTES:] for row in rows], pa.binary()))
            wrong |= {rows[number]: reason for number, reason in reasons.items()}
            columns.append(column)
            order += rows
        return self._placed(columns, order, len(raw)), wrong

    def _placed(self, columns: list[Any], order: list[int], count: int) -> Any:
        """The decoded values at their rows; other rows are null."""
        places: list[int | None] = [None] * count
        for number, row in enumerate(order):
            places[row] = number
        together = pa.concat_arrays(columns) if columns else pa.array([], self._wanted)
        return together.take(pa.array(places, pa.int64()))

    def _decoder(self, schema_id: int) -> AvroValues | str:
        if schema_id not in self._by_id:
            self._by_id[schema_id] = self._made(schema_id)
        return self._by_id[schema_id]

    def _evolved(self, writer: Type) -> Change | None:
        return resolved(writer, self._reader)

    def _made(self, schema_id: int) -> AvroValues | str:
        try:
            return AvroValues(self._registry.schema(schema_id), self._wanted, self._evolved)
        except UnknownSchemaError as error:
            return str(error)
        except OptionError as error:
            return f"schema {schema_id} of the registry: {str(error).removeprefix('valueSchema: ')}"
