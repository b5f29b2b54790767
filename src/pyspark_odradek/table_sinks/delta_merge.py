"""Merges a batch into a Delta table by key: rows are replaced, inserted or deleted, in one commit.

The driver reads the rows that the tasks have staged and selects the last row of each key. delta-rs merges them: it
searches the table for these keys and rewrites the files that contain any. `delta_sink` skips batches that are already
committed, and retries commits that conflict with others.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, WriterProperties
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_odradek.errors import OptionError, StagingError, one_line
from pyspark_odradek.micro_batch.staging import open_place

KEY_TYPES = (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
# Features that a merge would break or omit, by the setting that enables them.
NOT_MERGED = {
    "delta.appendOnly": "appendOnly",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.enableDeletionVectors": "deletionVectors",
}
# A table may have these without the setting: in files that were written while it was set.
IN_FILES = frozenset({"deletionVectors", "typeWidening"})
CODECS = {"none": "UNCOMPRESSED", "lz4": "LZ4_RAW"}  # of Parquet, where its name is another one than pyarrow's


class Merge:
    """The rows of one batch, one for each key.

    Args:
            rows: of Arrow, from `last_of_each_key`.
            keys: the columns that identify a row in the table.
        delete_column: the boolean column that says which rows are deleted; it is not written.
        compression: of the files, by pyarrow's name.
    """

    def __init__(self, rows: pa.Table, keys: list[str], delete_column: str | None, compression: str) -> None:
        self._keys = keys
        self._delete_column = delete_column
        self._codec = CODECS.get(compression, compression.upper())
        if delete_column is not None:
            at = rows.column_names.index(delete_column)
            rows = rows.set_column(at, delete_column, pc.fill_null(rows.column(delete_column), False))
        self._rows = rows

    def without_value(self, names: Iterable[str], partition_columns: list[str]) -> list[str]:
        """The columns in which a row that is written has no value."""
        written = self._rows
        if self._delete_column is not None:
            written = written.filter(pc.invert(written.column(self._delete_column)))
        return without_value(written, [name for name in names if name in written.column_names], partition_columns)

    def commit(self, table: DeltaTable, properties: CommitProperties) -> None:
        """Merge the rows into the table in one commit. Raises the errors of delta-rs."""
        before = table.version()
        self._merge(table, properties)
        if table.version() == before:
            # delta-rs makes no commit if no row changes; but the number must be committed.
            columns = table.metadata().partition_columns or None
            table.create_write_transaction([], "append", table.schema(), columns, commit_properties=properties)

    def _merge(self, table: DeltaTable, properties: CommitProperties) -> None:
        written = [name for name in self._rows.column_names if name != self._delete_column]
        values = {_quoted(name): f"source.{_quoted(name)}" for name in written}
        others = {_quoted(name): values[_quoted(name)] for name in written if name not in self._keys}
        merger = table.merge(
            self._rows,
            " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in self._keys),
            source_alias="source",
            target_alias="target",
            writer_properties=WriterProperties(compression=self._codec),  # type: ignore[arg-type]  # its literals
            commit_properties=properties,
        )
        stays = None
        if self._delete_column is not None:
            goes = f"source.{_quoted(self._delete_column)}"
            stays = f"NOT {goes}"
            merger = merger.when_matched_delete(goes)
        if others:
            merger = merger.when_matched_update(others, stays)
        merger.when_not_matched_insert(values, stays).execute()


def read_rows(place: str, names: Iterable[str], schema: pa.Schema) -> pa.Table:
    """The rows of these staged files, in this order.

    Raises:
        StagingError: a file cannot be read.
    """
    system, root = open_place(place, "path")
    found = [schema.empty_table()]
    for name in names:
        try:
            with system.open_input_file(f"{root}/{name}") as file:
                found.append(pq.ParquetFile(file).read().cast(schema))
        except (OSError, pa.ArrowException) as error:
            raise StagingError(
                f"the driver cannot read what a task wrote to {root}/{name}: {one_line(error)}. Nothing of this batch "
                "is in the table; a restart reads the same rows again."
            ) from None
    return pa.concat_tables(found)


def last_of_each_key(rows: pa.Table, keys: list[str]) -> pa.Table:
    """The last row of each key, in their order. No key may be null."""
    names = [str(number) for number in range(len(keys))]
    numbered = pa.table([*(rows.column(key) for key in keys), np.arange(rows.num_rows)], [*names, "row"])
    last = numbered.group_by(names).aggregate([("row", "max")]).column("row_max")
    stays = np.zeros(rows.num_rows, dtype=bool)
    stays[last.to_numpy()] = True
    return rows.filter(pa.array(stays))


def without_value(rows: pa.Table, names: list[str], partition_columns: list[str]) -> list[str]:
    """The columns in which a row has no value; for Delta, an empty text in a partition column is none."""
    return [
        name
        for name in names
        if rows.column(name).null_count
        or (
            name in partition_columns
            and pa.types.is_string(rows.schema.field(name).type)
            and pc.any(pc.equal(rows.column(name), "")).as_py()
        )
    ]


def check_keys(schema: StructType, keys: list[str]) -> None:
    """Raise OptionError for a column that cannot be a key: readers differ in what equals NaN and the two zeros."""
    for name in keys:
        if not isinstance(schema[name].dataType, KEY_TYPES):
            kind = schema[name].dataType.simpleString()
            raise OptionError(f"keyColumns names {name}, which is {kind}: its values do not identify rows; cast it")


def refuse_what_is_not_merged(table: DeltaTable, path: str) -> None:
    """Raise OptionError if the table has a feature that a merge would break."""
    settings = table.metadata().configuration
    asked = [what for name, what in NOT_MERGED.items() if str(settings.get(name, "")).lower() == "true"]
    asked += sorted(IN_FILES & set(table.protocol().writer_features or ()) - set(asked))
    if asked:
        raise OptionError(
            f"the table {path} has {', '.join(asked)}, which a merge by keyColumns does not keep: take another table, "
            "or write it with foreachBatch and Spark's own Delta"
        )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
