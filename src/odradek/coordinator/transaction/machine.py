"""The state machine of one partition of __transaction_state: the transactional ids that the partition stores.

Operations are plain functions. They read the replayed state, take the time and new producer ids as arguments, and
return records and a response, which the client gets once the records are committed. If a result ends a transaction, the
shard writes the markers after the commit of the records, and then runs `complete`.

Errors are those of the newest version of each API; the handlers convert them for older versions.
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

# The most transactions that one operation ends; the shard repeats the operation while there are more.
MAX_ENDED_PER_LOOK = 500
BUMPS_EPOCH = 2

ResponseT = TypeVar("ResponseT")
Identity = tuple[int, int]  # producer id, producer epoch
NO_IDENTITY: Identity = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Kept(NamedTuple):
    """The result of `keep_prepared`.

    Attributes:
        client: the producer id and epoch that may end the open transaction.
        writer: the producer id and epoch of the transaction's records; NO_IDENTITY if no transaction is open.
    """

    client: Identity
    writer: Identity


class ProducerIdNeededError(Exception):
    """The operation needs a new producer id: the caller allocates one and runs the operation again."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A transaction in a Prepare state; the markers have the epoch of `metadata`.

    Attributes:
        fenced_by: the cause for which its producer was fenced; "" if the producer itself ended the transaction.
    """

    transactional_id: str
    metadata: TransactionMetadata
    fenced_by: str = ""

    @property
    def committed(self) -> bool:
        return self.metadata.state is TransactionState.PREPARE_COMMIT


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ResponseT]):
    """The response, and the transactions whose markers must be written once the records are committed.

    Attributes:
        error: the response's error code, of an operation that fails and still writes records.
    """

    response: ResponseT
    ended: Sequence[Ended] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Request:
    """The producer of a request, and its transactional id.

    Attributes:
        version: the transaction version; from 2 on, each end bumps the epoch.
        arrival: the connection of the request; None where the epoch already identifies late requests.
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
        # The ids with an open transaction, for the check of timeouts.
        self._ongoing: TimelineSet[str] = TimelineSet(timeline)
        # Of these: (start, monotonic time at which this leader first saw it).
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
        """Nothing to do: the shard runs `unfinished` as its first operation."""

    def on_unloaded(self) -> None:
        self._connections.clear()

    def unfinished(self) -> Result[TransactionRecord, Outcome[None]]:
        """Return the transactions in a Prepare state, whose markers the previous leader may not have written."""
        ended = [Ended(each, metadata) for each, metadata in self.ids.items() if metadata.is_ending]
        return Result([], Outcome(None, ended))

    def _check_arrival(self, kind: Kind, request: Request) -> None:
        if request.arrival is None:
            return
        connections = self._connections.setdefault(request.transactional_id, UsedConnections())
        if connections.is_late(kind, request.arrival):
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"{request.transactional_id} has since sent requests over a newer connection",
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
        """Fence all other producers of a transactional id, and abort the open transaction of another.

        Args:
            timeout_ms: the transaction timeout.
            expected: the (producer id, epoch) of a producer that recovers from an error (KIP-360); None for a new one.
            fresh_producer_id: an unused producer id; None if the caller has not allocated one.
        Returns:
            The caller's producer id and epoch.
        Raises:
            ApiError: CONCURRENT_TRANSACTIONS (retriable), PRODUCER_FENCED.
            ProducerIdNeededError: `fresh_producer_id` is required.
        """
        result = self._initialized(transactional_id, timeout_ms, expected, fresh_producer_id, now_ms)
        self._connections.pop(transactional_id, None)  # late requests have an earlier epoch
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
            producer_id = _require(fresh_producer_id)
            created = TransactionMetadata(producer_id, 0, timeout_ms, last_update_ms=now_ms)
            return self._answer(transactional_id, created, (producer_id, 0))
        if expected is not None and not _may_continue(present, expected):
            raise ApiError(ErrorCode.PRODUCER_FENCED, f"{transactional_id} belongs to another producer")
        if present.is_ending:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"the last transaction of {transactional_id} is ending")
        if present.state is TransactionState.ONGOING:
            if expected is not None and expected[1] != present.client_identity[1]:
                # Kafka aborts the transaction before this check: a fenced producer would abort that of the new one.
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
                producer_id=_require(fresh_producer_id),
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
        """Make the caller the only producer that may end the open transaction (KIP-939).

        The transaction takes no more partitions. If no transaction is open, this does the same as `init_producer_id`.

        Args:
            transactional_id, timeout_ms, expected, fresh_producer_id, now_ms: as `init_producer_id` takes them.
        Raises:
            ApiError: as `init_producer_id`; TRANSACTIONAL_ID_AUTHORIZATION_FAILED if the open transaction uses
                two-phase commit and the caller does not.
            ProducerIdNeededError: as `init_producer_id`.
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
            # Only producers with the permission for two-phase commit may control a transaction without a timeout.
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                f"the transaction of {transactional_id} uses two-phase commit",
            )
        producer_id, epoch = present.client_identity
        # The end bumps the epoch again, and the client gets that epoch: it must not be above LAST_CLIENT_EPOCH.
        is_left = epoch + 1 < LAST_CLIENT_EPOCH
        client = (producer_id, epoch + 1) if is_left else (_require(fresh_producer_id), 0)
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
        """Abort the open transaction with a bumped epoch that no producer gets, which fences its producer.

        The epoch is bumped once in all transaction versions (KAFKA-19367).
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
        """Add partitions to the producer's transaction; begins one if none is open.

        Raises:
            ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS; INVALID_TXN_STATE for a
                request that a newer connection has overtaken.
        """
        present = self._check_producer(request)
        self._check_arrival(Kind.ADD, request)
        if present.state is TransactionState.ONGOING and partitions <= present.partitions:
            return Result([], Outcome(None))
        metadata = present.ongoing(partitions, version=request.version, now_ms=now_ms)
        return self._answer(request.transactional_id, metadata, None)

    def verify_partitions(
        self, request: Request, partitions: Sequence[TopicPartition]
    ) -> Result[TransactionRecord, Outcome[frozenset[TopicPartition]]]:
        """The partitions that the producer's open transaction includes. Raises as `add_partitions`."""
        present = self._check_producer(request)
        known = present.partitions if present.state is TransactionState.ONGOING else frozenset()
        return Result([], Outcome(known & frozenset(partitions)))

    def _check_producer(self, request: Request) -> TransactionMetadata:
        """The state of a transactional id whose producer is the caller. Raises as `add_partitions`."""
        present = self.ids.get(request.transactional_id)
        if present is not None and present.is_ending and _identity(request) == present.next_identity:
            raise ApiError(
                ErrorCode.CONCURRENT_TRANSACTIONS, f"the last transaction of {request.transactional_id} is ending"
            )
        if present is not None and present.is_kept and _identity(request) == present.client_identity:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction of {request.transactional_id} was kept (KIP-939): it can only be ended",
            )
        if present is None or present.producer_id != request.producer_id:
            raise _not_mapped(request)
        if present.is_kept or present.producer_epoch != request.producer_epoch:
            raise _fenced(request, present)
        if request.producer_epoch > LAST_CLIENT_EPOCH:
            raise _fenced(request, present)
        if present.is_ending:
            raise ApiError(
                ErrorCode.CONCURRENT_TRANSACTIONS, f"the last transaction of {request.transactional_id} is ending"
            )
        return present

    # ---- EndTxn

    def end(
        self, request: Request, *, commit: bool, fresh_producer_id: int | None, now_ms: int
    ) -> Result[TransactionRecord, Outcome[Identity]]:
        """End the producer's transaction; a retried request gets the same response.

        Returns:
            The producer id and epoch for the next transaction; from transaction version 2 on they are new ones.
        Raises:
            ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE; CONCURRENT_TRANSACTIONS while
                the markers of this end are being written.
            ProducerIdNeededError: `fresh_producer_id` is required.
        """
        present = self.ids.get(request.transactional_id)
        if present is None:
            raise _not_mapped(request)
        is_retry = _is_retry(request, present)
        _check_ender(request, present, is_retry=is_retry)
        self._check_arrival(Kind.END, request)
        if present.state is TransactionState.ONGOING:
            return self._end_ongoing(request, present, commit, fresh_producer_id, now_ms)
        if present.is_ending:
            raise _error_while_ending(request, present, commit, is_retry=is_retry)
        if _has_ended_with(request, present, commit, is_retry=is_retry):
            return Result([], Outcome(present.next_identity))
        if request.version >= BUMPS_EPOCH and not commit and not is_retry:
            # The transaction is empty; its end bumps the epoch, as the client expects.
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
            next_producer_id = _require(fresh_producer_id) if bumps and present.is_exhausted else NO_PRODUCER_ID
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
        """Write the Complete record, once all partitions have their marker; False if the state is another by now."""
        assert ended.metadata.is_ending, f"{ended.transactional_id} is in no Prepare state: {ended.metadata}"
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
        """Abort the transactions that are open for longer than their timeout; those of two-phase commit have none.

        The records store the start in wall-clock time. If that clock was set back since, the age would be too small, so
        the monotonic time since this leader first saw the transaction counts as well.
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
        """Remove transactional ids that were unused for `expiration_ms`; the response is their number."""
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


def _require(fresh_producer_id: int | None) -> int:
    if fresh_producer_id is None:
        raise ProducerIdNeededError
    return fresh_producer_id


def _may_continue(present: TransactionMetadata, expected: Identity) -> bool:
    """Whether `expected` names the present producer; the epoch is checked when it is bumped.

    A producer whose id was replaced may still name the previous one: the response may have been lost.
    """
    producer_id, epoch = expected
    if present.is_kept:
        return producer_id == present.client_identity[0]
    if present.is_ending and producer_id == present.next_producer_id != NO_PRODUCER_ID:
        return True
    return producer_id == present.producer_id or (
        producer_id == present.previous_producer_id and epoch >= LAST_CLIENT_EPOCH
    )


def _bumped(transactional_id: str, present: TransactionMetadata, expected: Identity | None) -> Identity:
    """(bumped epoch, the epoch before, which a retry of this request may name)."""
    if expected is None:
        return present.producer_epoch + 1, NO_PRODUCER_EPOCH
    if expected == (present.producer_id, present.producer_epoch):
        return present.producer_epoch + 1, present.producer_epoch
    if expected[1] == present.last_producer_epoch and present.last_producer_epoch != NO_PRODUCER_EPOCH:
        return present.producer_epoch, present.last_producer_epoch  # a retry: the response was lost
    raise ApiError(ErrorCode.PRODUCER_FENCED, f"{transactional_id} is at epoch {present.producer_epoch}")


def _is_retry(request: Request, present: TransactionMetadata) -> bool:
    """Whether an EndTxn of transaction version 2 repeats the one that set the present state, from the epoch before."""
    if request.version < BUMPS_EPOCH or present.version < BUMPS_EPOCH or present.state is TransactionState.ONGOING:
        return False
    if present.state is TransactionState.EMPTY or present.last_producer_epoch == FENCED_EPOCH:
        return False
    if request.producer_id == present.producer_id:
        return request.producer_epoch + 1 == present.producer_epoch
    if present.is_ending and request.producer_id == present.next_producer_id:  # it kept the transaction
        return request.producer_epoch + 1 == present.next_producer_epoch
    replaced = request.producer_id == present.previous_producer_id and present.producer_epoch == 0
    return replaced and request.producer_epoch == LAST_CLIENT_EPOCH


def _check_ender(request: Request, present: TransactionMetadata, *, is_retry: bool) -> None:
    """Check that the producer of a request may end the transaction.

    Args:
        is_retry: the request repeats the one that set the present state, from the epoch before.
    Raises:
        ApiError: CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
    """
    bumps = request.version >= BUMPS_EPOCH and present.version >= BUMPS_EPOCH
    is_replaced = present.next_producer_id != NO_PRODUCER_ID
    if (bumps or is_replaced) and present.is_ending and _identity(request) == present.next_identity:
        raise ApiError(
            ErrorCode.CONCURRENT_TRANSACTIONS, f"the last transaction of {request.transactional_id} is ending"
        )
    producer_id, epoch = present.client_identity
    if request.producer_id not in (producer_id, present.producer_id) and not is_retry:
        raise _not_mapped(request)
    if _identity(request) != (producer_id, epoch) and not is_retry:
        raise _fenced(request, present)
    if epoch > LAST_CLIENT_EPOCH and not present.is_ending:
        raise _fenced(request, present)  # no client has this epoch: it is reserved for markers


def _error_while_ending(request: Request, present: TransactionMetadata, commit: bool, *, is_retry: bool) -> ApiError:
    """The error while markers are being written: retriable if the request asks for the same end."""
    same_end = (present.state is TransactionState.PREPARE_COMMIT) == commit
    # From version 2 on the epoch shows whether it is a retry; in earlier versions each request for that end may be one.
    if same_end and (is_retry or present.version < BUMPS_EPOCH):
        return ApiError(
            ErrorCode.CONCURRENT_TRANSACTIONS, f"the markers of {request.transactional_id} are being written"
        )
    return _invalid_state(request, present, commit)


def _has_ended_with(request: Request, present: TransactionMetadata, commit: bool, *, is_retry: bool) -> bool:
    """Whether the requested end is complete already: the request is a retry."""
    same_end = present.state in COMPLETE and (present.state is TransactionState.COMPLETE_COMMIT) == commit
    return same_end and (is_retry or (request.version < BUMPS_EPOCH and present.version < BUMPS_EPOCH))


def _not_mapped(request: Request) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"producer id {request.producer_id} does not belong to {request.transactional_id}",
    )


def _fenced(request: Request, present: TransactionMetadata) -> ApiError:
    producer_id, epoch = present.client_identity
    return ApiError(
        ErrorCode.PRODUCER_FENCED,
        f"{request.transactional_id} has producer id {producer_id} at epoch {epoch}, "
        f"not {request.producer_id} at epoch {request.producer_epoch}",
    )


def _invalid_state(request: Request, present: TransactionMetadata, commit: bool) -> ApiError:
    what = "commit" if commit else "abort"
    return ApiError(
        ErrorCode.INVALID_TXN_STATE, f"{request.transactional_id} cannot {what} in state {present.state.label}"
    )
