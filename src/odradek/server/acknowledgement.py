"""When a Produce is answered whose batches others must have, or the disk, before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from odradek.replica.followers import warn_too_few_in_sync
from odradek.server.pending_response import PendingResponse

if TYPE_CHECKING:
    from odradek.replica.partition import Partition
    from odradek.server.context import RequestContext

# One partition's answer, and what its acknowledgement waits for.
Waiting = tuple[PartitionProduceResponse, "Partition", "asyncio.Future[None]"]


def _apply_result(
    answer: PartitionProduceResponse, partition: Partition, wait: asyncio.Future[None], *, all_in_sync: bool
) -> None:
    """Set the answer for a partition whose wait has ended."""
    error = None if wait.cancelled() else wait.exception()
    if isinstance(error, ApiError):
        answer.error_code, answer.error_message, answer.base_offset = error.code, error.message, -1
    elif all_in_sync and not answer.error_code and partition.too_few_in_sync():
        # The set shrank while the records were replicated: they are written, and fewer than asked for have them.
        answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        warn_too_few_in_sync(partition, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def _record_last_wait(context: RequestContext, partition: Partition) -> None:
    """Record the partition that the request waited for last, if slow requests are logged."""
    if context.times is not None and context.times.sender is not None:
        context.times.sender.waited_for = partition


class Acknowledgement(PendingResponse):
    """The response of a Produce, when all waits have ended, or at the timeout with those marked that have not."""

    __slots__ = ("_all_in_sync", "_context", "_produced", "_timeout_ms", "_timer", "_waiting")

    def __init__(
        self, produced: ProduceResponse, waiting: list[Waiting], request: ProduceRequest, context: RequestContext
    ) -> None:
        """
        Args:
            produced: the response, which the ends of the waits may change.
            waiting: at least one.
        """
        super().__init__()
        self._context = context
        self._produced = produced
        self._waiting = {wait: (answer, partition) for answer, partition, wait in waiting}
        self._timeout_ms, self._all_in_sync = request.timeout_ms, request.acks == -1
        context.broker.metrics.waiting_produces += 1
        self._timer = asyncio.get_running_loop().call_later(max(0, request.timeout_ms) / 1000, self._time_out)
        for _, _, wait in waiting:
            wait.add_done_callback(self._wait_ended)

    def _wait_ended(self, wait: asyncio.Future[None]) -> None:
        if self.is_ended:
            if not wait.cancelled():
                wait.exception()  # seen
            return
        answer, partition = self._waiting.pop(wait)
        _apply_result(answer, partition, wait, all_in_sync=self._all_in_sync)
        if not self._waiting:
            _record_last_wait(self._context, partition)
            self.complete(self._produced)

    def _time_out(self) -> None:
        for wait, (answer, partition) in self._waiting.items():
            if wait.done():
                # It has failed, perhaps: its callback, which has yet to run, would come too late.
                _apply_result(answer, partition, wait, all_in_sync=self._all_in_sync)
            else:
                answer.error_code, answer.base_offset = ErrorCode.REQUEST_TIMED_OUT, -1
                answer.error_message = f"{partition.name} was not replicated within {self._timeout_ms} ms"
                _record_last_wait(self._context, partition)
        self.complete(self._produced)

    def release(self) -> None:
        self._context.broker.metrics.waiting_produces -= 1
        self._timer.cancel()
