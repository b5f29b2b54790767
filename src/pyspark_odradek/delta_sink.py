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
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.schema import Field as DeltaField
from deltalake.schema import Schema as DeltaSchema
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_odradek.errors import ClusterError, OptionError, StagingError
from pyspark_odradek.options import boolean, check_names, lowered
from pyspark_odradek.staging import open_place
from pyspark_odradek.task import Task, is_written, same_task, streaming_task

log = logging.getLogger("pyspark_odradek")

DELTA_OPTIONS = ["sink", "path", "partitionColumns", "mergeSchema", "compression"]
COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")
TRIES = 20  # commits of others that may come between a look at the table and ours


@dataclass
class WrittenFile:
    """One Parquet file beneath the table that no commit names yet."""

    name: str
    size_bytes: int
    rows: int
    partition_values: dict[str, str | None] = field(default_factory=dict)


@dataclass
class DeltaFiles(WriterCommitMessage):
    """What a task has written."""

    task: Task
    files: list[WrittenFile]


class DeltaStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("odradek").option("sink", "delta").start(path)`."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        options = lowered(given)
        check_names(options, DELTA_OPTIONS)
        if any(name.startswith("kafka.") for name in options):
            raise OptionError("kafka.* options have no meaning for the Delta sink; leave them away")
        self.path = options.get("path", "").removeprefix("file://")
        if not self.path:
            raise OptionError("the Delta sink needs the table's folder: start(path), or the option path")
        self.schema = schema
        self.merge_schema = boolean(options, "mergeSchema", False)
        self.compression = options.get("compression", "snappy").lower()
        if self.compression not in COMPRESSIONS:
            raise OptionError(f"compression is one of {', '.join(COMPRESSIONS)}, not {self.compression!r}")
        self.partition_columns = [
            name.strip() for name in options.get("partitioncolumns", "").split(",") if name.strip()
        ]
        missing = set(self.partition_columns) - set(schema.fieldNames())
        if missing:
            raise OptionError(f"partitionColumns names {', '.join(sorted(missing))}, which no column is called")

    def write(self, iterator: Iterator[Any]) -> DeltaFiles:
        """Write all rows of a task into files. Raises StagingError."""
        task = streaming_task()
        wanted = to_arrow_schema(self.schema, timezone="UTC")
        files = _Files(self.path, wanted, self.partition_columns, self.compression)
        try:
            for batch in iterator:
                if batch.num_rows:
                    files.add(pa.Table.from_batches([batch]).cast(wanted))
            return DeltaFiles(task, files.close())
        except OSError as error:
            files.discard()
            raise StagingError(
                f"a task cannot write to {self.path}: {error}. Make room there; nothing of this batch is in the table."
            ) from None
        except BaseException:
            files.discard()
            raise

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make the batch part of the table, once."""
        found = [message for message in messages if isinstance(message, DeltaFiles)]
        if len(found) != len(messages):
            raise StagingError(f"{len(messages) - len(found)} of {len(messages)} tasks did not say what they wrote")
        files = [file for message in found for file in message.files]
        if files:
            task = same_task([message.task for message in found], batchId)
            self.commit_files(task.query_id, batchId, files)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing: Spark also calls this where a commit raised after it had happened, so no file may be removed."""

    def commit_files(self, query_id: str, batch_id: int, files: list[WrittenFile]) -> bool:
        """Add files in one commit; False where the batch is there already. Raises FencedError, ClusterError."""
        actions: list[AddAction | RemoveAction] = [_add_action(file) for file in files]
        for _ in range(TRIES):
            table = self.table()
            if is_written(table.transaction_version(query_id), batch_id, f"the table {self.path}"):
                log.warning("batch %d is in %s already and is not written again", batch_id, self.path)
                return False
            marker = Transaction(app_id=query_id, version=batch_id, last_updated=time.time_ns() // 1_000_000)
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
        raise ClusterError(f"{self.path}: {TRIES} commits of others came between; batch {batch_id} was not written")

    def table(self) -> DeltaTable:
        """The table as it is now, made where it is not there. Raises OptionError where its columns do not fit."""
        wanted = to_arrow_schema(self.schema, timezone="UTC")
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


class _Files:
    """The files of one task: one for each combination of values of the partition columns."""

    def __init__(self, path: str, schema: Any, partition_columns: list[str], compression: str) -> None:
        self._system, self._root = open_place(path)
        self._columns = partition_columns
        self._schema = pa.schema([each for each in schema if each.name not in partition_columns])
        self._compression = compression
        self._open: dict[tuple[Any, ...], tuple[str, Any, int]] = {}

    def add(self, rows: Any) -> None:
        if not self._columns:
            self._write((), rows)
            return
        keys = list(zip(*(rows.column(name).to_pylist() for name in self._columns), strict=True))
        for key in dict.fromkeys(keys):
            mask = pa.array([each == key for each in keys])
            self._write(key, rows.filter(mask).drop_columns(self._columns))

    def close(self) -> list[WrittenFile]:
        """Make the files complete, and say what they are."""
        found = []
        for key, (name, writer, rows) in self._open.items():
            writer.close()
            size = self._system.get_file_info(f"{self._root}/{name}").size
            values = {column: _partition_value(value) for column, value in zip(self._columns, key, strict=True)}
            found.append(WrittenFile(name, size, rows, values))
        return found

    def discard(self) -> None:
        """Remove them, as far as it can be; what stays is seen by nobody."""
        for name, writer, _ in self._open.values():
            try:
                writer.close()
                self._system.delete_file(f"{self._root}/{name}")
            except (OSError, pa.ArrowException) as error:
                log.warning("%s could not be removed: %s", name, error)

    def _write(self, key: tuple[Any, ...], rows: Any) -> None:
        if key not in self._open:
            name = f"part-{uuid.uuid4()}.{self._compression}.parquet"
            self._system.create_dir(self._root, recursive=True)
            writer = pq.ParquetWriter(
                f"{self._root}/{name}", self._schema, filesystem=self._system, compression=self._compression
            )
            self._open[key] = (name, writer, 0)
        name, writer, count = self._open[key]
        writer.write_table(rows.cast(self._schema))
        self._open[key] = (name, writer, count + rows.num_rows)


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
        partition_values=file.partition_values,
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=f'{{"numRecords":{file.rows}}}',
    )
