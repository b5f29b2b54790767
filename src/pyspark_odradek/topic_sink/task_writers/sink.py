"""The writer of a stream whose tasks write to the brokers: no record passes through the driver, except in a repair."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import StagingError
from pyspark_odradek.micro_batch.checkpoint import plan_of
from pyspark_odradek.micro_batch.task import Task, same_task, streaming_task
from pyspark_odradek.record.encode import RowEncoder
from pyspark_odradek.spark_api import DataSourceStreamArrowWriter
from pyspark_odradek.topic_sink.exact_sink import ExactWriter, Topics, chunks, sweep
from pyspark_odradek.topic_sink.task_writers.decided import DecidedCommit
from pyspark_odradek.topic_sink.task_writers.prepared import Prepared
from pyspark_odradek.topic_sink.task_writers.writing import (
    KnownBatchError,
    StagedRows,
    TaskTransaction,
    transactional_id,
)
from pyspark_odradek.topic_sink.transaction import Work

log = logging.getLogger("pyspark_odradek")
REPORTED_PARTITIONS = 16  # of a task, to find those that several tasks write to; each task's message has them


@dataclass
class Handed(WriterCommitMessage):
    """The result of a task; `prepared` is None if it had no rows, or found the batch in the sink: `is_known`.

    `partitions` are those of its rows, at most REPORTED_PARTITIONS.
    """

    task: Task
    partitions: list[TopicPartition] = field(default_factory=list)
    prepared: Prepared | None = None
    is_known: bool = False


class TaskWritersStreamWriter(ExactWriter, DataSourceStreamArrowWriter):
    """`df.writeStream.format("odradek")` with `exactlyOnceWriters=tasks`."""

    def write(self, iterator: Iterator[Any]) -> Handed:
        """Write all rows of a task in a transaction that stays open. Raises OptionError, ClusterError, StagingError."""
        context = TaskContext.get()
        return self.prepare(iterator, streaming_task(), context.attemptNumber() if context is not None else 0)

    def prepare(self, iterator: Iterator[Any], task: Task, attempt_number: int) -> Handed:
        """The same, for a task that is known."""
        topics = Topics(self.cluster, self.options)
        encoder = RowEncoder(self.options.topic, topics.partition_count, self.form, task.partition_id + task.batch_id)
        folder, name = f"{task.query_id}/{task.run_id}/{task.batch_id}", f"{task.partition_id}-{task.attempt}"
        rows = StagedRows(self.staging, folder, name)
        prefix = self.options.transactional_id_prefix
        id_ = transactional_id(prefix, task, attempt_number)
        try:
            for chunk in chunks(iterator, self.columns, self.framing):
                rows.add(encoder.encode(chunk, time.time_ns() // 1_000_000))
            self.options.refuse_rows_among_markers({partition.topic for partition in rows.partitions})
            staged = rows.finish(id_)
            if staged is None:
                return Handed(task)
            timeout_ms = self.options.transaction_timeout_ms
            writing = TaskTransaction(self.cluster, id_, f"{prefix}{task.query_id}", transaction_timeout_ms=timeout_ms)
            prepared = writing.prepare(task, rows, staged)
        except KnownBatchError:
            rows.discard()
            return Handed(task, is_known=True)
        except Exception:
            # Not if the process is killed: the file is removed with those of its batch.
            rows.discard()
            raise
        return Handed(task, sorted(rows.partitions)[:REPORTED_PARTITIONS], prepared)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Decide the batch, and end the transactions of its tasks. Raises as `DecidedCommit.end_tasks`."""
        handed = _handed(messages)
        if len(handed) != len(messages):
            raise StagingError(f"{len(messages) - len(handed)} of {len(messages)} tasks did not say what they wrote")
        if not handed:
            return
        task = same_task([each.task for each in handed], batchId)
        prepared = tuple(each.prepared for each in handed if each.prepared is not None)
        partitions = frozenset(TopicPartition(each.topic, each.partition_id) for each in prepared)
        is_known = any(each.is_known for each in handed)
        self._warn_of_order(handed, task.run_id)
        plan = plan_of(self.options.checkpoint, batchId)
        work = Work(batchId, task.run_id, partitions, list, plan, prepared, is_known)
        transaction = self.transaction(task.query_id, batchId)
        assert isinstance(transaction, DecidedCommit), "there is no gate"
        if not prepared and not is_known:
            transaction.skip_empty(work)
        elif not transaction.commit(work):
            transaction.abandon(prepared, batchId)
        sweep(self.staging, task.query_id, task.run_id, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Abort transactions that are in no batch, after an error of a task or the commit.

        The next run ends those of a decided batch.
        """
        handed = _handed(messages)
        prepared = [each.prepared for each in handed if each.prepared is not None]
        if prepared:
            transaction = self.transaction(handed[0].task.query_id, batchId)
            assert isinstance(transaction, DecidedCommit), "there is no gate"
            transaction.abandon(prepared, batchId)

    def _warn_of_order(self, handed: list[Handed], run_id: str) -> None:
        """Log once in a run that several tasks write rows of one partition.

        Rows with one key have no order if several tasks write them.
        """
        if "key" not in self.columns or _ORDER_REPORTED.get(self.options.topic) == run_id:
            return
        writers = Counter(partition for each in handed for partition in each.partitions)
        shared = sorted(partition for partition, count in writers.items() if count > 1)
        if shared:
            _ORDER_REPORTED[self.options.topic] = run_id
            log.warning(
                "several tasks write to %s-%d: rows with one key keep their order where one task has all of them, as "
                "with one partition of the source or behind repartition(…, 'key'); see docs/spark-sink.md",
                *shared[0],
            )


# The last run in which this process has logged that, by topic.
_ORDER_REPORTED: dict[str | None, str] = {}


def _handed(messages: list[WriterCommitMessage | None]) -> list[Handed]:
    return [message for message in messages if isinstance(message, Handed)]
