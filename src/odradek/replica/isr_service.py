"""Requests changes of in-sync sets from the controller: one AlterPartition at a time for all partitions with a change.

A request is built from the partitions when it is sent, also at a retry, so it has no change that newer metadata has
replaced (KAFKA-15353). A request without a response is retried; if the first one was applied, the second is refused as
outdated, and the metadata has the result.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.common.backoff import Backoff
from odradek.common.buggify import buggify
from odradek.common.errors import ErrorCode, OdradekError
from odradek.common.log_lines import get_logger
from odradek.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from odradek.replica.followers import handle_alter_partition, maybe_shrink
from odradek.replica.in_sync import IsrChange, Outcome, outcome_of

if TYPE_CHECKING:
    from odradek.common.ports import Clock
    from odradek.replica.partition import Partition

RETRY_MS = 50
MAX_RETRY_MS = 1_000
# Beyond it, the rest goes into the next request.
MAX_PARTITIONS = 5_000
_log = get_logger("replica.isr")

SendAlterPartition = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]


class IsrService:
    """The in-sync sets of all partitions that this broker leads."""

    def __init__(
        self,
        clock: Clock,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        send: SendAlterPartition,
        partitions: Callable[[], Iterable[Partition]],
        max_lag_ms: int,
    ) -> None:
        """
        Args:
            broker_epoch: of this broker's registration.
            send: sends to the active controller; raises OdradekError if there is no response.
            partitions: all partitions of this broker.
            max_lag_ms: replica.lag.time.max.ms.
        """
        self._clock = clock
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._send = send
        self._partitions = partitions
        self.max_lag_ms = max_lag_ms
        self._pending: dict[Partition, None] = {}
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the requests, and the checks for lagging followers."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._alter_partition_loop()), loop.create_task(self._shrink_loop())]

    async def stop(self) -> None:
        """Stop sending requests."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def request(self, partition: Partition) -> None:
        """Add a partition with a pending change."""
        self._pending[partition] = None
        self._wake.set()

    async def _shrink_loop(self) -> None:
        while True:
            # Kafka's interval: a follower stays in the set at most half of the setting longer.
            await asyncio.sleep(max(10, self.max_lag_ms // 2) / 1000)
            now_ms = self._clock.monotonic_ms()
            for partition in tuple(self._partitions()):
                change = maybe_shrink(partition, now_ms=now_ms, max_lag_ms=self.max_lag_ms)
                if change is not None:
                    self._log_shrink(partition, change, now_ms)

    def _log_shrink(self, partition: Partition, change: IsrChange, now_ms: int) -> None:
        for replica_id in change.leaving:
            removed = partition.in_sync.removed[replica_id]
            _log.warning(
                "follower removed from the ISR",
                partition=partition.name,
                broker=replica_id,
                reason=removed.reason,
                behind_for_ms=now_ms - removed.since_ms,
                lag=partition.log.log_end_offset - max(0, partition.in_sync.followers[replica_id].log_end_offset),
                falls=removed.removal_count,
            )

    async def _alter_partition_loop(self) -> None:
        backoff = Backoff(RETRY_MS, MAX_RETRY_MS)
        while True:
            await self._wake.wait()
            self._wake.clear()
            await buggify("replica: before an in-sync set is asked for")
            requested = self._pop_pending()
            if not requested:
                continue
            code, failure = ErrorCode.NONE, ""
            try:
                response = await self._send(self._request(requested))
                await buggify("replica: before the answer on in-sync sets is taken")
                code = ErrorCode(response.error_code)
            except OdradekError as error:
                code, failure = ErrorCode.REQUEST_TIMED_OUT, str(error)
            if code:
                _log.info("ISR changes are sent again", error=failure or code.name, partitions=len(requested))
                again = set(requested)
            else:
                again = self._handle_response(requested, response)
            for partition in requested:
                if partition in again and partition.in_sync.pending is not None:
                    self.request(partition)
            if again:
                await backoff.sleep()
            else:
                backoff.reset()

    def _pop_pending(self) -> dict[Partition, IsrChange]:
        """Remove and return the changes for the next request."""
        requested: dict[Partition, IsrChange] = {}
        while self._pending and len(requested) < MAX_PARTITIONS:
            partition = next(iter(self._pending))
            del self._pending[partition]
            change = partition.in_sync.pending
            if change is not None and partition.is_leader:
                requested[partition] = change
        if self._pending:
            self._wake.set()
        return requested

    def _request(self, requested: dict[Partition, IsrChange]) -> AlterPartitionRequest:
        own_epoch = self._broker_epoch()
        topics: dict[UUID, TopicData] = {}
        for partition, change in requested.items():
            members = [
                BrokerState(broker_id=each, broker_epoch=own_epoch if each == self._broker_id else epoch)
                for each, epoch in zip(change.isr, change.broker_epochs, strict=True)
            ]
            topic = topics.setdefault(partition.topic_id, TopicData(topic_id=partition.topic_id))
            topic.partitions.append(
                PartitionData(
                    partition_index=partition.partition_id,
                    leader_epoch=change.leader_epoch,
                    new_isr_with_epochs=members,
                    partition_epoch=change.partition_epoch,
                )
            )
        return AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=own_epoch, topics=list(topics.values()))

    def _handle_response(
        self, requested: dict[Partition, IsrChange], response: AlterPartitionResponse
    ) -> set[Partition]:
        """Notify the partitions; returns those without a decision."""
        responses = {
            (topic.topic_id, each.partition_index): each for topic in response.topics for each in topic.partitions
        }
        again = set()
        now_ms = self._clock.monotonic_ms()
        for partition, change in requested.items():
            answer = responses.get((partition.topic_id, partition.partition_id))
            outcome = Outcome.RETRY if answer is None else outcome_of(answer.error_code)
            if outcome is Outcome.RETRY or answer is None:
                again.add(partition)
                continue
            if answer.leader_epoch > change.leader_epoch:
                outcome = Outcome.OVERTAKEN
            if answer.error_code:
                _log.info(
                    "ISR change rejected",
                    partition=partition.name,
                    isr=list(change.isr),
                    error=_name_of(answer.error_code),
                )
            else:
                _log.info("ISR changed", partition=partition.name, isr=list(answer.isr))
            handle_alter_partition(
                partition, change, outcome, isr=tuple(answer.isr), partition_epoch=answer.partition_epoch, now_ms=now_ms
            )
        return again


def _name_of(error_code: int) -> str:
    with contextlib.suppress(ValueError):
        return ErrorCode(error_code).name
    return f"error {error_code}"
