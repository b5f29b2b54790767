"""What the driver does with the transactions of a batch's tasks, once the marker that names them is committed.

    end_task   EndTxn with commit: again and again, by whichever run finds the marker, until it is known to be there
    is_there   where the brokers refuse that: the evidence says whether it was committed before
    repair     where it was aborted: its rows and its evidence again, from the staged file, under the query's own id

Whether a transaction is there is not concluded from an error code alone: the same code says that brokers have aborted
it, or that an operator has ended the use of its id later. To repair is to write under the query's transactional id, so
that of two drivers the later one alone can; it reads the evidence after it has fenced the earlier one. Source: KIP-98,
docs/adr/0022.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import suppress

from odradek.common.errors import ProtocolError
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from pyspark_odradek.cluster import LAST_BACKOFF_MS, RetriableError, check
from pyspark_odradek.errors import ClusterError, FencedError, StagingError
from pyspark_odradek.marker_topic import Marker
from pyspark_odradek.offsets import TopicPartition
from pyspark_odradek.task_writers.prepared import Prepared, evidence_offsets
from pyspark_odradek.transaction import LOST, Session, TransactionalCommit, Work

log = logging.getLogger("pyspark_odradek")

# Brokers before Kafka 2.0 keep offsets for a day; taken where the setting cannot be read.
SHORTEST_RETENTION_MIN = 1_440


class DecidedCommit(TransactionalCommit):
    """Commits the batches of one query, which the driver writes or its tasks have written. Not for several threads."""

    def end_tasks(self, session: Session, found: Marker, deadline: float) -> None:
        """Commit the transactions of a batch; those that brokers have aborted meanwhile are written again.

        Raises:
            FencedError: another run of the query took over, and ends them.
            ClusterError: the cluster refused; or it is not known of a transaction whether it is there.
            StagingError: the rows of an aborted one are gone.
            OSError, ProtocolError, PassingError: it is to be done again, after `begin`.
        """
        if not found.tasks:
            raise ClusterError(
                f"batch {found.batch_id} of this query was written by its tasks, and the record that names their "
                "transactions is not there: start the query with the option markerTopic that it had"
            )
        not_ended = [task for task in found.tasks if not self.end_task(task, deadline)]
        aborted = [task for task in not_ended if not self.is_there(task, found.batch_id)]
        if aborted:
            self._refuse_if_expired(found, aborted)
        for task in aborted:
            self.repair(session, found.batch_id, task, deadline)

    def _refuse_if_behind(self, batch_id: int, plan: str) -> None:
        try:
            super()._refuse_if_behind(batch_id, plan)
        except FencedError:
            self._end_decided_before()
            raise

    def _end_decided_before(self) -> None:
        """End what the newest batch's tasks have left open, before this run ends over that batch.

        That is decided, whatever this run is to do: no later one may come to end it before the brokers abort it.
        """
        found, _ = self._newest_known()
        if found is None:
            return
        for task in found.tasks or ():
            try:
                is_ended = self.end_task(task, time.monotonic() + LAST_BACKOFF_MS / 1000)
                is_lost = not is_ended and not self.is_there(task, found.batch_id)
            except (OSError, ProtocolError, RetriableError, ClusterError) as error:
                self.cluster.forget()
                log.warning("batch %d: %s is not known to be committed: %s", found.batch_id, task.path, error)
                continue
            if is_lost:
                log.warning("batch %d is decided, and the rows of %s are not there", found.batch_id, task.path)

    def end_task(self, task: Prepared, deadline: float, *, committed: bool = True) -> bool:
        """Ask for the end of a transaction; False where it cannot be ended so, or not any more."""
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

    def is_there(self, task: Prepared, batch_id: int) -> bool:
        """Whether the rows of a task are committed. Raises PassingError while a transaction is open that may say so."""
        asked = [TopicPartition(task.topic, task.partition_id)]
        offsets = self.cluster.fetch_offsets(task.transactional_id, stable=True, partitions=asked)
        return any((offset, metadata) == (batch_id, task.evidence) for _, _, offset, metadata in offsets)

    def repair(self, session: Session, batch_id: int, task: Prepared, deadline: float) -> None:
        """Write the rows of a task whose transaction was aborted, with its evidence, in one of the query's."""
        log.warning(
            "batch %d: the brokers have ended %s before it was committed (kafka.transaction.timeout.ms=%d); its rows "
            "are written again",
            batch_id,
            task.transactional_id,
            self.transaction_timeout_ms,
        )
        session.transacting_since = time.monotonic()
        try:
            self.produce(session, Work(None, session.run_id, task.partitions(), task.batches), deadline)
            offsets = evidence_offsets(task, batch_id)
            self.commit_offsets(session, task.transactional_id, offsets, deadline)
        except (OSError, ProtocolError, RetriableError):
            raise  # starting again aborts the transaction
        except StagingError as error:
            self._reset(session)
            raise StagingError(
                f"batch {batch_id} is decided, and the rows of one of its tasks have to be written again, which cannot "
                f"be: {error}. Bring the file back and start the query again; where it is lost for good, so are these "
                "rows: read them once more from the source with another query"
            ) from None
        except Exception:
            self._reset(session)
            raise
        self.end(session, deadline)

    def abandon(self, tasks: Iterable[Prepared], batch_id: int) -> None:
        """Abort what tasks have written and no batch has, as far as it can be: its time-out would be waited for.

        A batch that is decided keeps its own: an open transaction that may decide it lets all be as it is.
        """
        try:
            found, is_certain = self._newest_known()
            of_batch = found.tasks if found is not None and found.batch_id == batch_id else None
            if not is_certain or of_batch == ():
                return
            decided = set(of_batch or ())
        except (OSError, ProtocolError, RetriableError, ClusterError) as error:
            self.cluster.forget()
            log.warning("what tasks have written in vain is aborted by its time-out: %s", error)
            return
        left: list[str] = []
        for task in tasks:
            if task in decided:
                continue
            try:
                self.end_task(task, time.monotonic() + LAST_BACKOFF_MS / 1000, committed=False)
            except (OSError, ProtocolError, RetriableError, ClusterError) as error:
                self.cluster.forget()
                left.append(f"{task.transactional_id}: {error}")
        if left:
            log.warning("what %d tasks have written in vain is aborted by its time-out: %s", len(left), left[0])

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
