"""An exactly-once sink into a Delta table: tasks write Parquet files, the driver adds them in one commit of its log.

With `keyColumns` the driver merges their rows by key instead (`delta_merge`), in one commit as well.

The commit contains the query's id and the batch's number as Delta's transaction identifier, in the same atomic step as
the files. If Spark runs a batch again, its number is found and the batch is skipped; files that no commit names are
invisible to readers, and `vacuum` removes them. delta-rs stores the number but does not refuse an old one, and merges
concurrent commits; so a commit is tried on exactly the version that was read, and after a conflict the table is read
again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import Field as DeltaField
from deltalake.schema import Schema as DeltaSchema
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.types import BinaryType, DecimalType, StructType

from odradek.common.backoff import Backoff
from pyspark_odradek.errors import ClusterError, OptionError, StagingError, one_line
from pyspark_odradek.micro_batch.staging import open_place
from pyspark_odradek.micro_batch.task import Task, is_written
from pyspark_odradek.options import boolean
from pyspark_odradek.spark_api import arrow_schema
from pyspark_odradek.table_sinks.delta_merge import (
    Merge,
    check_keys,
    last_of_each_key,
    read_rows,
    refuse_what_is_not_merged,
    without_value,
)
from pyspark_odradek.table_sinks.parquet_files import (
    COMPRESSIONS,
    LeftFiles,
    ParquetFiles,
    PlaceFolder,
    WrittenFile,
    all_files,
    write_files,
)
from pyspark_odradek.table_sinks.table_sink import (
    FIRST_PAUSE_MS,
    KEY_OPTIONS,
    LAST_PAUSE_MS,
    LeftRows,
    TableStreamWriter,
    new_columns,
)

log = logging.getLogger("pyspark_odradek")

TRIES = 20  # commits of others that may come between a look at the table and ours
# Writer features that appended files do not break.
KEPT_FEATURES = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "invariants",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
# The metadata of columns that a table computes or checks; this sink does neither.
COMPUTED = ("delta.generationExpression", "delta.identity.start", "delta.invariants")


class DeltaStreamWriter(TableStreamWriter):
    """`df.writeStream.format("odradek").option("sink", "delta").start(path)`."""

    what = "Delta"
    known: ClassVar[list[str]] = ["sink", "path", "partitionColumns", "mergeSchema", "compression", *KEY_OPTIONS]

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(given, schema, overwrite=overwrite)
        self.path = self.options.get("path", "")
        if self.path.startswith("file:"):
            self.path = "/" + self.path.removeprefix("file:").lstrip("/")
        if not self.path:
            raise OptionError("the Delta sink needs the table's folder: start(path), or the option path")
        self.merge_schema = boolean(self.options, "mergeSchema", False)
        self.compression = self.one_of("compression", COMPRESSIONS)
        _check_types(self.written)
        with _columns_that_fit(self.path):
            DeltaSchema.from_arrow(arrow_schema(self.written))
        check_keys(schema, self.keys)
        # delta-rs writes negative decimals to the log as a text that no reader reads, and does not read the right one.
        self.partition_columns = self.partition_columns_of(BinaryType, DecimalType)
        if len(self.partition_columns) == len(self.written):
            raise OptionError("partitionColumns names all columns: Delta's files hold the others, so leave one out")

    def write(self, iterator: Iterator[Any]) -> LeftFiles:
        """Write all rows of a task into files. Raises StagingError."""
        wanted = arrow_schema(self.schema)
        divided_by = [] if self.keys else self.partition_columns  # files to merge are read again, whole
        files = ParquetFiles(PlaceFolder(self.path), wanted, divided_by, self.compression)
        return write_files(self.task(), files, iterator, wanted, self.path)

    def commit_once(self, task: Task, found: Iterable[LeftRows]) -> bool:
        """Add the files, or merge their rows, in one commit of the table's log."""
        files = all_files(sorted(found, key=lambda left: left.task.partition_id))
        self._check_files(files)
        if not self.keys:
            return self._commit(task, partial(self._append, files, task.batch_id))
        rows = read_rows(self.path, [file.name for file in files], arrow_schema(self.schema))
        self._refuse_empty(without_value(rows, self.keys, self.partition_columns), "keyColumns names", task.batch_id)
        merge = Merge(last_of_each_key(rows, self.keys), self.keys, self.delete_column, self.compression)
        is_new = self._commit(task, partial(self._merge, merge, task.batch_id))
        self._remove(files)
        return is_new

    def _commit(self, task: Task, change: Callable[[DeltaTable, CommitProperties], None]) -> bool:
        """Commit a change and the batch's number on the version that was read; False if the batch is already there."""
        plan = self.plan(task.batch_id)
        backoff = Backoff(FIRST_PAUSE_MS, LAST_PAUSE_MS)
        for tried in range(TRIES):
            if tried:
                time.sleep(backoff.next_ms() / 1000)
            table = self.table()
            if self._is_there(table, task, plan):
                log.warning("batch %d is in %s already and is not written again", task.batch_id, self.path)
                return False
            now_ms = time.time_ns() // 1_000_000
            markers = [
                Transaction(task.query_id, task.batch_id, last_updated=now_ms),
                Transaction(f"{task.query_id}.plan", _as_version(plan), last_updated=now_ms),
            ]
            try:
                change(table, CommitProperties(app_transactions=markers, max_commit_retries=0))
                return True
            except CommitFailedError as error:
                if self.keys and not tried:
                    log.warning("another commit of %s came first; batch %d is merged again", self.path, task.batch_id)
                log.info("another commit of %s came first: %s", self.path, error)
            except (DeltaError, OSError) as error:
                raise ClusterError(f"batch {task.batch_id} was refused by {self.path}: {_summary(error)}") from None
            except ClusterError:
                raise
            except Exception as error:  # of delta-rs, too, where it cannot read what it has just committed
                raise ClusterError(
                    f"whether batch {task.batch_id} is in {self.path} is not known, a restart looks for it: "
                    f"{_summary(error)}"
                ) from error
        raise ClusterError(
            f"{self.path}: {TRIES} commits of others came between; batch {task.batch_id} was not written"
        )

    def _append(self, files: list[WrittenFile], batch_id: int, table: DeltaTable, properties: CommitProperties) -> None:
        lacking: set[str] = set().union(*(file.with_nulls for file in files))
        lacking.update(name for file in files for name, value in file.values.items() if value == "")  # null to Delta
        empty = set(_never_null(table)) & lacking
        self._refuse_empty(sorted(empty), f"the table {self.path} requires", batch_id)
        actions: list[AddAction | RemoveAction] = [_add_action(file) for file in files]
        columns = self.partition_columns or None
        table.create_write_transaction(actions, "append", table.schema(), columns, commit_properties=properties)

    def _merge(self, merge: Merge, batch_id: int, table: DeltaTable, properties: CommitProperties) -> None:
        empty = merge.without_value(_never_null(table), self.partition_columns)
        self._refuse_empty(empty, f"the table {self.path} requires", batch_id)
        merge.commit(table, properties)

    def _remove(self, files: list[WrittenFile]) -> None:
        """Remove staged files after their merge; `vacuum` removes those that cannot be removed now."""
        folder = PlaceFolder(self.path)
        for file in files:
            try:
                folder.remove(file.name)
            except OSError as error:
                log.warning("%s, whose rows are in %s, could not be removed: %s", file.name, self.path, error)

    def table(self) -> DeltaTable:
        """The newest version of the table, which is created if it does not exist.

        Raises:
            OptionError: its columns do not match, or it requires a writer feature that this sink does not have.
            ClusterError: it cannot be opened.
        """
        wanted = arrow_schema(self.written)
        try:
            if not DeltaTable.is_deltatable(self.path):
                DeltaTable.create(self.path, wanted, mode="ignore", partition_by=self.partition_columns or None)
            return self._fitting(DeltaTable(self.path), DeltaSchema.from_arrow(wanted))
        except (DeltaError, OSError) as error:
            raise ClusterError(f"cannot open the table {self.path}: {_summary(error)}") from None

    def _fitting(self, table: DeltaTable, ours: DeltaSchema) -> DeltaTable:
        _refuse_what_is_not_kept(table, self.path)
        if self.keys:
            refuse_what_is_not_merged(table, self.path)
        is_partitioned_by = table.metadata().partition_columns
        if is_partitioned_by != self.partition_columns:
            raise OptionError(
                f"the table {self.path} is partitioned by {', '.join(is_partitioned_by) or 'nothing'}: set "
                f"partitionColumns to the same"
            )
        new = new_columns(
            self.path,
            {each.name: each.type for each in table.schema().fields},
            {each.name: each.type for each in ours.fields},
            required=_never_null(table),
            merge_schema=self.merge_schema,
        )
        if new:
            with _columns_that_fit(self.path):
                table.alter.add_columns([DeltaField(name, type_) for name, type_ in new.items()])
            table = DeltaTable(self.path)
        return table

    def _is_there(self, table: DeltaTable, task: Task, plan: str) -> bool:
        """Whether the table has the batch. Its plan is the version of a second transaction identifier, 0 for none."""
        found = table.transaction_version(f"{task.query_id}.plan")
        return is_written(
            table.transaction_version(task.query_id),
            task.batch_id,
            f"the table {self.path}",
            found_plan=str(found or ""),
            plan=str(_as_version(plan) or ""),
        )

    def _check_files(self, files: list[WrittenFile]) -> None:
        """Check that each file exists at its path in the table's log: otherwise no reader could read the table.

        Raises:
            StagingError: a file does not exist.
            ClusterError: the store does not let the driver read.
        """
        system, root = open_place(self.path, "path")
        try:
            found = system.get_file_info([f"{root}/{file.name}" for file in files])
        except OSError as error:
            raise ClusterError(
                f"the driver cannot look for what the tasks wrote to {self.path}: {one_line(error)}. Nothing "
                "of this batch is in the table; a restart reads the same rows again."
            ) from None
        for file, info in zip(files, found, strict=True):
            if info.size != file.size_bytes:
                raise StagingError(
                    f"the driver does not find what a task wrote to {info.path}: the table's folder must be storage "
                    "that driver and executors share, named by a whole path. Nothing of this batch is in the table."
                )

    def _refuse_empty(self, columns: list[str], who: str, batch_id: int) -> None:
        """Raise ClusterError if rows have no value in required columns; `who` is the reason for the text."""
        if columns:
            raise ClusterError(
                f"batch {batch_id} was refused: rows of it have no {', '.join(columns)}, which {who}. Nothing of it "
                "was written; a restart reads the same rows again, so filter or fix them in the query."
            )


def _as_version(plan: str) -> int:
    """A plan as a number of 63 bits; 0 if it is unknown."""
    return int(plan or "0", 16) >> 1


def _check_types(schema: StructType) -> None:
    """Raise OptionError for types that do not exist in Delta."""
    for each in schema:
        try:
            DeltaSchema.from_arrow(arrow_schema(StructType([each])))
        except Exception:  # delta-rs and pyspark raise no class of their own for it
            kind = each.dataType.simpleString()
            raise OptionError(f"the column {each.name} is {kind}, which Delta has not: cast it") from None


@contextmanager
def _columns_that_fit(path: str) -> Iterator[None]:
    """Raise OptionError for columns that delta-rs refuses, such as two names that differ only by case."""
    try:
        yield
    except (DeltaError, OSError):
        raise
    except Exception as error:  # delta-rs raises no class of its own for it
        raise OptionError(
            f"the table {path} does not take the columns: {_summary(error)}. Rename or drop them"
        ) from None


def _never_null(table: DeltaTable) -> list[str]:
    return [each.name for each in table.schema().fields if not each.nullable]


def _refuse_what_is_not_kept(table: DeltaTable, path: str) -> None:
    """Raise OptionError if the table has a feature that added files would break."""
    settings = table.metadata().configuration
    kept = [name.removeprefix("delta.") for name in settings if name.startswith("delta.constraints.")]
    if settings.get("delta.columnMapping.mode", "none") != "none":
        kept.append("column mapping")
    kept += [
        f"{name[6:]} of {each.name}" for each in table.schema().fields for name in COMPUTED if name in each.metadata
    ]
    kept += sorted(set(table.protocol().writer_features or ()) - KEPT_FEATURES)
    if kept:
        raise OptionError(
            f"the table {path} has {', '.join(kept)}, which this sink does not keep: write it with foreachBatch and "
            "Spark's own Delta, or take another table"
        )


def _summary(error: Exception) -> str:
    """The first line of an error; the others are the place in delta-rs that raised it."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _partition_value(value: Any) -> str | None:
    """A partition value in Delta's log: its text, with true and false in lower case."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if hasattr(value, "tzinfo"):
        text: str = value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        return text
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
