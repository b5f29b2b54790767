"""One shard of the transaction coordinator: the transactional ids that one partition of __transaction_state keeps.

Operations are plain functions: they read what was replayed, are given time and fresh producer ids, and return records.
A record and its answer are one: what a client gets was committed before. Where a result says that a transaction
ends, its owner writes the markers once the records are committed, and then calls `complete`.

Errors are named as in the newest version of each API; the handlers turn them into what older versions know.
Source: Kafka TransactionCoordinator, TransactionMetadata; KIP-98, KIP-360, KIP-588, KIP-890, KIP-939.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.topic_names import TopicPartition
from odradek.coordinator.transaction.connections import Arrival, Kind, UsedConnections
from odradek.coordinator.transaction.metadata import (
    FENCED_EPOCH,
    LAST_CLIENT_EPOCH,
    MAX_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    TransactionMetadata,
)
from odradek.coordinator.transaction.records import TransactionRecord
from odradek.coordinator.transaction.state import AT_REST, COMPLETE, TransactionState
from odradek.statemachine.machine import Result
from odradek.statemachine.timeline import Timeline, TimelineDict, TimelineSet

# Bounds the work of one turn of the loop; its owner looks again at once where there may be more.
MAX_ENDED_PER_LOOK = 500
BUMPS_EPOCH = 2

ResponseT = TypeVar("ResponseT")
Identity = tuple[int, int]  # producer id, producer epoch
NO_IDENTITY: Identity = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Kept(NamedTuple):
    """Who may end what is open, and under which identity that was written; NO_IDENTITY where nothing is open."""

    client: Identity
    writer: Identity


class ProducerIdNeededError(Exception):
    """The operation must be run again with a fresh producer id: it cannot wait for one."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A transaction whose end is decided; `metadata` is as of then, with the epoch that the markers bear.

    Attributes:
        fenced_by: what shut its producer out; "" where the producer itself ended it.
    """

    transactional_id: str
    metadata: TransactionMetadata
    fenced_by: str = ""

    @property
    def committed(self) -> bool:
        return self.metadata.state is TransactionState.PREPARE_COMMIT


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ResponseT]):
    """The answer, and the transactions whose markers are due once the records are committed.

    Attributes:
        error: the answer is this refusal, which had something to write all the same.
    """

    response: ResponseT
    ended: Sequence[Ended] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks for what transactional id.

    Attributes:
        version: of the transaction, 2 where every end bumps the epoch.
        arrival: over which of the client's connections; None where the epoch distinguishes early from late.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int = 0
    arrival: Arrival | None = None


class TransactionMachine:
    """A `StateMachine` of `TransactionRecord`s."""

    def __init__(self, timeline: Timeline) -> None:
        self.ids: TimelineDict[str, TransactionMetadata] = TimelineDict(timeline)
        # The ids whose transaction may time out: most are at rest.
        self._ongoing: TimelineSet[str] = TimelineSet(timeline)
        # Of these: (start, monotonic time of the first look at it), of this leadership alone.
        self._seen_open: dict[str, tuple[int, int]] = {}
        self._connections: dict[str, UsedConnections] = {}

    def replay(self, record: TransactionRecord, offset: int) -> None:
        """Apply one record of the log."""
        if record.metadata is None:
            self.ids.pop(record.transactional_id, None)
            self._connections.pop(record.transactional_id, None)
            self._ongoing.discard(record.transactional_id)
            return
        before = self.ids.get(record.transactional_id)
        if before is not None and before.producer_id == record.metadata.producer_id:
            epoch = record.metadata.producer_epoch
            assert epoch >= before.producer_epoch, f"producer {before.producer_id}: {before.producer_epoch} -> {epoch}"
        self.ids[record.transactional_id] = record.metadata
        if record.metadata.state is TransactionState.ONGOING:
            self._ongoing.add(record.transactional_id)
        else:
            self._ongoing.discard(record.transactional_id)

    def on_loaded(self) -> None:
        """The service runs `unfinished` as its first operation."""

    def on_unloaded(self) -> None:
        self._connections.clear()

    def unfinished(self) -> Result[TransactionRecord, Outcome[None]]:
        """Transactions whose markers may be missing: all that were ending when the coordinator went."""
        ended = [Ended(each, metadata) for each, metadata in self.ids.items() if metadata.is_ending]
        return Result([], Outcome(None, ended))

    def _check_arrival(self, kind: Kind, request: Request) -> None:
        if request.arrival is None:
            return
        connections = self._connections.setdefault(request.transactional_id, UsedConnections())
        if connections.is_late(kind, request.arrival):
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, f"{request.transactional_id} has gone on over a later connection"
            )
        connections.used(kind, request.arrival)

    # ---- InitProducerId

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Identity | None,
        *,
        fresh_producer_id: int | None,
        now_ms: int,
    ) -> Result[TransactionRecord, Outcome[Identity]]:
        """Make the caller the only producer of its transactional id, and end what another has left open.

        Args:
            expected: (producer id, epoch) where the producer goes on after an error of its own (KIP-360).
            fresh_producer_id: an unused id, where the caller has one at hand.
        Raises:
            ApiError: CONCURRENT_TRANSACTIONS (come again), PRODUCER_FENCED.
            ProducerIdNeededError: run it again with one.
        """
        result = self._initialized(transactional_id, timeout_ms, expected, fresh_producer_id, now_ms)
        self._connections.pop(transactional_id, None)  # what comes late has an earlier epoch
        return result

    def _initialized(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Identity | None,
        fresh_producer_id: int | None,
        now_ms: int,
    ) -> Result[TransactionRecord, Outcome[Identity]]:
        present = self.ids.get(transactional_id)
        if present is None:
            producer_id = _needed(fresh_producer_id)
            created = TransactionMetadata(producer_id, 0, timeout_ms, last_update_ms=now_ms)
            return self._answer(transactional_id, created, (producer_id, 0))
        if expected is not None and not _may_go_on(present, expected):
            raise ApiError(ErrorCode.PRODUCER_FENCED, f"{transactional_id} belongs to another producer")
        if present.is_ending:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"the last transaction of {transactional_id} is ending")
        if present.state is TransactionState.ONGOING:
            if expected is not None and expected[1] != present.client_identity[1]:
                # Kafka aborts what is open before it finds this out: a fenced producer would end the new one's work.
                raise ApiError(ErrorCode.PRODUCER_FENCED, f"{transactional_id} is at a newer epoch")
            error = ErrorCode.CONCURRENT_TRANSACTIONS
            return self._fence(
                transactional_id, present, now_ms, "InitProducerId", last_epoch=FENCED_EPOCH, error=error
            )
        expected_epoch = None if expected is None else expected[1]
        if present.is_exhausted and expected_epoch in (None, present.producer_epoch):
            last_epoch = NO_PRODUCER_EPOCH if expected is None else present.producer_epoch
            rotated = present.initialized(
                epoch=0,
                last_epoch=last_epoch,
                timeout_ms=timeout_ms,
                now_ms=now_ms,
                producer_id=_needed(fresh_producer_id),
            )
            return self._answer(transactional_id, rotated, (rotated.producer_id, 0))
        epoch, last_epoch = _bumped(transactional_id, present, expected)
        metadata = present.initialized(epoch=epoch, last_epoch=last_epoch, timeout_ms=timeout_ms, now_ms=now_ms)
        return self._answer(transactional_id, metadata, (metadata.producer_id, epoch))

    def keep_prepared(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Identity | None,
        *,
        fresh_producer_id: int | None,
        now_ms: int,
    ) -> Result[TransactionRecord, Outcome[Kept]]:
        """Make the caller the only producer that may end what is open; where nothing is, as `init_producer_id`.

        Arguments and errors are those of `init_producer_id`, and TRANSACTIONAL_ID_AUTHORIZATION_FAILED where the
        transaction has no time-out and the caller is not one of two-phase commit. A kept one takes no more partitions.
        """
        present = self.ids.get(transactional_id)
        if present is None or present.state is not TransactionState.ONGOING:
            done = self.init_producer_id(
                transactional_id, timeout_ms, expected, fresh_producer_id=fresh_producer_id, now_ms=now_ms
            )
            return Result(done.records, Outcome(Kept(done.response.response, NO_IDENTITY)))
        if expected is not None and expected != present.client_identity:
            raise ApiError(ErrorCode.PRODUCER_FENCED, f"{transactional_id} belongs to another producer")
        if present.timeout_ms == NO_TIMEOUT_MS != timeout_ms:
            # It may stay open for ever: who may not begin such a transaction may not have the say over it either.
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                f"the transaction of {transactional_id} is one of two-phase commit",
            )
        producer_id, epoch = present.client_identity
        # The end bumps the epoch once more, and what follows on it is given to the client: it must not be the last.
        is_left = epoch + 1 < LAST_CLIENT_EPOCH
        client = (producer_id, epoch + 1) if is_left else (_needed(fresh_producer_id), 0)
        metadata = present.kept_by(client, timeout_ms=timeout_ms, now_ms=now_ms)
        self._connections.pop(transactional_id, None)
        return self._answer(transactional_id, metadata, Kept(client, (present.producer_id, present.producer_epoch)))

    def _fence(
        self,
        transactional_id: str,
        present: TransactionMetadata,
        now_ms: int,
        cause: str,
        *,
        last_epoch: int = NO_PRODUCER_EPOCH,
        error: ErrorCode = ErrorCode.NONE,
    ) -> Result[TransactionRecord, Outcome[Identity]]:
        """Abort the open transaction under a bumped epoch, which no producer gets: its producer is fenced by it.

        The epoch is bumped once, also where every end bumps it (KAFKA-19367).
        """
        assert present.producer_epoch < MAX_EPOCH, "the last epoch has no transactions"
        bumped = present.producer_epoch + 1, NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        epoch, next_producer_id, next_producer_epoch = present.end_of_kept(bumps=True) if present.is_kept else bumped
        metadata = present.ending(
            commit=False,
            epoch=epoch,
            last_epoch=last_epoch,
            version=present.version,
            now_ms=now_ms,
            next_producer_id=next_producer_id,
            next_producer_epoch=next_producer_epoch,
        )
        identity = (metadata.producer_id, metadata.producer_epoch)
        ended = Ended(transactional_id, metadata, cause)
        return Result([TransactionRecord(transactional_id, metadata)], Outcome(identity, [ended], error))

    # ---- partitions

    def add_partitions(
        self, request: Request, partitions: frozenset[TopicPartition], now_ms: int
    ) -> Result[TransactionRecord, Outcome[None]]:
        """Make partitions part of the producer's transaction, which begins where none is open.

        Raises:
            ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE (late).
        """
        present = self._owned(request)
        self._check_arrival(Kind.ADD, request)
        if present.state is TransactionState.ONGOING and partitions <= present.partitions:
            return Result([], Outcome(None))
        metadata = present.ongoing(partitions, version=request.version, now_ms=now_ms)
        return self._answer(request.transactional_id, metadata, None)

    def verify_partitions(
        self, request: Request, partitions: Sequence[TopicPartition]
    ) -> Result[TransactionRecord, Outcome[frozenset[TopicPartition]]]:
        """Which of the partitions the producer's open transaction includes. Raises as `add_partitions`."""
        present = self._owned(request)
        known = present.partitions if present.state is TransactionState.ONGOING else frozenset()
        return Result([], Outcome(known & frozenset(partitions)))

    def _owned(self, request: Request) -> TransactionMetadata:
        """The id's state, where a transaction of the caller's may be open or begin."""
        present = self.ids.get(request.transactional_id)
        if present is not None and present.is_ending and _identity(request) == present.next_identity:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{request.transactional_id}: the last one is ending")
        if present is not None and present.is_kept and _identity(request) == present.client_identity:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, f"{request.transactional_id} is kept: it can only be ended")
        if present is None or present.producer_id != request.producer_id:
            raise _not_mapped(request)
        if present.is_kept or present.producer_epoch != request.producer_epoch:
            raise _fenced(request, present)
        if request.producer_epoch > LAST_CLIENT_EPOCH:
            raise _fenced(request, present)
        if present.is_ending:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{request.transactional_id}: the last one is ending")
        return present

    # ---- EndTxn

    def end(
        self, request: Request, *, commit: bool, fresh_producer_id: int | None, now_ms: int
    ) -> Result[TransactionRecord, Outcome[Identity]]:
        """Decide the end of the producer's transaction; a request that comes again gets the same answer.

        Returns:
            (producer id, epoch) that the producer goes on with; they differ from before in version 2 alone.
        Raises:
            ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS (the
                markers of this very end are under way).
            ProducerIdNeededError: run it again with one.
        """
        present = self.ids.get(request.transactional_id)
        if present is None:
            raise _not_mapped(request)
        again = _is_again(request, present)
        _check_ender(request, present, again=again)
        self._check_arrival(Kind.END, request)
        if present.state is TransactionState.ONGOING:
            return self._end_ongoing(request, present, commit, fresh_producer_id, now_ms)
        if present.is_ending:
            raise _while_ending(request, present, commit, again=again)
        if _has_ended_so(request, present, commit, again=again):
            return Result([], Outcome(present.next_identity))
        if request.version >= BUMPS_EPOCH and not commit and not again:
            # A transaction that wrote nothing: its epoch is used up all the same, the client counts on it.
            return self._end_ongoing(request, present, commit, fresh_producer_id, now_ms)
        raise _invalid_state(request, present, commit)

    def _end_ongoing(
        self,
        request: Request,
        present: TransactionMetadata,
        commit: bool,
        fresh_producer_id: int | None,
        now_ms: int,
    ) -> Result[TransactionRecord, Outcome[Identity]]:
        bumps = request.version >= BUMPS_EPOCH
        if present.is_kept:
            epoch, next_producer_id, next_producer_epoch = present.end_of_kept(bumps=bumps)
        else:
            epoch = present.producer_epoch + 1 if bumps else present.producer_epoch
            next_producer_id = _needed(fresh_producer_id) if bumps and present.is_exhausted else NO_PRODUCER_ID
            next_producer_epoch = NO_PRODUCER_EPOCH
        metadata = present.ending(
            commit=commit,
            epoch=epoch,
            last_epoch=request.producer_epoch if bumps else present.last_producer_epoch,
            version=request.version,
            now_ms=now_ms,
            next_producer_id=next_producer_id,
            next_producer_epoch=next_producer_epoch,
        )
        ended = Ended(request.transactional_id, metadata)
        return Result([TransactionRecord(request.transactional_id, metadata)], Outcome(metadata.next_identity, [ended]))

    def complete(self, ended: Ended, now_ms: int) -> Result[TransactionRecord, Outcome[bool]]:
        """Every partition has its marker; False where this end was completed before, or is not the present one."""
        assert ended.metadata.is_ending, f"the end of {ended.transactional_id} is not decided: {ended.metadata}"
        present = self.ids.get(ended.transactional_id)
        metadata = ended.metadata
        if (
            present is None
            or present.state is not metadata.state
            or (present.producer_id, present.producer_epoch) != (metadata.producer_id, metadata.producer_epoch)
        ):
            return Result([], Outcome(False))
        return Result([TransactionRecord(ended.transactional_id, present.completed(now_ms))], Outcome(True))

    # ---- time

    def abort_timed_out(self, now_ms: int, monotonic_ms: int) -> Result[TransactionRecord, Outcome[None]]:
        """Abort transactions that are open for longer than their producers asked for; of two-phase commit, none.

        The log has the wall clock's time of their start. Where that clock was set back since, the time since this
        coordinator first saw a transaction open counts, too: it would keep readers waiting for as long as the clock
        was set back by.
        """
        records: list[TransactionRecord] = []
        ended: list[Ended] = []
        seen = {}
        for transactional_id in self._ongoing:
            present = self.ids[transactional_id]
            if present.timeout_ms == NO_TIMEOUT_MS:
                continue
            start_ms, since_ms = self._seen_open.get(transactional_id, (None, 0))
            since_ms = since_ms if start_ms == present.start_ms else monotonic_ms
            seen[transactional_id] = present.start_ms, since_ms
            open_ms = max(now_ms - present.start_ms, monotonic_ms - since_ms)
            if open_ms > present.timeout_ms and len(ended) < MAX_ENDED_PER_LOOK:
                result = self._fence(transactional_id, present, now_ms, "its timeout")
                records += result.records
                ended += result.response.ended
        self._seen_open = seen
        return Result(records, Outcome(None, ended), atomic=False)

    def expire(self, now_ms: int, expiration_ms: int) -> Result[TransactionRecord, Outcome[int]]:
        """Remove ids at rest that were not used for so long; answers how many."""
        expired = [
            TransactionRecord(transactional_id, None)
            for transactional_id, each in self.ids.items()
            if each.state in AT_REST and now_ms - each.last_update_ms >= expiration_ms
        ][:MAX_ENDED_PER_LOOK]
        return Result(expired, Outcome(len(expired)), atomic=False)

    def _answer(
        self, transactional_id: str, metadata: TransactionMetadata, response: ResponseT
    ) -> Result[TransactionRecord, Outcome[ResponseT]]:
        return Result([TransactionRecord(transactional_id, metadata)], Outcome(response))


def _identity(request: Request) -> Identity:
    return request.producer_id, request.producer_epoch


def _needed(fresh_producer_id: int | None) -> int:
    if fresh_producer_id is None:
        raise ProducerIdNeededError
    return fresh_producer_id


def _may_go_on(present: TransactionMetadata, expected: Identity) -> bool:
    """Its epoch is checked when it is bumped. A producer whose id was replaced may not have heard of it yet."""
    producer_id, epoch = expected
    if present.is_kept:
        return producer_id == present.client_identity[0]
    if present.is_ending and producer_id == present.next_producer_id != NO_PRODUCER_ID:
        return True
    return producer_id == present.producer_id or (
        producer_id == present.previous_producer_id and epoch >= LAST_CLIENT_EPOCH
    )


def _bumped(transactional_id: str, present: TransactionMetadata, expected: Identity | None) -> Identity:
    """(epoch, epoch before it that the same producer may name again)."""
    if expected is None:
        return present.producer_epoch + 1, NO_PRODUCER_EPOCH
    if expected == (present.producer_id, present.producer_epoch):
        return present.producer_epoch + 1, present.producer_epoch
    if expected[1] == present.last_producer_epoch and present.last_producer_epoch != NO_PRODUCER_EPOCH:
        return present.producer_epoch, present.last_producer_epoch  # it was answered before, and the answer was lost
    raise ApiError(ErrorCode.PRODUCER_FENCED, f"{transactional_id} is at epoch {present.producer_epoch}")


def _is_again(request: Request, present: TransactionMetadata) -> bool:
    """Whether an EndTxn of version 2 is the one that brought about the present state: its epoch is the one before."""
    if request.version < BUMPS_EPOCH or present.version < BUMPS_EPOCH or present.state is TransactionState.ONGOING:
        return False
    if present.state is TransactionState.EMPTY or present.last_producer_epoch == FENCED_EPOCH:
        return False
    if request.producer_id == present.producer_id:
        return request.producer_epoch + 1 == present.producer_epoch
    if present.is_ending and request.producer_id == present.next_producer_id:  # it had kept the transaction
        return request.producer_epoch + 1 == present.next_producer_epoch
    replaced = request.producer_id == present.previous_producer_id and present.producer_epoch == 0
    return replaced and request.producer_epoch == LAST_CLIENT_EPOCH


def _check_ender(request: Request, present: TransactionMetadata, *, again: bool) -> None:
    """Whether the request may end a transaction of its transactional id.

    Args:
        again: it is the one that brought about the present state, from the epoch before.
    Raises:
        ApiError: CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
    """
    bumps = request.version >= BUMPS_EPOCH and present.version >= BUMPS_EPOCH
    is_replaced = present.next_producer_id != NO_PRODUCER_ID
    if (bumps or is_replaced) and present.is_ending and _identity(request) == present.next_identity:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{request.transactional_id}: the last one is ending")
    producer_id, epoch = present.client_identity
    if request.producer_id not in (producer_id, present.producer_id) and not again:
        raise _not_mapped(request)
    if _identity(request) != (producer_id, epoch) and not again:
        raise _fenced(request, present)
    if epoch > LAST_CLIENT_EPOCH and not present.is_ending:
        raise _fenced(request, present)  # what is left to markers is given to no producer


def _while_ending(request: Request, present: TransactionMetadata, commit: bool, *, again: bool) -> ApiError:
    """The answer while markers are under way: to the request that asked for this very end, that it is to wait."""
    same_end = (present.state is TransactionState.PREPARE_COMMIT) == commit
    # Version 2 distinguishes it by its epoch, the one before; in an earlier version any such request may be it.
    if same_end and (again or present.version < BUMPS_EPOCH):
        return ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{request.transactional_id}: markers are under way")
    return _invalid_state(request, present, commit)


def _has_ended_so(request: Request, present: TransactionMetadata, commit: bool, *, again: bool) -> bool:
    """Whether the end that is asked for is complete: the client did not get the answer, and tries again."""
    same_end = present.state in COMPLETE and (present.state is TransactionState.COMPLETE_COMMIT) == commit
    return same_end and (again or (request.version < BUMPS_EPOCH and present.version < BUMPS_EPOCH))


def _not_mapped(request: Request) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"producer {request.producer_id} is not that of {request.transactional_id}",
    )


def _fenced(request: Request, present: TransactionMetadata) -> ApiError:
    producer_id, epoch = present.client_identity
    return ApiError(
        ErrorCode.PRODUCER_FENCED,
        f"{request.transactional_id} is at epoch {epoch} of producer {producer_id}, "
        f"not {request.producer_epoch} of {request.producer_id}",
    )


def _invalid_state(request: Request, present: TransactionMetadata, commit: bool) -> ApiError:
    what = "commit" if commit else "abort"
    return ApiError(
        ErrorCode.INVALID_TXN_STATE, f"{request.transactional_id} cannot {what}: it is {present.state.label}"
    )
