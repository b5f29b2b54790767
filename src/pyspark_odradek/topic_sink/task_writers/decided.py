"""Ends the transactions of a batch's tasks in the driver, once the marker with their list is committed.

    end_task   EndTxn with commit, repeated by each run that finds the marker until the transaction is committed
    is_there   if the brokers refuse that: the evidence shows whether it was committed before
    repair     if it was aborted: its rows and its evidence are written again from the staged file, under the query's id
    fence      before the decision: open transactions of attempts that are not in the list are aborted and fenced

A result is not concluded from an error code alone: the same code means that brokers have aborted the transaction, or
that an administrator has ended the use of its id later. A repair writes under the query's transactional id, so that
only the latest driver can; it reads the evidence after it has fenced the earlier one. Source: KIP-98,
docs/adr/0022.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from odradek.common.errors import ErrorCode, ProtocolError
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from pyspark_odradek.client.cluster import (
    FIRST_BACKOFF_MS,
    LAST_BACKOFF_MS,
    TRANSACTION,
    RetriableError,
    check,
    error_name,
)
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import ClusterError, FencedError, StagingError
from pyspark_odradek.record.encode import EncodedBatch
from pyspark_odradek.topic_sink.marker_topic import Marker
from pyspark_odradek.topic_sink.task_writers.prepared import Prepared, evidence_offsets
from pyspark_odradek.topic_sink.transaction import LOST, Session, TransactionalCommit, Work

log = logging.getLogger("pyspark_odradek")

# Brokers before Kafka 2.0 keep offsets for a day; taken where the setting cannot be read.
SHORTEST_RETENTION_MIN = 1_440
# Transactions are ended by so many threads at once, each of which has so many of them at least: a coordinator answers
# an EndTxn when the decision is replicated, and the requests of one connection one after another.
MOST_THREADS, EACH = 16, 8
# A repair uses as many transactions as needed, each with this share of kafka.transaction.timeout.ms: the time of one is
# bounded, and the rows of a task are not.
PART_OF_TIMEOUT = 0.25


Answer = bool | Exception


class DecidedCommit(TransactionalCommit):
    """Commits the batches of one query, which the driver writes or its tasks have written. Not for several threads."""

    def end_tasks(self, session: Session, found: Marker, deadline: float) -> None:
        """Commit the transactions of a batch; those that brokers have aborted meanwhile are written again.

        Raises:
            FencedError: another run of the query took over, and ends them.
            ClusterError: the cluster refused; or it is not known of a transaction whether it is there.
            StagingError: the rows of an aborted one are gone.
            OSError, ProtocolError, RetriableError: it is to be done again, after `begin`.
        """
        if not found.tasks:
            raise ClusterError(
                f"batch {found.batch_id} of this query was written by its tasks, and the record that names their "
                "transactions is not there: start the query with the option markerTopic that it had"
            )
        answers = self._end_all(found.tasks, deadline)
        for answer in answers.values():
            if isinstance(answer, Exception):
                raise answer
        not_ended = [task for task in found.tasks if not answers[task]]
        aborted = [task for task in not_ended if not self._settled(task, found.batch_id)]
        if aborted:
            self._refuse_if_expired(found, aborted)
        for task in aborted:
            self.repair(session, found.batch_id, task)

    def mark(self, session: Session, work: Work, deadline: float) -> None:
        """Mark the batch, and then fence attempts that are not in the list: the marker shows that this driver may.

        A driver that a later one has fenced cannot write the marker, so it does not abort the later one's tasks.
        """
        super().mark(session, work, deadline)
        if work.tasks is not None:
            self._fence_others({task.transactional_id for task in work.tasks})

    def _fence_others(self, decided: Collection[str]) -> None:
        """Abort open transactions of this query that are not in the list, as far as the brokers report them.

        Otherwise they would block consumers until their timeout. An attempt that begins after this is aborted before
        the next decision.
        """
        try:
            ongoing = [id_ for id_, _ in self.cluster.ongoing_transactions()]
            self._fence_all(
                id_ for id_ in ongoing if id_.startswith(f"{self.transactional_id}.") and id_ not in decided
            )
        except (OSError, ProtocolError, RetriableError, ClusterError) as error:
            self.cluster.reset()
            log.info("what attempts in vain have left open is aborted by its timeout: %s", error)

    def _fence_all(self, ids: Iterable[str]) -> None:
        """`_fence` each; a failed one is retried after the others, for a short time."""
        asked = deque(ids)
        until = time.monotonic() + LAST_BACKOFF_MS / 1000
        while asked:
            try:
                self._fence(asked[0])
                asked.popleft()
            except (OSError, ProtocolError, RetriableError, ClusterError):
                if time.monotonic() > until:
                    raise
                self.cluster.reset()
                asked.rotate(-1)
                time.sleep(FIRST_BACKOFF_MS / 1000)

    def _fence(self, transactional_id: str) -> None:
        """Fence the producer of an id, which aborts its open transaction; the abort may still run on return."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=self.transaction_timeout_ms
        )
        connection = self.cluster.coordinator(transactional_id, TRANSACTION)
        code = connection.request(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse).error_code
        if code not in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS):
            raise RetriableError(f"InitProducerId for {transactional_id}: {error_name(code)}")

    def _refuse_if_behind(self, session: Session, batch_id: int, plan: str) -> None:
        try:
            super()._refuse_if_behind(session, batch_id, plan)
        except FencedError:
            self._end_decided_before()
            raise

    def _end_decided_before(self) -> None:
        """End the open transactions of the newest batch's tasks, before this run ends with an error over that batch.

        That batch is decided, and perhaps no later run ends them before the brokers abort them.
        """
        found, _ = self._newest_known()
        if found is None:
            return
        give_up = self._deadline()
        for task in found.tasks or ():
            try:
                is_ended = self.end_task(task, time.monotonic() + LAST_BACKOFF_MS / 1000)
                is_lost = not is_ended and not self.is_there(task, found.batch_id)
            except (OSError, ProtocolError, RetriableError, ClusterError) as error:
                self.cluster.reset()
                log.warning("batch %d: %s is not known to be committed: %s", found.batch_id, task.path, error)
                if time.monotonic() > give_up:
                    return
                continue
            if is_lost:
                log.warning("batch %d is decided, and the rows of %s are not there", found.batch_id, task.path)

    def end_task(self, task: Prepared, deadline: float, *, committed: bool = True) -> bool:
        """End a transaction; returns False for the errors of LOST, after which the evidence shows whether it is there.

        Raises RetriableError or ClusterError for other errors.
        """
        request = EndTxnRequest(
            transactional_id=task.transactional_id,
            producer_id=task.producer_id,
            producer_epoch=task.producer_epoch,
            committed=committed,
        )
        answer = self._coordinated(ApiKey.END_TXN, request, EndTxnResponse, deadline, task.transactional_id)
        if answer.error_code in LOST:
            return False
        check(answer.error_code, f"EndTxn for {task.transactional_id}")
        return True

    def _end_all(
        self, tasks: Sequence[Prepared], deadline: float | None, *, committed: bool = True
    ) -> dict[Prepared, Answer]:
        """End all transactions, in several threads; returns the result or error of `end_task` for each.

        Without a deadline each has a short time, and errors end it after `default.api.timeout.ms`. With a deadline a
        thread stops after an error. Transactions without an attempt are not in the result.
        """
        count = min(MOST_THREADS, -(-len(tasks) // EACH))
        if count <= 1:
            return self._end_one_by_one(tasks, deadline, committed)
        askers = []
        for cluster in self.cluster.siblings(count):
            askers.append(copy.copy(self))
            askers[-1].cluster = cluster
        with ThreadPoolExecutor(count, "end-transactions") as pool:
            asked = [
                pool.submit(asker._end_one_by_one, tasks[number::count], deadline, committed)
                for number, asker in enumerate(askers)
            ]
        return {task: answer for each in asked for task, answer in each.result().items()}

    def _end_one_by_one(
        self, tasks: Sequence[Prepared], deadline: float | None, committed: bool
    ) -> dict[Prepared, Answer]:
        found: dict[Prepared, Answer] = {}
        give_up = self._deadline()
        for task in tasks:
            until = deadline if deadline is not None else time.monotonic() + LAST_BACKOFF_MS / 1000
            try:
                found[task] = self.end_task(task, until, committed=committed)
            except (OSError, ProtocolError, RetriableError, ClusterError) as error:
                found[task] = error
                self.cluster.reset()
                if deadline is not None or time.monotonic() > give_up:
                    break
        return found

    def _deadline(self) -> float:
        """When to stop after an error: brokers that do not answer cost a request's timeout for each transaction."""
        return time.monotonic() + self.cluster.settings.default_api_timeout_ms / 1000

    def is_there(self, task: Prepared, batch_id: int) -> bool:
        """Whether the rows of a task are committed.

        Raises RetriableError while a transaction is open that may commit their evidence.
        """
        asked = [TopicPartition(task.topic, task.partition_id)]
        offsets = self.cluster.fetch_offsets(task.transactional_id, stable=True, partitions=asked)
        return any((offset, metadata) == (batch_id, task.evidence) for _, _, offset, metadata in offsets)

    def _settled(self, task: Prepared, batch_id: int) -> bool:
        """`is_there`; if another attempt uses the id, which is in no list, its open transaction is aborted.

        It may have written rows without evidence: then no offset is pending, although its transaction is open.
        """
        try:
            if self.is_there(task, batch_id):
                return True
        except RetriableError:
            self._fence(task.transactional_id)
            raise
        self._fence(task.transactional_id)
        return False

    def repair(self, session: Session, batch_id: int, task: Prepared) -> None:
        """Write the rows of an aborted transaction, with its evidence, in transactions of the query's id.

        Each of several transactions commits its position, from which another attempt continues.
        """
        log.warning(
            "batch %d: the brokers have ended %s before it was committed (kafka.transaction.timeout.ms=%d); its rows "
            "are written again",
            batch_id,
            task.transactional_id,
            self.transaction_timeout_ms,
        )
        try:
            partitions = task.partitions()  # a file that is damaged is found before anything of it is written
            done, frames = self._repaired_bytes(task, batch_id), task.frames()
            ahead = next((each for each in frames if each[0] > done), None)
            while ahead is not None:
                ahead = self._repair_part(session, batch_id, task, partitions, _Part(ahead, frames))
        except (OSError, ProtocolError, RetriableError):
            raise  # starting again aborts the transaction
        except StagingError as error:
            self._reset(session)
            raise StagingError(
                f"batch {batch_id} is decided, and the rows of one of its tasks have to be written again, which cannot "
                f"be done: {error}. Bring the file back and start the query again; where it is lost for good, so are "
                "these rows: read them once more from the source with another query"
            ) from None
        except Exception:
            self._reset(session)
            raise

    def _repaired_bytes(self, task: Prepared, batch_id: int) -> int:
        """The position in the file up to which rows are written: a repair that took long has ended before all were."""
        asked = [TopicPartition(task.topic, task.partition_id)]
        for _, _, offset, metadata in self.cluster.fetch_offsets(task.transactional_id, stable=True, partitions=asked):
            if offset == batch_id and metadata.startswith(f"{task.evidence} "):
                return int(metadata.rpartition(" ")[2])
        return 0

    def _repair_part(
        self, session: Session, batch_id: int, task: Prepared, partitions: frozenset[TopicPartition], part: _Part
    ) -> tuple[int, EncodedBatch] | None:
        """Write rows for a share of the transaction timeout, and commit the position; returns the next frame."""
        patience_s = self.cluster.settings.default_api_timeout_ms / 1000
        deadline = time.monotonic() + patience_s
        session.transacting_since = time.monotonic()
        part.until = session.transacting_since + self.transaction_timeout_ms / 1000 * PART_OF_TIMEOUT
        self.produce(session, Work(None, session.run_id, partitions, part.batches), deadline)
        offsets = evidence_offsets(task, batch_id, None if part.ahead is None else part.done)
        self.commit_offsets(session, task.transactional_id, offsets, deadline)
        self.end(session, deadline)
        return part.ahead

    def abandon(self, tasks: Iterable[Prepared], batch_id: int) -> None:
        """Abort transactions of tasks that are in no batch, as far as possible.

        Otherwise they would block consumers until their timeout. Those of a decided batch stay; if an open transaction
        may decide the batch, nothing is aborted.
        """
        try:
            found, is_certain = self._newest_known()
            of_batch = found.tasks if found is not None and found.batch_id == batch_id else None
            if not is_certain or of_batch == ():
                return
            decided = set(of_batch or ())
        except (OSError, ProtocolError, RetriableError, ClusterError) as error:
            self.cluster.reset()
            log.warning("what tasks have written in vain is aborted by its timeout: %s", error)
            return
        in_vain = [task for task in tasks if task not in decided]
        answers = self._end_all(in_vain, None, committed=False)
        failed = [
            f"{task.transactional_id}: {answer}" for task, answer in answers.items() if isinstance(answer, Exception)
        ]
        if failed:
            left = len(in_vain) - len(answers) + len(failed)
            log.warning("what %d tasks have written in vain is aborted by its timeout: %s", left, failed[0])

    def _refuse_if_expired(self, found: Marker, tasks: list[Prepared]) -> None:
        """Raise ClusterError where the evidence of tasks may have been there, and expired; it names all of them."""
        kept_min = SHORTEST_RETENTION_MIN
        with suppress(OSError, ProtocolError, RetriableError, ClusterError, ValueError):
            kept_min = int(self.cluster.broker_setting("offsets.retention.minutes") or kept_min)
        age_ms = time.time_ns() // 1_000_000 - found.decided_ms
        # Half of it, as the clocks of two drivers and of the brokers differ.
        if age_ms > kept_min * 30_000:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(found.decided_ms / 1000))
            where = ", ".join(f"{task.path} (in {task.topic}-{task.partition_id})" for task in tasks)
            raise ClusterError(
                f"batch {found.batch_id} was decided at {when} UTC, and it is not known any more whether the rows of "
                f"these files are in the topics (offsets.retention.minutes={kept_min}): they are not written, since "
                f"that might be twice. Look for those of each: {where}; then see docs/spark-sink.md"
            )


class _Part:
    """Frames of a staged file, beginning with one that was read ahead, until a deadline; at least one.

    `done` is the end of the last returned frame, in bytes of the file; `ahead` is the next one.
    """

    def __init__(self, ahead: tuple[int, EncodedBatch], frames: Iterator[tuple[int, EncodedBatch]]) -> None:
        self.ahead: tuple[int, EncodedBatch] | None = ahead
        self.done = 0
        self.until = 0.0
        self._frames = frames

    def batches(self) -> Iterator[EncodedBatch]:
        """Raises StagingError."""
        while self.ahead is not None and (not self.done or time.monotonic() < self.until):
            self.done, batch = self.ahead
            yield batch
            self.ahead = next(self._frames, None)
