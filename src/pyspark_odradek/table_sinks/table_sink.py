"""The base of the exactly-once sinks into tables: tasks stage rows invisibly to readers, the driver commits them once.

A sink has a message for the rows that a task has staged, and one atomic step that adds the rows of all tasks and the
batch's number to the table. If Spark runs a batch again after a failure, it finds the number there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, StructType

from odradek.common.backoff import Backoff
from pyspark_odradek.errors import ClusterError, OptionError, StagingError, one_line
from pyspark_odradek.micro_batch.checkpoint import plan_of
from pyspark_odradek.micro_batch.task import Task, same_task, streaming_task
from pyspark_odradek.options import WRITE_OPTIONS, check_names, lowered
from pyspark_odradek.spark_api import DataSourceStreamArrowWriter

log = logging.getLogger("pyspark_odradek")
R = TypeVar("R")
T = TypeVar("T")

KEY_OPTIONS = ("keyColumns", "deleteColumn")
PATIENCE_S = 120.0
FIRST_PAUSE_MS, LAST_PAUSE_MS = 50, 1_000
SILENT_S = 1.5  # shorter waits are not logged


@dataclass
class LeftRows(WriterCommitMessage):
    """The message of a task to the driver about its staged rows."""

    task: Task

    def is_empty(self) -> bool:
        """Whether the task had no row."""
        raise AssertionError("a sink says what its tasks leave")


def new_columns(
    table: str, present: Mapping[str, T], ours: Mapping[str, T], *, required: Iterable[str], merge_schema: bool
) -> dict[str, T]:
    """The columns of the rows that the table lacks, with their types.

    Args:
        present: the table's columns; ours: those of the rows.
        required: columns of the table that are never null.
        merge_schema: whether columns may be added to the table.
    Raises:
        OptionError: the rows do not match the table.
    """
    changed = [f"{name} is {present[name]} there, {ours[name]} here" for name in ours if _differ(name, present, ours)]
    if changed:
        raise OptionError(
            f"the columns do not fit the table {table}: {', '.join(changed)}. Cast them, or take another table"
        )
    lacking = _not_in(ours, required)
    if lacking:
        raise OptionError(f"the table {table} requires a column {', '.join(lacking)}: add it")
    new = _not_in(present, ours)
    if new and not merge_schema:
        raise OptionError(
            f"the table {table} has no column {', '.join(new)}: set mergeSchema=true to add it, or drop it"
        )
    return {name: ours[name] for name in new}


def _not_in(columns: Collection[str], names: Iterable[str]) -> list[str]:
    return [name for name in names if name not in columns]


def _differ(name: str, present: Mapping[str, T], ours: Mapping[str, T]) -> bool:
    return name in present and present[name] != ours[name]


class TableStreamWriter(DataSourceStreamArrowWriter):
    """A stream into a table; a sink adds `write`, `commit_once` and its options.

    `keys` are the columns by which rows replace each other, none where rows are added; `delete_column` says which rows
    are deleted instead, and is the one column that is not among those `written`.
    """

    what: ClassVar[str]
    known: ClassVar[list[str]]

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(f"the {self.what} sink does not overwrite; use the output mode append")
        self.options = lowered(given)
        self._refuse_what_is_of_topics()
        check_names({name: value for name, value in self.options.items() if not self.is_passed_on(name)}, self.known)
        self.schema = schema
        self.keys = self._keys()
        self.delete_column = self._delete_column()
        self.written = StructType([each for each in schema if each.name != self.delete_column])

    def is_passed_on(self, name: str) -> bool:
        """Whether another library checks an option; its name is in lower case."""
        return False

    def _refuse_what_is_of_topics(self) -> None:
        """Raise OptionError for options of the topic sink, which have no effect here."""
        if any(name.startswith("kafka.") for name in self.options):
            raise OptionError(f"kafka.* options have no meaning for the {self.what} sink; remove them")
        found = [name for name in WRITE_OPTIONS if name.lower() in self.options and name not in self.known]
        found += [name for name in self.options if name.startswith("topic.")]
        if found:
            raise OptionError(
                f"{', '.join(found)}: an option of sink=topic, which has no meaning for the {self.what} sink; remove "
                + ("it, at the query's source too: only a topic's output can be shared" if "gate" in found else "it")
            )

    def columns_of(self, option: str) -> list[str]:
        """The columns of an option, separated by commas. Raises OptionError for an unknown column."""
        names = [name.strip() for name in self.options.get(option.lower(), "").split(",") if name.strip()]
        missing = [name for name in names if name not in self.schema.fieldNames()]
        if missing:
            raise OptionError(f"{option} names {', '.join(missing)}, which no column is called")
        return names

    def _keys(self) -> list[str]:
        for name in KEY_OPTIONS:
            if name.lower() in self.options and name not in self.known:
                raise OptionError(
                    f"{name} is for sink=delta and sink=postgres: the {self.what} sink only appends; remove it"
                )
        names = list(dict.fromkeys(self.columns_of("keyColumns")))
        if "keycolumns" in self.options and not names:
            raise OptionError("keyColumns names no column: name those that identify rows, or remove it")
        return names

    def _delete_column(self) -> str | None:
        if "deletecolumn" not in self.options:
            return None
        names = self.columns_of("deleteColumn")
        if len(names) != 1:
            raise OptionError("deleteColumn is the name of one boolean column: where it is true, the row is deleted")
        (name,) = names
        if not self.keys:
            raise OptionError("deleteColumn needs keyColumns, by which the row to delete is found")
        if not isinstance(self.schema[name].dataType, BooleanType):
            kind = self.schema[name].dataType.simpleString()
            raise OptionError(
                f"deleteColumn names {name}, which is {kind}: it takes a boolean, such as `value IS NULL AS {name}`"
            )
        if name in self.keys:
            raise OptionError(f"deleteColumn names {name}, which is among keyColumns too, and is not written")
        return name

    def partition_columns_of(self, *unfit: type[DataType]) -> list[str]:
        """The partition columns. Raises OptionError for types that cannot be one."""
        names = self.columns_of("partitionColumns")
        if self.delete_column in names:
            raise OptionError(f"partitionColumns names {self.delete_column}, the deleteColumn, which is not written")
        for name in names:
            if isinstance(self.schema[name].dataType, (ArrayType, MapType, StructType, *unfit)):
                kind = self.schema[name].dataType.simpleString()
                raise OptionError(f"partitionColumns names {name}, which is {kind}: {self.what} divides no files by it")
        return names

    def one_of(self, option: str, choices: Sequence[str]) -> str:
        """The value of an option, by default the first choice. Raises OptionError."""
        value = self.options.get(option.lower(), choices[0]).lower()
        if value not in choices:
            raise OptionError(f"{option} is one of {', '.join(choices)}, not {value!r}")
        return value

    def task(self) -> Task:
        """The task that this process runs. Raises OptionError if it is not one of a streaming query."""
        return streaming_task()

    def plan(self, batch_id: int) -> str:
        """The identity of a batch among those of its number; empty if unknown."""
        return plan_of(self.options.get("checkpointlocation", ""), batch_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the batch to the table, once."""
        found = [message for message in messages if isinstance(message, LeftRows)]
        if len(found) != len(messages):
            raise StagingError(f"{len(messages) - len(found)} of {len(messages)} tasks did not say what they wrote")
        if any(not message.is_empty() for message in found):
            self.commit_once(same_task([message.task for message in found], batchId), found)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: Spark also calls this if a commit raised after it had succeeded, so nothing may be removed."""

    def commit_once(self, task: Task, found: Iterable[LeftRows]) -> bool:
        """Add the rows and the number of the batch to the table in one step; False if the batch is already there.

        Args:
            task: a task of the batch, which names query, run and batch.
            found: the messages of its tasks.
        Raises:
            FencedError: the table has later batches of this query.
            ClusterError: the table's store refused, or did not respond in time.
        """
        raise AssertionError("a sink says how it commits")


def patiently(attempt: Callable[[], R], passing: tuple[type[Exception], ...], what: str) -> R:
    """Retry an attempt after transient errors, at most for PATIENCE_S.

    An attempt whose response was lost may have succeeded: each attempt checks that for itself. An error that lasts is
    logged once, as a warning.

    Raises:
        ClusterError: the errors lasted; `what` names the operation.
    """
    began = time.monotonic()
    deadline = began + PATIENCE_S
    backoff = Backoff(FIRST_PAUSE_MS, LAST_PAUSE_MS)
    warned = False
    while True:
        try:
            return attempt()
        except passing as error:
            said = one_line(error)
            if time.monotonic() + backoff.pause_ms / 1000 > deadline:
                raise ClusterError(f"{what} in {PATIENCE_S:g} s: {said}") from None
            if not warned and time.monotonic() - began >= SILENT_S:
                log.warning("%s yet: %s; trying again for %g s", what, said, PATIENCE_S)
                warned = True
        time.sleep(backoff.next_ms() / 1000)
