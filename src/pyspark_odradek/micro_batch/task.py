"""The identity of a sink's task: its query, run and batch."""

from __future__ import annotations

from typing import NamedTuple

from pyspark import TaskContext

from pyspark_odradek.errors import FencedError, OptionError, StagingError


class Task(NamedTuple):
    """A task of a streaming query, as Spark names it to the process that runs it.

    `query_id` is the checkpoint's and stays over restarts, `run_id` is new at each start; `attempt` is no other task's
    in the run, also where a task is tried again or runs twice.
    """

    query_id: str
    run_id: str
    batch_id: int
    partition_id: int
    attempt: int


def streaming_task() -> Task:
    """The task that this process runs. Raises OptionError where it is none of a streaming query."""
    context = TaskContext.get()
    query_id = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    batch_id = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    if context is None or query_id is None or batch_id is None:
        raise OptionError("an exactly-once sink runs only in a task of a streaming query")
    run_id = context.getLocalProperty("spark.jobGroup.id") or ""
    return Task(query_id, run_id, int(batch_id), context.partitionId(), context.taskAttemptId())


def same_task(tasks: list[Task], batch_id: int) -> Task:
    """One of them, after a look that all are of this batch, and of one query and run. Raises StagingError."""
    first = tasks[0]
    for task in tasks:
        if task[:3] != (first.query_id, first.run_id, batch_id):
            raise StagingError(f"a task staged for batch {task.batch_id} where {batch_id} is committed")
    return first


def is_written(found: int | None, batch_id: int, where: str, *, found_plan: str = "", plan: str = "") -> bool:
    """Whether a batch is in a sink whose newest batch is `found`.

    Args:
        found_plan: by what that batch is known from another one of its number (`checkpoint.plan_of`); empty where it
            is not known, and so for `plan`, of the batch that is asked for.
    Raises:
        FencedError: later batches are there, or another one of this number: another driver runs, or the checkpoint is
            an older one.
    """
    if found is None or found < batch_id:
        return False
    if found > batch_id:
        raise FencedError(
            f"{where} has batch {found} of this query already, and this driver is at batch {batch_id}: another driver "
            "runs on the same checkpoint, or the checkpoint was put back to an older state. Nothing was written; stop "
            "the other driver, or start with a new checkpoint."
        )
    if found_plan and plan and found_plan != plan:
        raise FencedError(
            f"{where} has a batch {batch_id} of this query already, which was planned otherwise: the checkpoint was "
            "put back to an older state. To leave this one out might lose records, to write it would write some twice; "
            "start with a new checkpoint, and startingOffsets behind what is written."
        )
    return True
