"""The transaction coordinator of this broker: one shard for each partition of __transaction_state that it leads.

    request -> shard of the transactional id -> runtime.run(machine operation) -> response
                                                    `- a transaction ends -> markers -> the Complete record

An operation that may end a transaction runs in a task of the shard, not of the connection: once its record is
committed, the shard writes the markers, even if the client has disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock
from odradek.common.topic_names import TopicPartition
from odradek.coordinator.expressions import OffLoop
from odradek.coordinator.service import CreateTopic, ShardHost, StateTopic, answer_code
from odradek.coordinator.shard import CoordinatorShard
from odradek.coordinator.transaction.config import TransactionConfig
from odradek.coordinator.transaction.driver import CoordinatorFencedError, TransactionMarkerSender
from odradek.coordinator.transaction.machine import (
    MAX_ENDED_PER_LOOK,
    Ended,
    Identity,
    Kept,
    Outcome,
    ProducerIdNeededError,
    Request,
    TransactionMachine,
)
from odradek.coordinator.transaction.metadata import NO_TIMEOUT_MS
from odradek.coordinator.transaction.metrics import TransactionCounts
from odradek.coordinator.transaction.queries import describe_transaction, list_transactions, matching
from odradek.coordinator.transaction.records import TRANSACTION_TOPIC, TransactionRecord
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages import describe_transactions_response as described
from odradek.protocol.messages import list_transactions_response as listed
from odradek.statemachine.machine import Result
from odradek.statemachine.runtime import MachineLog
from odradek.statemachine.timeline import Timeline

_log = get_logger("coordinator.transaction")

# From a failed write of the Complete record to the next attempt.
COMPLETE_AGAIN_S = 1.0

T = TypeVar("T")
Operation = Callable[[], Result[TransactionRecord, Outcome[T]]]
MakeLog = Callable[[int, int], MachineLog[TransactionRecord, Any]]
NewProducerId = Callable[[], Awaitable[int]]


class Client(NamedTuple):
    """The client of a request, for log lines; `host` is in Kafka's form, "/127.0.0.1"."""

    client_id: str = ""
    host: str = ""

    def fields(self) -> dict[str, str]:
        """The fields of a log line; none if the client is unknown."""
        return {"client": self.client_id, "host": self.host} if self.host else {}


NO_CLIENT = Client()


class _Initialize(Protocol[T]):
    """An operation of InitProducerId: `init_producer_id` or `keep_prepared` of the machine."""

    def __call__(
        self,
        machine: TransactionMachine,
        transactional_id: str,
        timeout_ms: int,
        expected: Identity | None,
        /,
        *,
        fresh_producer_id: int | None,
        now_ms: int,
    ) -> Result[TransactionRecord, Outcome[T]]: ...


class TransactionShard(CoordinatorShard[TransactionRecord]):
    """The state machine of one partition in one leader epoch, with its pending markers."""

    EXPECTED = (OdradekError, ProducerIdNeededError)

    def __init__(
        self,
        config: TransactionConfig,
        clock: Clock,
        partition_id: int,
        leader_epoch: int,
        make_log: MakeLog,
        markers: TransactionMarkerSender,
        counts: TransactionCounts,
    ) -> None:
        self._counts = counts
        self._config = config
        self._clock = clock
        self._markers = markers
        timeline = Timeline()
        self.machine = TransactionMachine(timeline)
        log = make_log(partition_id, leader_epoch)
        super().__init__(partition_id, leader_epoch, self.machine, log, timeline, event_log=_log)

    async def load(self) -> None:
        """Replay the partition, resume pending markers, and start the checks for timeouts and expiration."""
        began_ms = self._clock.monotonic_ms()
        try:
            count = await self.runtime.load()
        except OdradekError:
            return  # `_on_failed` has logged the error
        if not self.runtime.active:
            return
        took_ms = self._clock.monotonic_ms() - began_ms
        self._counts.longest_load_ms = max(self._counts.longest_load_ms, took_ms)
        level = _log.info if count else _log.debug
        level("transactions loaded", partition=self.partition_id, records=count)
        await self._resume_pending_markers()
        config = self._config
        self.spawn(self.every(config.abort_check_interval_ms, self._abort_timed_out))
        self.spawn(self.every(config.expiry_check_interval_ms, self._expire))

    async def _resume_pending_markers(self) -> None:
        try:
            outcome = await self.runtime.run(self.machine.unfinished)
        except OdradekError as error:
            _log.debug("operation of a transaction coordinator failed", partition=self.partition_id, error=error)
            return
        for ended in outcome.ended:
            self.spawn(self._finish(ended))

    async def _abort_timed_out(self) -> None:
        clock = self._clock
        while (
            outcome := await self._apply(lambda: self.machine.abort_timed_out(clock.now_ms(), clock.monotonic_ms()))
        ) is not None:
            self._counts.timed_out += len(outcome.ended)
            if len(outcome.ended) < MAX_ENDED_PER_LOOK:
                return

    async def _expire(self) -> None:
        limit_ms = self._config.id_expiration_ms
        while (outcome := await self._apply(lambda: self.machine.expire(self._clock.now_ms(), limit_ms))) is not None:
            self._counts.expired_ids += outcome.response
            if outcome.response < MAX_ENDED_PER_LOOK:
                return

    # ---- running operations

    async def read(self, operation: Operation[T]) -> T:
        """Run an operation that cannot end a transaction. Raises ApiError."""
        try:
            outcome = await self.runtime.run(operation)
        except OdradekError as error:
            raise ApiError(answer_code(error), str(error)) from error
        assert not outcome.ended
        return outcome.response

    async def run(self, operation: Operation[T], by: Client = NO_CLIENT) -> T:
        """Run an operation that may end transactions; it runs to its end even if the caller is cancelled.

        Args:
            by: the client of the request, for the log.
        Raises:
            ApiError: the error that the operation raised or returned.
            ProducerIdNeededError: the operation needs a new producer id.
        """
        task = self.spawn(self._decide(operation, by))
        try:
            outcome = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise  # the caller goes away
            # The leadership ended. Were the caller cancelled with it, its client would get no response.
            raise ApiError(ErrorCode.NOT_COORDINATOR, "the coordinator has moved") from None
        if outcome.error:
            raise ApiError(outcome.error)
        return outcome.response

    async def _decide(self, operation: Operation[T], by: Client = NO_CLIENT) -> Outcome[T]:
        try:
            outcome = await self.runtime.run(operation)
        except OdradekError as error:
            raise ApiError(answer_code(error), str(error)) from error
        for ended in outcome.ended:
            self._counts.ended(committed=ended.committed)
            if ended.fenced_by:
                _log.info(
                    "producer fenced",
                    transactional_id=ended.transactional_id,
                    producer_id=ended.metadata.producer_id,
                    old_epoch=ended.metadata.producer_epoch - 1,
                    cause=ended.fenced_by,
                    **by.fields(),
                )
            self.spawn(self._finish(ended))
        return outcome

    async def _apply(self, operation: Operation[T]) -> Outcome[T] | None:
        """Run an operation of the shard itself; returns None after an error, which is logged."""
        try:
            return await self._decide(operation)
        except OdradekError as error:
            _log.debug("operation of a transaction coordinator failed", partition=self.partition_id, error=error)
            return None

    async def _finish(self, ended: Ended) -> None:
        """Write the markers, then the Complete record."""
        try:
            await self._markers.deliver(ended, self.leader_epoch)
            await self.runtime.run(lambda: self.machine.complete(ended, self._clock.now_ms()))
        except CoordinatorFencedError as error:
            _log.warning("fenced by a newer transaction coordinator", partition=self.partition_id, error=error)
        except OdradekError as error:
            # A new leader of the partition resumes from the Prepare record.
            if self.runtime.active:
                _log.warning(
                    "transaction cannot be completed yet", transactional_id=ended.transactional_id, error=error
                )
                await asyncio.sleep(COMPLETE_AGAIN_S)
                self.spawn(self._finish(ended))
        except Exception as error:
            _log.bug("completing a transaction failed", error, transactional_id=ended.transactional_id)

    # ---- the end

    def _on_failed(self, error: BaseException) -> None:
        super()._on_failed(error)
        self.cancel_tasks()

    async def close(self) -> None:
        """Resign, and cancel the shard's tasks, which retry markers without limit."""
        self.resign()
        await self.runtime.close()
        self.cancel_tasks()
        await super().close()


class TransactionCoordinator(ShardHost[TransactionShard]):
    """Routes requests to the shards of their transactional ids, and allocates producer ids for them."""

    def __init__(
        self,
        config: TransactionConfig,
        *,
        node_id: int,
        clock: Clock,
        make_log: MakeLog,
        image: Callable[[], MetadataImage],
        create_topic: CreateTopic,
        run_blocking: OffLoop,
        new_producer_id: NewProducerId,
        markers: TransactionMarkerSender,
    ) -> None:
        """
        Args:
            make_log: returns the log of a partition id and leader epoch of __transaction_state.
            run_blocking: runs a function outside the event loop.
            new_producer_id: allocates a producer id; raises ApiError.
        """
        self.config = config
        self.counts = markers.counts
        self._clock = clock
        self._new_producer_id = new_producer_id
        self._off_loop = run_blocking
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(config.topic_min_isr),
            "segment.bytes": str(config.topic_segment_bytes),
        }
        super().__init__(
            StateTopic(
                TRANSACTION_TOPIC,
                config.topic_num_partitions,
                config.topic_replication_factor,
                "transaction.state.log.replication.factor",
                configs,
            ),
            node_id=node_id,
            image=image,
            create_topic=create_topic,
            make_shard=lambda number, epoch: TransactionShard(
                config, clock, number, epoch, make_log, markers, self.counts
            ),
        )

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Identity | None,
        *,
        two_phase: bool = False,
        by: Client = NO_CLIENT,
    ) -> Identity:
        """Fence all other producers of a transactional id; returns the caller's producer id and epoch.

        Args:
            timeout_ms: the transaction timeout.
            expected: the producer id and epoch that the caller had, as `TransactionMachine.init_producer_id` takes it.
            two_phase: an external coordinator ends the transactions, which have no timeout (KIP-939).
            by: the client of the request, for the log.
        Raises:
            ApiError: INVALID_TRANSACTION_TIMEOUT, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, NOT_COORDINATOR,
                COORDINATOR_LOAD_IN_PROGRESS; TRANSACTIONAL_ID_AUTHORIZATION_FAILED if two-phase commit is disabled.
        """
        initialize = TransactionMachine.init_producer_id
        return await self._initialize(initialize, transactional_id, timeout_ms, expected, two_phase, by)

    async def keep_prepared(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Identity | None,
        *,
        two_phase: bool,
        by: Client = NO_CLIENT,
    ) -> Kept:
        """As `init_producer_id`, but keep an open transaction, which the caller may then end (KIP-939).

        Raises:
            ApiError: as `init_producer_id`; TRANSACTIONAL_ID_AUTHORIZATION_FAILED also if the open transaction uses
                two-phase commit and the caller does not.
        """
        initialize = TransactionMachine.keep_prepared
        return await self._initialize(initialize, transactional_id, timeout_ms, expected, two_phase, by)

    async def _initialize(
        self,
        operation: _Initialize[T],
        transactional_id: str,
        timeout_ms: int,
        expected: Identity | None,
        two_phase: bool,
        by: Client,
    ) -> T:
        """Run an operation of InitProducerId, and log the change if it fences a producer.

        The log line is the only place where the fenced producer's operator sees the client that fenced it.
        """
        timeout_ms = self._allowed_timeout_ms(timeout_ms, two_phase)
        shard = self.shard(transactional_id)
        former: list[Identity] = []

        def initialize(fresh: int | None) -> Result[TransactionRecord, Outcome[T]]:
            present = shard.machine.ids.get(transactional_id)
            former[:] = [] if present is None else [present.client_identity]
            now_ms = self._clock.now_ms()
            return operation(
                shard.machine, transactional_id, timeout_ms, expected, fresh_producer_id=fresh, now_ms=now_ms
            )

        response = await self._with_fresh_id(shard, initialize, by)
        if former and expected is None:
            producer_id, old_epoch = former[0]
            _log.info(
                "transactional id taken over",
                transactional_id=transactional_id,
                producer_id=producer_id,
                old_epoch=old_epoch,
                **by.fields(),
            )
        return response

    def _allowed_timeout_ms(self, timeout_ms: int, two_phase: bool) -> int:
        if two_phase:
            if not self.config.is_two_phase_served:
                raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "two-phase commit is disabled")
            return NO_TIMEOUT_MS
        if not 0 < timeout_ms <= self.config.max_timeout_ms:
            raise ApiError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"the transaction timeout of {timeout_ms} ms is not in [1, {self.config.max_timeout_ms}]",
            )
        return timeout_ms

    async def end(self, request: Request, *, commit: bool) -> Identity:
        """End a transaction; returns the producer id and epoch for the next one. Raises as `TransactionMachine.end`."""
        shard = self.shard(request.transactional_id)
        return await self._with_fresh_id(
            shard,
            lambda fresh: shard.machine.end(
                request, commit=commit, fresh_producer_id=fresh, now_ms=self._clock.now_ms()
            ),
        )

    async def _with_fresh_id(
        self,
        shard: TransactionShard,
        operation: Callable[[int | None], Result[TransactionRecord, Outcome[T]]],
        by: Client = NO_CLIENT,
    ) -> T:
        try:
            return await shard.run(lambda: operation(None), by)
        except ProducerIdNeededError:
            fresh = await self._new_producer_id()
            return await shard.run(lambda: operation(fresh), by)

    async def add_partitions(self, request: Request, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions to the producer's transaction. Raises as `TransactionMachine.add_partitions`."""
        shard = self.shard(request.transactional_id)
        added = frozenset(partitions)
        await shard.read(lambda: shard.machine.add_partitions(request, added, self._clock.now_ms()))

    async def verify_partitions(
        self, request: Request, partitions: Sequence[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """The partitions that the producer's open transaction includes. Raises as `TransactionMachine`."""
        shard = self.shard(request.transactional_id)
        return await shard.read(lambda: shard.machine.verify_partitions(request, partitions))

    async def list_transactions(
        self, states: Sequence[str], producer_ids: Sequence[int], duration_ms: int, pattern: str | None
    ) -> list[listed.TransactionState]:
        """List the transactions of this coordinator.

        Args:
            states, producer_ids: if not empty, only these.
            duration_ms: if not negative, only transactions that have been open for longer.
            pattern: if given, only transactional ids that the whole pattern matches.
        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION, COORDINATOR_LOAD_IN_PROGRESS.
        """
        found: list[listed.TransactionState] = []
        names = None if not pattern else await self._off_loop(matching(pattern, [*self._ids()]))
        for _, shard in sorted(self.shards.items()):
            found += await self._query(
                shard,
                lambda machine: list_transactions(
                    machine.ids,
                    states=states,
                    producer_ids=producer_ids,
                    duration_ms=duration_ms,
                    now_ms=self._clock.now_ms(),
                    names=names,
                ),
            )
        return found

    def _ids(self) -> Iterator[str]:
        for shard in self.shards.values():
            yield from shard.machine.ids

    async def describe(self, transactional_id: str) -> described.TransactionState:
        """Describe one transaction; an error is part of the result."""
        try:
            return await self._query(
                self.shard(transactional_id), lambda machine: describe_transaction(machine.ids, transactional_id)
            )
        except ApiError as error:
            return described.TransactionState(transactional_id=transactional_id, error_code=error.code)

    async def _query(self, shard: TransactionShard, look: Callable[[TransactionMachine], T]) -> T:
        return await shard.read(lambda: Result([], Outcome(look(shard.machine))))
