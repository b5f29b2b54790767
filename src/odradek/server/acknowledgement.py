"""When a Produce is answered whose batches others must have, or the disk, before."""

from __future__ import annotations

import asyncio
from functools import partial
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


def _take_end(
    answer: PartitionProduceResponse, partition: Partition, error: BaseException | None, *, all_in_sync: bool
) -> None:
    """Mark the answer for a partition whose wait has ended, with `error` where it failed."""
    if isinstance(error, ApiError):
        answer.error_code, answer.error_message, answer.base_offset = error.code, error.message, -1
    elif all_in_sync and not answer.error_code and partition.too_few_in_sync():
        # The set shrank while the records were replicated: they are written, and fewer than asked for have them.
        answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        warn_too_few_in_sync(partition, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def _note_last(context: RequestContext, partition: Partition) -> None:
    """Where slow requests are looked for, keep what was waited for last."""
    if context.times is not None and context.times.sender is not None:
        context.times.sender.waited_for = partition


class Acknowledgement(PendingResponse):
    """The response of a Produce, when all waits have ended, or at the time-out with those marked that have not."""

    __slots__ = ("_all_in_sync", "_context", "_left", "_produced", "_timeout_ms", "_timer", "_waiting")

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
        self._waiting = waiting
        self._left = len(waiting)
        self._timeout_ms, self._all_in_sync = request.timeout_ms, request.acks == -1
        context.broker.metrics.waiting_produces += 1
        self._timer = asyncio.get_running_loop().call_later(max(0, request.timeout_ms) / 1000, self._time_out)
        for answer, partition, wait in waiting:
            wait.add_done_callback(partial(self._wait_ended, answer, partition))

    def _wait_ended(self, answer: PartitionProduceResponse, partition: Partition, wait: asyncio.Future[None]) -> None:
        self._left -= 1
        error = None if wait.cancelled() else wait.exception()
        if self.is_ended:
            return
        _take_end(answer, partition, error, all_in_sync=self._all_in_sync)
        if not self._left:
            _note_last(self._context, partition)
            self.complete(self._produced)

    def _time_out(self) -> None:
        for answer, partition, wait in self._waiting:
            if not wait.done():
                answer.error_code, answer.base_offset = ErrorCode.REQUEST_TIMED_OUT, -1
                _note_last(self._context, partition)
                answer.error_message = f"{partition.name} was not replicated within {self._timeout_ms} ms"
        self.complete(self._produced)

    def release(self) -> None:
        self._context.broker.metrics.waiting_produces -= 1
        self._timer.cancel()
