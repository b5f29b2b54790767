"""What a task does: its rows into a staged file, and into a transaction of its own that stays open.

The transactional id is of the query, its run, the task and its attempt. The next batch of the run takes the same one
again, so that a cluster has no more of them than a run has tasks, and what an attempt in vain has left open is aborted
by the next batch at the latest. An attempt that Spark gave up on, and that begins to write only then, aborts what the
next batch has prepared: the driver finds that when it ends the transactions, and writes those rows again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import NoReturn

from pyspark_odradek.cluster import RetriableError
from pyspark_odradek.encode import EncodedBatch
from pyspark_odradek.errors import FencedError
from pyspark_odradek.offsets import TopicPartition
from pyspark_odradek.staging import StagedFile, Staging, StagingFile
from pyspark_odradek.task import Task
from pyspark_odradek.task_writers.prepared import Prepared, evidence_offsets, frame
from pyspark_odradek.transaction import Session, TransactionalCommit, Work

HELD_BYTES = 32 << 20  # up to here rows are written from memory, above from the staged file


class StagedRows:
    """The rows of one task, in a file, and in memory too while they are few.

    Args:
        staging: driver and executors share it.
        folder: of the batch.
        name: of the task and its attempt.
    """

    def __init__(self, staging: Staging, folder: str, name: str) -> None:
        self.partitions: set[TopicPartition] = set()
        self._staging = staging
        self._folder = folder
        self._name = name
        self._held: list[EncodedBatch] | None = []
        self._held_bytes = 0
        self._file: StagingFile | None = None

    def add(self, batches: Iterable[EncodedBatch]) -> None:
        """Append. Raises StagingError."""
        for batch in batches:
            if self._file is None:
                self._file = self._staging.create(self._folder, self._name)
            self._file.write(frame(batch))
            self.partitions.add(TopicPartition(batch.topic, batch.partition_id))
            self._held_bytes += len(batch.data)
            if self._held_bytes > HELD_BYTES:
                self._held = None
            elif self._held is not None:
                self._held.append(batch)

    def finish(self, transactional_id: str) -> Prepared | None:
        """What will be handed over, without a producer yet; None where there are no rows. Raises StagingError."""
        if self._file is None:
            return None
        file: StagedFile = self._file.close(durable=True)
        topic, partition_id = min(self.partitions)
        return Prepared(transactional_id, -1, -1, topic, partition_id, self._staging.place, file.path, file.size_bytes)

    def batches(self, prepared: Prepared) -> Iterable[EncodedBatch]:
        """All of them, in their order. Raises StagingError."""
        return self._held if self._held is not None else prepared.batches()

    def discard(self) -> None:
        """Leave nothing behind: the task has failed."""
        if self._file is not None:
            self._file.discard()


def transactional_id(prefix: str, task: Task, attempt_number: int) -> str:
    """Of an attempt of a task, counted from 0; the next batch of the run has the same one."""
    return f"{prefix}{task.query_id}.{task.run_id}.{task.partition_id}.{attempt_number}"


class TaskTransaction(TransactionalCommit):
    """Writes the rows of one task. Not for several threads."""

    def prepare(self, task: Task, rows: StagedRows, prepared: Prepared) -> Prepared:
        """Write all rows, and the evidence, in a transaction that stays open on return.

        Raises:
            FencedError: another attempt of this task has begun, in this batch or the next one.
            ClusterError: the cluster refused, or did not answer within `default.api.timeout.ms`.
            StagingError: the staged file cannot be read.
        """
        session = Session(task.run_id)
        work = Work(None, task.run_id, frozenset(rows.partitions), partial(rows.batches, prepared))
        try:
            self.persist(task.batch_id, lambda deadline: self._write(session, work, task.batch_id, prepared, deadline))
        except Exception:
            if session.producer_id >= 0:
                self._reset(session)
            raise
        return prepared._replace(producer_id=session.producer_id, producer_epoch=session.producer_epoch)

    def _write(self, session: Session, work: Work, batch_id: int, prepared: Prepared, deadline: float) -> None:
        self.begin(session, deadline)
        session.transacting_since = time.monotonic()
        self.produce(session, work, deadline)
        mine = prepared._replace(producer_id=session.producer_id, producer_epoch=session.producer_epoch)
        self.commit_offsets(session, self.transactional_id, evidence_offsets(mine, batch_id), deadline)

    def _raise_fenced_or_timeout(self, session: Session) -> NoReturn:
        if (time.monotonic() - session.transacting_since) * 1000 < self.transaction_timeout_ms:
            raise FencedError(f"another attempt of this task has taken over {self.transactional_id}")
        session.producer_id = session.producer_epoch = -1
        raise RetriableError("the transaction timed out (kafka.transaction.timeout.ms)")
