"""One micro-batch in one transaction: its records and its marker become visible together, or not at all.

The transactional id and the marker belong to the query. The marker is the batch's number, committed in the transaction
as an offset of a group with the same name. The steps of a commit are

    begin     InitProducerId: fences an older run of the query, and completes its open transaction
    marker    OffsetFetch: this batch may be there already, if a driver died before Spark recorded it
    produce   AddPartitionsToTxn, Produce
    mark      AddOffsetsToTxn, TxnOffsetCommit
    end       EndTxn

The offset expires. With a marker topic there is a second marker, a record in the same transaction, and `marker` is the
newer one of both. They are committed together, so that a query can add or remove the topic at any start. After batches
without the topic its marker is outdated, and only that of the group is right.

After a retriable error the commit starts again: the unfinished transaction is aborted, and the marker shows whether an
EndTxn whose response was lost has taken effect. The first two steps are needed once in a run of a query, as long as one
process commits its batches. Spark gives a batch to any idle process, so with several queries in one application the
processes change, and a process that has missed a batch starts again. Source: KIP-98,
KIP-360, KIP-447.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, NoReturn, TypeVar

from odradek.common.backoff import Backoff
from odradek.common.errors import ErrorCode, ProtocolError
from odradek.protocol.apis import ApiKey
from odradek.protocol.declare import Message
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from pyspark_odradek.client.cluster import (
    FIRST_BACKOFF_MS,
    GROUP,
    LAST_BACKOFF_MS,
    TRANSACTION,
    Cluster,
    RetriableError,
    check,
    error_name,
)
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import ClusterError, FencedError
from pyspark_odradek.micro_batch.checkpoint import planned_ms
from pyspark_odradek.micro_batch.task import is_written
from pyspark_odradek.record.encode import EncodedBatch
from pyspark_odradek.topic_sink.marker_topic import Marker, MarkerTopic
from pyspark_odradek.topic_sink.produce import TransactionalSender
from pyspark_odradek.topic_sink.task_writers.prepared import Prepared

log = logging.getLogger("pyspark_odradek")
R = TypeVar("R", bound=Message)
T = TypeVar("T")

# The transaction is not ours any more, or never was: starting again shows whether another run took it.
LOST = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
# The coordinator still writes the markers of the previous transaction: a short wait, no error.
CONCURRENT_BACKOFF_S = 0.005
# The attempts to read a pending marker, before it is read without the open transaction.
MARKER_TRIES = 5
# In the metadata of the group's marker behind the run: no plan is known; the batch was written by its tasks.
NO_PLAN, BY_TASKS, BEFORE = "-", "tasks", "before="
# So many runs that were overtaken are in a marker: as many drivers of one query may be stopped by it.
MOST_BEFORE = 4


@dataclass
class Session:
    """The producer of a process for a run of a query, as long as it commits all batches of that run.

    `is_settled` if the next transaction can begin without initialization.
    """

    run_id: str
    batch_id: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    is_settled: bool = False
    transacting_since: float = 0.0
    settled_run_id: str = ""  # the run whose batch was found as this one began
    has_looked: bool = False  # for a batch that is decided and not ended
    before: tuple[str, ...] = ()  # the runs that this one has taken over from


class Work(NamedTuple):
    """The content of one transaction.

    `batches` yields the record batches again at each call, in the order of each partition; `partitions` are their
    partitions. `batch_id` is None for a batch query, which has no marker: each attempt writes all or nothing. `plan`
    distinguishes two batches with one number (`checkpoint.plan_of`); empty if unknown. `tasks` are the transactions in
    which tasks have written the records, so that only the marker is written here. `is_known` if a task has found the
    batch in the sink, and has written nothing: then the marker must exist.
    """

    batch_id: int | None
    run_id: str
    partitions: frozenset[TopicPartition]
    batches: Callable[[], Iterable[EncodedBatch]]
    plan: str = ""
    tasks: tuple[Prepared, ...] | None = None
    is_known: bool = False


class TransactionalCommit:
    """Commits the batches of one query, one after another. Not for several threads.

    Args:
        cluster: of the topics.
        transactional_id: of the query; also the name of the group with the marker.
        transaction_timeout_ms: the time after which the coordinator aborts an open transaction.
        marker_topic: has the marker too.
        checkpoint: the query's, if known: has the time at which a batch without a marker was planned.
    """

    session_kind: ClassVar[type[Session]] = Session

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = 60_000,
        marker_topic: MarkerTopic | None = None,
        checkpoint: str = "",
    ) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self.marker_topic = marker_topic
        self.checkpoint = checkpoint
        self._doubt_reported = False

    def commit(self, work: Work) -> bool:
        """Write the batch and its marker; returns False if it is there already.

        Raises:
            FencedError: another run of the query took over, or has written later batches.
            ClusterError: the cluster refused, or did not respond within `default.api.timeout.ms`; nothing of the batch
                is visible then, unless only the response to the last request was lost, which the next attempt detects.
            StagingError: a staged file cannot be read; nothing is visible of the batch.
        """
        session = self._session(work)
        return self.persist(work.batch_id, lambda deadline: self._commit_once(session, work, deadline))

    def _commit_once(self, session: Session, work: Work, deadline: float) -> bool:
        if not session.is_settled or work.is_known:
            if session.producer_id < 0 and work.batch_id is not None:
                self._refuse_if_behind(session, work.batch_id, work.plan)
            self.begin(session, deadline)
            found = self._found(session, work.batch_id, work.plan) if work.batch_id is not None else None
            if found is not None:
                self._settle(session, found, deadline)
                return False
            if work.is_known:
                raise ClusterError(
                    f"a task has found batch {work.batch_id} in the sink, and its marker is not there any more: "
                    "nothing was written. Start the query again"
                )
        session.is_settled = False
        session.transacting_since = time.monotonic()
        self._transact(session, work, deadline)
        if work.batch_id is not None:
            self._settle(session, _marker_of(work, session), deadline)
        session.is_settled = True
        return True

    def persist(self, batch_id: int | None, attempt: Callable[[float], T]) -> T:
        """Call `attempt` with its deadline again after passing errors, until that is over. Raises ClusterError."""
        patience_s = self.cluster.settings.default_api_timeout_ms / 1000
        deadline = time.monotonic() + patience_s
        backoff = Backoff(FIRST_BACKOFF_MS, LAST_BACKOFF_MS)
        while True:
            try:
                return attempt(deadline)
            except (OSError, ProtocolError, RetriableError) as error:
                self.cluster.reset()
                if time.monotonic() + backoff.pause_ms / 1000 > deadline:
                    raise ClusterError(
                        f"batch {batch_id} could not be committed in {patience_s:g} s "
                        f"(kafka.default.api.timeout.ms): {error}"
                    ) from error
                log.info("batch %s is retried: %s", batch_id, error)
                time.sleep(backoff.next_ms() / 1000)

    def skip_empty(self, work: Work) -> None:
        """A batch without rows leaves no marker; this process has not missed it.

        If an earlier run has decided a batch of this number that had rows, that one is completed.
        Raises as `commit`.
        """
        session = self._session(work)
        if work.batch_id is None or session.producer_id >= 0 or session.has_looked:
            return
        if self.persist(work.batch_id, lambda _: self._may_be_decided(work)):
            self.persist(work.batch_id, lambda deadline: self._end_decided(session, work, deadline))
        session.has_looked = True

    def _may_be_decided(self, work: Work) -> bool:
        found, is_certain = self._newest_known()
        return not is_certain or (found is not None and found.batch_id == work.batch_id and found.tasks is not None)

    def _end_decided(self, session: Session, work: Work, deadline: float) -> None:
        assert work.batch_id is not None
        self.begin(session, deadline)
        found = self._found(session, work.batch_id, work.plan)
        if found is not None:
            self._settle(session, found, deadline)
        session.is_settled = True

    def _settle(self, session: Session, found: Marker, deadline: float) -> None:
        """Complete a decided batch. After a retriable error the commit starts again, and returns here."""
        session.is_settled = False
        if found.tasks is not None:
            session.settled_run_id = found.run_id
            self.end_tasks(session, found, deadline)
        session.is_settled = True

    def end_tasks(self, session: Session, found: Marker, deadline: float) -> None:
        """Commit the transactions of a batch's tasks; without task writers there are none (`task_writers.decided`)."""
        raise ClusterError(f"batch {found.batch_id} was written by tasks, and not by this driver")

    def begin(self, session: Session, deadline: float) -> None:
        """Become the only producer of the query; the open transaction of an older one is aborted."""
        if session.producer_id >= 0:
            self._abort(session, deadline)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            producer_id=session.producer_id,
            producer_epoch=session.producer_epoch,
        )
        answer = self._coordinated(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse, deadline)
        code = answer.error_code
        if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
            self._raise_fenced_or_timeout(session)
        if code in (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID):
            session.producer_id = session.producer_epoch = -1  # the coordinator has forgotten the query: begin as new
            raise RetriableError(f"InitProducerId: {error_name(code)}")
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise ClusterError(
                f"kafka.transaction.timeout.ms={self.transaction_timeout_ms} is above the cluster's "
                "transaction.max.timeout.ms"
            )
        check(code, f"InitProducerId for {self.transactional_id}")
        session.producer_id, session.producer_epoch = answer.producer_id, answer.producer_epoch
        session.sequences.clear()

    def _raise_fenced_or_timeout(self, session: Session) -> NoReturn:
        """The coordinator fences a transaction that it times out as it fences one that was taken over."""
        is_late = (time.monotonic() - session.transacting_since) * 1000 >= self.transaction_timeout_ms
        found = self.marker() if is_late else None
        if not is_late or (found is not None and found.run_id not in (session.run_id, session.settled_run_id)):
            raise FencedError(
                f"another run of this query has taken over its sink (transactional.id {self.transactional_id}): two "
                "drivers run on one checkpoint. This one is fenced, and the other one goes on; stop one."
            )
        log.warning("a transaction took over %d ms and was taken back by the cluster", self.transaction_timeout_ms)
        session.producer_id = session.producer_epoch = -1
        raise RetriableError("the transaction timed out (kafka.transaction.timeout.ms)")

    def _abort(self, session: Session, deadline: float) -> None:
        """Abort the open transaction of this run; only then may it continue with its producer id (KIP-360)."""
        try:
            self.end(session, deadline, committed=False)
        except RetriableError as error:
            log.debug("nothing to take back: %s", error)

    def marker(self, *, stable: bool = True) -> Marker | None:
        """The newest committed batch; None if there is none, or its marker has expired.

        With `stable` an open transaction that may change the answer is waited for, by a RetriableError.
        """
        found = group_marker(self.cluster, self.transactional_id, stable=stable)
        if self.marker_topic is None:
            return found
        return self.marker_topic.read(self.transactional_id, stable=stable, known=found)

    def produce(self, session: Session, work: Work, deadline: float) -> None:
        """Write all records of the batch; each is acknowledged on return, and none is visible yet."""
        if not work.partitions:
            return
        partitions, marker = work.partitions if work.tasks is None else frozenset(), None
        if self.marker_topic is not None and work.batch_id is not None:
            marker = self.marker_topic.record(self.transactional_id, _marker_of(work, session))
            partitions |= {TopicPartition(marker.topic, marker.partition_id)}
        self._add_partitions(session, partitions, deadline)
        sender = TransactionalSender(
            self.cluster,
            self.transactional_id,
            session.producer_id,
            session.producer_epoch,
            session.sequences,
            partitions,
        )
        for batch in work.batches():
            sender.add(batch)
        if marker is not None:
            sender.add(marker)
        sender.finish()

    def _add_partitions(self, session: Session, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Let the coordinator know where the transaction writes, before it does."""
        topics: dict[str, list[int]] = {}
        for topic, partition_id in sorted(partitions):
            topics.setdefault(topic, []).append(partition_id)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=session.producer_id,
            v3_and_below_producer_epoch=session.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=ids) for name, ids in topics.items()],
        )
        while True:
            answer = self._coordinated(ApiKey.ADD_PARTITIONS_TO_TXN, request, AddPartitionsToTxnResponse, deadline)
            codes = {
                part.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            }
            if ErrorCode.CONCURRENT_TRANSACTIONS not in codes:
                break
            _pause(deadline, "AddPartitionsToTxn")
        codes -= {ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED}
        for code in sorted(codes):
            self._passed(code, f"AddPartitionsToTxn for {', '.join(topics)}")

    def mark(self, session: Session, work: Work, deadline: float) -> None:
        """Write the marker, inside the transaction: the number of the batch as the offset of a group."""
        assert work.batch_id is not None
        topic, partition_id = min(work.partitions)
        words = [BY_TASKS] if work.tasks is not None else []
        words += [BEFORE + ",".join(session.before)] if session.before else []
        plan = work.plan or (NO_PLAN if words else "")
        marker = TxnOffsetCommitRequestPartition(
            partition_index=partition_id,
            committed_offset=work.batch_id,
            committed_metadata=" ".join(filter(None, [work.run_id, plan, *words])),
        )
        marked = [TxnOffsetCommitRequestTopic(name=topic, partitions=[marker])]
        self.commit_offsets(session, self.transactional_id, marked, deadline)

    def commit_offsets(
        self, session: Session, group: str, topics: list[TxnOffsetCommitRequestTopic], deadline: float
    ) -> None:
        """Commit offsets of a group inside the transaction."""
        adding = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=session.producer_id,
            producer_epoch=session.producer_epoch,
            group_id=group,
        )
        added = self._coordinated(ApiKey.ADD_OFFSETS_TO_TXN, adding, AddOffsetsToTxnResponse, deadline)
        self._passed(added.error_code, "AddOffsetsToTxn")
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=session.producer_id,
            producer_epoch=session.producer_epoch,
            topics=topics,
        )
        connection = self.cluster.coordinator(group, GROUP)
        answer = connection.request(ApiKey.TXN_OFFSET_COMMIT, request, TxnOffsetCommitResponse)
        for answered in answer.topics:
            for part in answered.partitions:
                self._passed(part.error_code, f"TxnOffsetCommit for {answered.name}")

    def end(self, session: Session, deadline: float, *, committed: bool = True) -> None:
        """Make all of it visible at once, or take all of it back."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=session.producer_id,
            producer_epoch=session.producer_epoch,
            committed=committed,
        )
        answer = self._coordinated(ApiKey.END_TXN, request, EndTxnResponse, deadline)
        self._passed(answer.error_code, "EndTxn")

    def _transact(self, session: Session, work: Work, deadline: float) -> None:
        try:
            self.produce(session, work, deadline)
            if work.batch_id is not None:
                self.mark(session, work, deadline)
        except (OSError, ProtocolError, RetriableError):
            raise  # starting again aborts the transaction
        except Exception:
            self._reset(session)
            raise
        self.end(session, deadline)

    def _reset(self, session: Session) -> None:
        """Abort at once if possible, so that consumers do not wait for the timeout of the transaction."""
        try:
            self.cluster.reset()
            self.end(session, time.monotonic() + LAST_BACKOFF_MS / 1000, committed=False)
        except (OSError, ProtocolError, RetriableError, ClusterError) as error:
            log.debug("the transaction is taken back by its timeout: %s", error)

    def _refuse_if_behind(self, session: Session, batch_id: int, plan: str) -> None:
        """End a driver that is behind, or has another plan, before it fences a healthy one.

        The same if another run has replaced it: a process that begins again, because it has missed a batch, would fence
        that run, and be fenced in turn.

        The marker of a batch that was just committed may be pending for a short time, which this waits for. It does not
        wait for that of a dead driver, which the InitProducerId of this run completes.
        """
        found, _ = self._newest_known()
        if found is not None:
            _refuse_if_overtaken(found, session.run_id)
            is_written(found.batch_id, batch_id, "the sink", found_plan=found.plan, plan=plan)

    def _newest_known(self) -> tuple[Marker | None, bool]:
        """The marker, and whether no transaction is open that may change it. Makes the marker topic."""
        if self.marker_topic is not None:
            self.marker_topic.ensure()
        for _ in range(MARKER_TRIES):
            try:
                return self.marker(), True
            except RetriableError:
                time.sleep(FIRST_BACKOFF_MS / 1000)
        return self.marker(stable=False), False

    def _found(self, session: Session, batch_id: int, plan: str) -> Marker | None:
        """The batch in the sink. Raises FencedError if the sink has later ones, or another one with this number."""
        found = self.marker()
        if found is not None:
            _refuse_if_overtaken(found, session.run_id)
            is_other = found.run_id != session.run_id
            session.before = (found.run_id, *found.before)[:MOST_BEFORE] if is_other else found.before
        if found is None:
            self._warn_of_doubt(batch_id)
        if found is None or not is_written(found.batch_id, batch_id, "the sink", found_plan=found.plan, plan=plan):
            return None
        log.warning("batch %d was written before by run %s and is not written again", batch_id, found.run_id)
        return found

    def _warn_of_doubt(self, batch_id: int) -> None:
        """Warn if an earlier run may have written the batch, and its marker has expired since."""
        planned = None if self._doubt_reported else planned_ms(self.checkpoint, batch_id)
        if planned is None:
            return
        try:
            kept_min = int(self.cluster.broker_setting("offsets.retention.minutes") or 0)
        except (OSError, ProtocolError, RetriableError, ClusterError, ValueError) as error:
            log.debug("the retention of offsets in this cluster is not known: %s", error)
            return
        if 0 < kept_min * 60_000 < time.time_ns() // 1_000_000 - planned:
            self._doubt_reported = True
            advice = "" if self.marker_topic is not None else ". With the option markerTopic markers do not expire"
            log.warning(
                "batch %d was planned at %s UTC, longer ago than the cluster keeps markers (offsets.retention.minutes="
                "%d), and no marker of this query is there: where an earlier run has written the batch and died, it is "
                "written twice now%s",
                batch_id,
                time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(planned / 1000)),
                kept_min,
                advice,
            )

    def _coordinated(
        self, key: ApiKey, request: Message, answer: type[R], deadline: float, transactional_id: str | None = None
    ) -> R:
        """Send a request to the coordinator, of another id if given.

        Waits while the coordinator completes the previous transaction.
        """
        while True:
            connection = self.cluster.coordinator(transactional_id or self.transactional_id, TRANSACTION)
            found = connection.request(key, request, answer)
            if getattr(found, "error_code", ErrorCode.NONE) != ErrorCode.CONCURRENT_TRANSACTIONS:
                return found
            _pause(deadline, key.name)

    def _passed(self, code: int, what: str) -> None:
        if code in LOST:
            raise RetriableError(f"{what}: {error_name(code)}")
        check(code, what)

    def _session(self, work: Work) -> Session:
        """The session of this process; a new one without a producer if another process may have committed since."""
        key = (os.getpid(), self.transactional_id)
        session = _SESSIONS.get(key)
        if session is None or session.run_id != work.run_id or not _follows(work.batch_id, session.batch_id):
            session = self.session_kind(work.run_id)
            if work.batch_id is not None:  # a batch query commits once: nothing goes on from it
                _SESSIONS[key] = session
        session.batch_id = work.batch_id
        return session


# Of this process: a fork's copies are another process's.
_SESSIONS: dict[tuple[int, str], Session] = {}


def group_marker(cluster: Cluster, group: str, *, stable: bool) -> Marker | None:
    """The marker that is an offset of a group. Raises as `Cluster.fetch_offsets`."""
    found: Marker | None = None
    for _, _, offset, metadata in cluster.fetch_offsets(group, stable=stable):
        if offset >= 0 and (found is None or offset > found.batch_id):
            run_id, plan, *_ = words = [*metadata.split(" "), ""]
            tasks = () if BY_TASKS in words[2:] else None
            runs = [word.removeprefix(BEFORE).split(",") for word in words[2:] if word.startswith(BEFORE)]
            before = tuple(runs[0]) if runs else ()
            found = Marker(offset, run_id, "" if plan == NO_PLAN else plan, tasks, before=before)
    return found


def _refuse_if_overtaken(found: Marker, run_id: str) -> None:
    """Raise FencedError if another run has replaced this one."""
    if run_id in found.before:
        raise FencedError(
            f"another run of this query has taken over its sink, and has written batch {found.batch_id}: two drivers "
            "run on one checkpoint, and this is the older one. It ends here, the other one goes on, and each batch is "
            "written once"
        )


def _marker_of(work: Work, session: Session) -> Marker:
    assert work.batch_id is not None
    decided_ms = 0 if work.tasks is None else time.time_ns() // 1_000_000
    return Marker(work.batch_id, work.run_id, work.plan, work.tasks, decided_ms, session.before)


def _follows(batch_id: int | None, last: int | None) -> bool:
    """Whether a batch is the last one again or the next."""
    return batch_id == last or (batch_id is not None and last is not None and batch_id == last + 1)


def _pause(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise RetriableError(f"{what}: the transaction before does not end")
    time.sleep(CONCURRENT_BACKOFF_S)
