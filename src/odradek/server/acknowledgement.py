"""When a Produce is answered whose batches others must have, or the disk, before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from odradek.replica.followers import warn_too_few_in_sync

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


def when_acknowledged(
    response: ProduceResponse, waiting: list[Waiting], request: ProduceRequest, context: RequestContext
) -> asyncio.Future[Any]:
    """A future of the response: when all waits have ended, or at the time-out with those marked that have not."""
    metrics = context.broker.metrics
    timeout_ms, all_in_sync = request.timeout_ms, request.acks == -1
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    left = len(waiting)

    def one_ended(answer: PartitionProduceResponse, partition: Partition, wait: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        error = None if wait.cancelled() else wait.exception()
        if done.done():
            return
        _take_end(answer, partition, error, all_in_sync=all_in_sync)
        if not left:
            _note_last(context, partition)
            done.set_result(response)

    def timed_out() -> None:
        for answer, partition, wait in waiting:
            if not wait.done():
                answer.error_code, answer.base_offset = ErrorCode.REQUEST_TIMED_OUT, -1
                _note_last(context, partition)
                answer.error_message = f"{partition.name} was not replicated within {timeout_ms} ms"
        if not done.done():
            done.set_result(response)

    timer = loop.call_later(max(0, timeout_ms) / 1000, timed_out)
    metrics.waiting_produces += 1

    def ended(_: asyncio.Future[Any]) -> None:
        metrics.waiting_produces -= 1
        timer.cancel()

    done.add_done_callback(ended)
    for answer, partition, wait in waiting:
        wait.add_done_callback(lambda ended, a=answer, p=partition: one_ended(a, p, ended))  # type: ignore[misc]
    return done
