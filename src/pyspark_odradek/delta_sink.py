"""An exactly-once sink into a Delta table: tasks write Parquet files, the driver adds them in one commit of its log.

The commit bears the query's id and the batch's number as Delta's own transaction identifier, in the same atomic step
as the files. A batch that Spark runs again finds its number and is left out; files that no commit names are seen by
nobody, and `vacuum` removes them. delta-rs keeps the number but does not refuse an old one, and merges commits that
come at the same time; so a commit is tried at exactly the version that was looked at, and a second look follows where
it lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.schema import Field as DeltaField
from deltalake.schema import Schema as DeltaSchema
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.types import StructType

from pyspark_odradek.errors import ClusterError, OptionError
from pyspark_odradek.options import boolean
from pyspark_odradek.parquet_files import (
    COMPRESSIONS,
    LeftFiles,
    ParquetFiles,
    PlaceFolder,
    WrittenFile,
    all_files,
    arrow_schema,
    write_files,
)
from pyspark_odradek.table_sink import LeftRows, TableStreamWriter
from pyspark_odradek.task import Task, is_written

log = logging.getLogger("pyspark_odradek")

TRIES = 20  # commits of others that may come between a look at the table and ours


class DeltaStreamWriter(TableStreamWriter):
    """`df.writeStream.format("odradek").option("sink", "delta").start(path)`."""

    what = "Delta"
    known: ClassVar[list[str]] = ["sink", "path", "partitionColumns", "mergeSchema", "compression"]

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(given, schema, overwrite=overwrite)
        self.path = self.options.get("path", "").removeprefix("file://")
        if not self.path:
            raise OptionError("the Delta sink needs the table's folder: start(path), or the option path")
        self.merge_schema = boolean(self.options, "mergeSchema", False)
        self.compression = self.one_of("compression", COMPRESSIONS)
        self.partition_columns = self.columns_of("partitionColumns")

    def write(self, iterator: Iterator[Any]) -> LeftFiles:
        """Write all rows of a task into files. Raises StagingError."""
        wanted = arrow_schema(self.schema)
        files = ParquetFiles(PlaceFolder(self.path), wanted, self.partition_columns, self.compression)
        return write_files(self.task(), files, iterator, wanted, self.path)

    def commit_once(self, task: Task, found: Iterable[LeftRows]) -> bool:
        """Add the files in one commit of the table's log."""
        actions: list[AddAction | RemoveAction] = [_add_action(file) for file in all_files(found)]
        for _ in range(TRIES):
            table = self.table()
            if is_written(table.transaction_version(task.query_id), task.batch_id, f"the table {self.path}"):
                log.warning("batch %d is in %s already and is not written again", task.batch_id, self.path)
                return False
            marker = Transaction(task.query_id, task.batch_id, last_updated=time.time_ns() // 1_000_000)
            try:
                table.create_write_transaction(
                    actions,
                    "append",
                    table.schema(),
                    self.partition_columns or None,
                    commit_properties=CommitProperties(app_transactions=[marker], max_commit_retries=0),
                )
                return True
            except CommitFailedError as error:
                log.info("another commit of %s came first: %s", self.path, error)
        raise ClusterError(
            f"{self.path}: {TRIES} commits of others came between; batch {task.batch_id} was not written"
        )

    def table(self) -> DeltaTable:
        """The table as it is now, made where it is not there. Raises OptionError where its columns do not fit."""
        wanted = arrow_schema(self.schema)
        if not DeltaTable.is_deltatable(self.path):
            DeltaTable.create(self.path, wanted, mode="ignore", partition_by=self.partition_columns or None)
        table = DeltaTable(self.path)
        is_partitioned_by = table.metadata().partition_columns
        if is_partitioned_by != self.partition_columns:
            raise OptionError(
                f"the table {self.path} is partitioned by {', '.join(is_partitioned_by) or 'nothing'}: set "
                f"partitionColumns to the same"
            )
        present = {each.name: each for each in table.schema().fields}
        ours = DeltaSchema.from_arrow(wanted)
        changed = [each for each in ours.fields if each.name in present and present[each.name].type != each.type]
        if changed:
            kinds = ", ".join(f"{each.name} is {present[each.name].type} there, {each.type} here" for each in changed)
            raise OptionError(
                f"the columns do not fit the table {self.path}: {kinds}. Cast them, or take another table"
            )
        new = [DeltaField(each.name, each.type) for each in ours.fields if each.name not in present]
        if new and not self.merge_schema:
            names = ", ".join(each.name for each in new)
            raise OptionError(
                f"the table {self.path} has no column {names}: set mergeSchema=true to add it, or drop it"
            )
        if new:
            table.alter.add_columns(new)
            table = DeltaTable(self.path)
        return table


def _partition_value(value: Any) -> str | None:
    """As Delta's log has it: the text of the value, true and false in small letters."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if hasattr(value, "tzinfo"):
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")  # type: ignore[no-any-return]
    return str(value)


def _add_action(file: WrittenFile) -> AddAction:
    return AddAction(
        path=file.name,
        size=file.size_bytes,
        partition_values={name: _partition_value(value) for name, value in file.values.items()},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=f'{{"numRecords":{file.rows}}}',
    )
