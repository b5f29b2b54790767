"""The exactly-once topic sink: tasks stage record batches, the driver commits them and a marker in one transaction.

A task's records travel in its message where they are few, and in a staged file where they are many; nothing that a task
does can be seen by a reader. So a task that is retried, or runs twice, or dies, leaves nothing behind but a file, and a
batch that Spark runs again after a crash finds its own marker and is not written twice (`transaction.py`).
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.record.batch import BatchHeader, crc_is_valid
from pyspark_odradek.client.cluster import ClientSettings, Cluster, shared_cluster
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import ClusterError, OptionError, StagingError
from pyspark_odradek.micro_batch.checkpoint import plan_of
from pyspark_odradek.micro_batch.staging import StagedFile, Staging
from pyspark_odradek.micro_batch.task import streaming_task
from pyspark_odradek.record.encode import EncodedBatch, RowEncoder
from pyspark_odradek.spark_api import DataSourceStreamArrowWriter
from pyspark_odradek.topic_sink.marker_topic import MarkerTopic
from pyspark_odradek.topic_sink.sink_options import SinkOptions
from pyspark_odradek.topic_sink.task_writers.decided import DecidedCommit
from pyspark_odradek.topic_sink.transaction import TransactionalCommit, Work

if TYPE_CHECKING:
    from pyspark_odradek.values.framing import Framing

log = logging.getLogger("pyspark_odradek")

CHUNK_BYTES = 32 << 20  # encoded at once by a task
INLINE_BYTES = 64 << 10  # up to here a task's records travel in its message, and need no file


class BatchIndex(NamedTuple):
    """One record batch of a task, in the order in which they lie."""

    topic: str
    partition_id: int
    record_count: int
    size_bytes: int


@dataclass
class Staged(WriterCommitMessage):
    """The result of a task: the file of its batches, or the batches themselves."""

    query_id: str
    run_id: str
    batch_id: int | None
    index: list[BatchIndex] = field(default_factory=list)
    inline: bytes = b""
    file: StagedFile | None = None

    def batches(self, staging: Staging) -> Iterator[EncodedBatch]:
        """The batches, each checked against its checksum. Raises StagingError."""
        with contextlib.ExitStack() as stack:
            stream: Any = pa.BufferReader(self.inline)
            if self.file is not None:
                stream = stack.enter_context(staging.open(self.file))
            for entry in self.index:
                try:
                    data = stream.read(entry.size_bytes)
                except OSError as error:
                    raise self._damaged(str(error)) from None
                if len(data) < entry.size_bytes or not crc_is_valid(data, BatchHeader.read(data)):
                    raise self._damaged("its bytes are not those that the task wrote")
                yield EncodedBatch(entry.topic, entry.partition_id, entry.record_count, data)

    def _damaged(self, why: str) -> StagingError:
        where = self.file.path if self.file is not None else "a task's message"
        return StagingError(f"what a task staged in {where} cannot be used: {why}. Nothing of this batch was written.")


class _Stage:
    """Collects the batches of one task, in memory up to INLINE_BYTES and in a file above."""

    def __init__(self, staging: Staging, folder: str, name: str) -> None:
        self.index: list[BatchIndex] = []
        self._staging = staging
        self._folder = folder
        self._name = name
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._file: Any = None

    def add(self, batches: Iterable[EncodedBatch]) -> None:
        for batch in batches:
            self.index.append(BatchIndex(batch.topic, batch.partition_id, batch.record_count, len(batch.data)))
            self._held.append(batch.data)
            self._held_bytes += len(batch.data)
        if self._held_bytes > INLINE_BYTES or self._file is not None:
            self._spill()

    def finish(self) -> tuple[bytes, StagedFile | None]:
        """(the batches, None) or (nothing, their file)."""
        if self._file is None:
            return b"".join(self._held), None
        return b"", self._file.close()

    def discard(self) -> None:
        """Leave nothing behind: the task has failed."""
        if self._file is not None:
            self._file.discard()

    def _spill(self) -> None:
        if self._file is None:
            self._file = self._staging.create(self._folder, self._name)
        self._file.write(self._held)
        self._held, self._held_bytes = [], 0


class ExactWriter:
    """The common part of all writers; picklable."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.columns = options.columns(schema)
        self.settings = ClientSettings.parse(options.kafka)
        self.settings.security()  # a wrong setting is reported here and not by the first task
        self.form = options.batch_format()
        if options.staging_location is None:
            raise OptionError(
                "the exactly-once sink needs the option stagingLocation (or, for a stream, checkpointLocation of the "
                "query, beneath which it stages): storage that driver and executors share. delivery=at_least_once "
                "needs neither."
            )
        self.staging = Staging(options.staging_location)
        self.framing = options.framing(schema)  # behind all checks, since it may register a schema
        options.warn_of_unread_settings()

    def stage(self, iterator: Iterator[Any], query_id: str, run_id: str, batch_id: int | None) -> Staged:
        """Encode all rows of a task. Raises OptionError, ClusterError, StagingError."""
        context = TaskContext.get()
        task, attempt = (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
        topics = Topics(self.cluster, self.options)
        encoder = RowEncoder(self.options.topic, topics.partition_count, self.form, task + (batch_id or 0))
        stage = _Stage(self.staging, f"{query_id}/{run_id}/{batch_id or 0}", f"{task}-{attempt}")
        try:
            for chunk in chunks(iterator, self.columns, self.framing):
                stage.add(encoder.encode(chunk, time.time_ns() // 1_000_000))
            inline, file = stage.finish()
        except Exception:
            # Not if the process is killed: the file is removed with those of its batch.
            stage.discard()
            raise
        return Staged(query_id, run_id, batch_id, stage.index, inline, file)

    def commit_staged(self, messages: list[Staged], batch_id: int | None) -> None:
        """Write the staged batches once, and remove the files. Raises as `TransactionalCommit.commit`."""
        query_id, run_id = messages[0].query_id, messages[0].run_id
        _check_same_batch(messages, (query_id, run_id, batch_id))
        partitions = frozenset(TopicPartition(i.topic, i.partition_id) for m in messages for i in m.index)
        if partitions:
            self.options.refuse_rows_among_markers({partition.topic for partition in partitions})
            self._check_partitions(partitions)
        has_plan = self.options.gate is None  # an output lease knows a batch by what it reads
        plan = plan_of(self.options.checkpoint, batch_id) if batch_id is not None and has_plan else ""
        work = Work(batch_id, run_id, partitions, partial(_all_batches, messages, self.staging), plan)
        transaction = self.transaction(query_id, batch_id)
        if partitions or self.options.gate is not None:
            transaction.commit(work)
        else:
            transaction.skip_empty(work)
        sweep(self.staging, query_id, run_id, batch_id)

    def _check_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        """Raise ClusterError where a partition is not there any more: its topic was deleted or recreated."""
        topics = sorted({partition.topic for partition in partitions})
        advice = "It existed when the tasks ran: create it again"
        found = self.cluster.partitions(topics, must_exist=True, advice=advice)
        gone = [str(partition_id) for topic, partition_id in sorted(partitions) if partition_id not in found[topic]]
        if gone:
            raise ClusterError(
                f"{', '.join(topics)}: partition {', '.join(gone)} existed when the tasks ran and does not now: the "
                "topic was recreated. Nothing of this batch was written; start the query again."
            )

    def transaction(self, query_id: str, batch_id: int | None) -> TransactionalCommit:
        """The object that commits batches of a query."""
        options = self.options
        markers = None
        if options.marker_topic is not None:
            replication_factor = options.topic_replication_factor
            markers = MarkerTopic(self.cluster, options.marker_topic, replication_factor=replication_factor)
        return DecidedCommit(
            self.cluster,
            f"{options.transactional_id_prefix}{query_id}",
            transaction_timeout_ms=options.transaction_timeout_ms,
            marker_topic=markers,
            checkpoint=options.checkpoint,
        )

    @property
    def cluster(self) -> Cluster:
        return shared_cluster(self.settings)


class ExactStreamWriter(ExactWriter, DataSourceStreamArrowWriter):
    """`df.writeStream.format("odradek")`, exactly once."""

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage all rows of a task."""
        task = streaming_task()
        return self.stage(iterator, task.query_id, task.run_id, task.batch_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make the batch visible: all of it, once."""
        staged = [message for message in messages if isinstance(message, Staged)]
        if len(staged) != len(messages):
            raise StagingError(f"{len(messages) - len(staged)} of {len(messages)} tasks did not say what they staged")
        if staged:
            self.commit_staged(staged, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing: Spark also calls this where a commit raised after it had happened, so nothing may be undone."""


class ExactBatchWriter(ExactWriter, DataSourceArrowWriter):
    """`df.write.format("odradek").option("delivery", "exactly_once")`: all rows become visible at once, or none."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.write_id = f"batch-{uuid.uuid4()}"

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage all rows of a task."""
        return self.stage(iterator, self.write_id, "", None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all rows visible."""
        staged = [message for message in messages if isinstance(message, Staged)]
        if staged:
            self.commit_staged(staged, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files: all or none of them are committed."""
        sweep(self.staging, self.write_id, "", None)


class Topics:
    """The partition counts of topics, requested once in a task; creates topics if the options allow it."""

    def __init__(self, cluster: Cluster, options: SinkOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._counts: dict[str, int] = {}

    def partition_count(self, topic: str) -> int:
        if topic not in self._counts:
            self._options.ensure(self._cluster, topic)
            advice = "Create it, or let the sink do so with the option createTopic=true"
            found = self._cluster.partitions([topic], must_exist=True, advice=advice)
            self._counts[topic] = len(found[topic])
        return self._counts[topic]


def _check_same_batch(messages: Iterable[Staged], batch: tuple[str, str, int | None]) -> None:
    for message in messages:
        if (message.query_id, message.run_id, message.batch_id) != batch:
            raise StagingError(f"a task staged for batch {message.batch_id} where {batch[2]} is committed")


def _all_batches(messages: list[Staged], staging: Staging) -> Iterator[EncodedBatch]:
    for message in messages:
        yield from message.batches(staging)


def chunks(iterator: Iterator[Any], columns: Mapping[str, str], framing: Framing | None = None) -> Iterator[Any]:
    """Rows in chunks of about CHUNK_BYTES, with our names and types; small pieces are combined."""
    waiting: list[Any] = []
    size = 0
    for batch in iterator:
        if batch.num_rows == 0:
            continue
        waiting.append(_named(batch, columns, framing))
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield pa.concat_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def _named(batch: Any, columns: Mapping[str, str], framing: Framing | None) -> Any:
    given = {name.lower(): name for name in batch.schema.names}
    arrays = {}
    for column in columns:
        array = batch.column(given[column])
        if framing is not None and column == "value":
            array = framing.encode(array)
        arrays[column] = array.cast(pa.binary()) if column in ("key", "value") else array
    return pa.record_batch(arrays)


def sweep(staging: Staging, query_id: str, run_id: str, batch_id: int | None) -> None:
    """Remove staged files up to this batch, of this run and of others. An error only leaves files.

    A task that ran twice may stage files after its batch was removed: the next batch of the run removes them. Other
    runs are checked once in each process of a run, since object stores keep their folders. Files of a later batch stay:
    they are of a newer run, whose batch may be decided, and needed for a repair.
    """
    try:
        if batch_id is None:
            staging.remove(query_id)
            return
        _sweep_run(staging, f"{query_id}/{run_id}", batch_id)
        if _SWEPT.get((staging.place, query_id)) != run_id:
            for other in staging.folders(query_id):
                if other != run_id:
                    _sweep_run(staging, f"{query_id}/{other}", batch_id)
                    staging.remove_empty(f"{query_id}/{other}")
            _SWEPT[staging.place, query_id] = run_id
    except OSError as error:
        log.warning("staged files could not be removed: %s", error)


def _sweep_run(staging: Staging, run: str, batch_id: int) -> None:
    for batch in staging.folders(run):
        if not batch.isdecimal() or int(batch) <= batch_id:
            staging.remove(f"{run}/{batch}")


# The last run of each query for which older runs' files were removed, by place and id.
_SWEPT: dict[tuple[str, str], str] = {}
