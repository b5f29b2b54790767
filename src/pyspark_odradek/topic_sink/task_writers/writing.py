"""The work of a task: it writes its rows to a staged file, and in a transaction of its own that stays open.

The transactional id has the query, the task, its attempt, and one of SLOTS. Later batches and runs use the same ids, so
that a cluster has at most SLOTS of them for each task of a query. The slot is computed from Spark's number of the
attempt, which is unique in the application: two attempts at the same time have two names; those of a repeated stage
have two names in all but one of SLOTS cases. An attempt that Spark gave up, and that begins to write when its batch is
decided, finds the marker, and writes nothing.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable
from functools import partial
from typing import NoReturn

from pyspark_odradek.client.cluster import Cluster, RetriableError
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import AttemptFencedError
from pyspark_odradek.micro_batch.staging import StagedFile, Staging, StagingFile
from pyspark_odradek.micro_batch.task import Task
from pyspark_odradek.record.encode import EncodedBatch
from pyspark_odradek.topic_sink.task_writers.prepared import Prepared, evidence_offsets, frame
from pyspark_odradek.topic_sink.transaction import Session, TransactionalCommit, Work, group_marker

HELD_BYTES = 32 << 20  # up to here rows are written from memory, above from the staged file
SLOTS = 8  # names of a task's attempt


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
        self._checksum = 0  # of the frames so far

    def add(self, batches: Iterable[EncodedBatch]) -> None:
        """Append. Raises StagingError."""
        for batch in batches:
            if self._file is None:
                self._file = self._staging.create(self._folder, self._name)
            pieces, self._checksum = frame(batch, self._checksum)
            self._file.write(pieces)
            self.partitions.add(TopicPartition(batch.topic, batch.partition_id))
            self._held_bytes += len(batch.data)
            if self._held_bytes > HELD_BYTES:
                self._held = None
            elif self._held is not None:
                self._held.append(batch)

    def finish(self, transactional_id: str) -> Prepared | None:
        """The staged rows, without a producer yet; None if there are none. Raises StagingError."""
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
    """The transactional id of an attempt of a task, counted from 0; later batches and other runs have the same."""
    slot = (zlib.crc32(task.run_id.encode()) + task.attempt) % SLOTS
    return f"{prefix}{task.query_id}.{task.partition_id}.{attempt_number}.{slot}"


class KnownBatchError(Exception):
    """The batch is in the sink: another attempt or run of it was committed."""


class TaskTransaction(TransactionalCommit):
    """Writes the rows of one task. Not for several threads.

    Args:
        cluster: of the topics.
        transactional_id: of this attempt.
        group: has the query's marker.
        transaction_timeout_ms: after so long the coordinator aborts it.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, group: str, *, transaction_timeout_ms: int) -> None:
        super().__init__(cluster, transactional_id, transaction_timeout_ms=transaction_timeout_ms)
        self.group = group

    def prepare(self, task: Task, rows: StagedRows, prepared: Prepared) -> Prepared:
        """Write all rows, and the evidence, in a transaction that stays open on return.

        Raises:
            KnownBatchError: the batch is decided, and nothing is left open.
            AttemptFencedError: another attempt of this task, or the driver, has taken the transactional id over.
            ClusterError: the cluster refused, or did not respond within `default.api.timeout.ms`.
            StagingError: the staged file cannot be read.
        """
        session = Session(task.run_id, task.batch_id)
        work = Work(None, task.run_id, frozenset(rows.partitions), partial(rows.batches, prepared))
        try:
            self.persist(task.batch_id, lambda deadline: self._write(session, work, task.batch_id, prepared, deadline))
        except Exception:
            if session.producer_id >= 0:
                self._reset(session)
            raise
        return prepared._replace(producer_id=session.producer_id, producer_epoch=session.producer_epoch)

    def begin(self, session: Session, deadline: float) -> None:
        """Initialize the producer, unless the batch is decided: a later batch may use this id.

        Raises:
            KnownBatchError: the batch is decided.
        """
        # A pending marker is no decision; that of the previous batch is committed, since this batch begins after it. A
        # fenced attempt is checked too, since Apache Kafka allows it to initialize again.
        found = group_marker(self.cluster, self.group, stable=False)
        if found is not None and session.batch_id is not None and found.batch_id >= session.batch_id:
            raise KnownBatchError(f"batch {session.batch_id}: the sink has batch {found.batch_id}")
        super().begin(session, deadline)

    def _write(self, session: Session, work: Work, batch_id: int, prepared: Prepared, deadline: float) -> None:
        self.begin(session, deadline)
        session.transacting_since = time.monotonic()
        self.produce(session, work, deadline)
        mine = prepared._replace(producer_id=session.producer_id, producer_epoch=session.producer_epoch)
        self.commit_offsets(session, self.transactional_id, evidence_offsets(mine, batch_id), deadline)

    def _raise_fenced_or_timeout(self, session: Session) -> NoReturn:
        if (time.monotonic() - session.transacting_since) * 1000 < self.transaction_timeout_ms:
            raise AttemptFencedError(f"another attempt of this task has taken over {self.transactional_id}")
        session.producer_id = session.producer_epoch = -1
        raise RetriableError("the transaction timed out (kafka.transaction.timeout.ms)")
