"""The response of a Produce with acks=all: the ends of its waits, and the timeout."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from odradek.server.acknowledgement import Acknowledgement


class Produce:
    """A request of two partitions with acks=all, whose waits a test ends."""

    def __init__(self) -> None:
        self.metrics = SimpleNamespace(waiting_produces=0)
        context: Any = SimpleNamespace(broker=SimpleNamespace(metrics=self.metrics), times=None)
        partition = SimpleNamespace(name="t-0", too_few_in_sync=lambda: False)
        self.answers = [PartitionProduceResponse(index=index, base_offset=7) for index in range(2)]
        self.waits: list[asyncio.Future[None]] = [asyncio.get_running_loop().create_future() for _ in self.answers]
        waiting: list[Any] = [(answer, partition, wait) for answer, wait in zip(self.answers, self.waits, strict=True)]
        request = ProduceRequest(acks=-1, timeout_ms=600_000)
        self.pending = Acknowledgement(ProduceResponse(), waiting, request, context)
        self.sent: list[list[tuple[int, int]]] = []
        self.pending.when_ended(lambda _: self.sent.append(self.results()))

    def results(self) -> list[tuple[int, int]]:
        return [(answer.error_code, answer.base_offset) for answer in self.answers]


async def test_the_response_has_the_end_of_each_wait() -> None:
    produce = Produce()
    produce.waits[0].set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    await asyncio.sleep(0)
    assert produce.sent == [] and produce.metrics.waiting_produces == 1
    produce.waits[1].set_result(None)
    await asyncio.sleep(0)
    assert produce.sent == [[(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (ErrorCode.NONE, 7)]]
    assert produce.metrics.waiting_produces == 0


@pytest.mark.parametrize("other_ends", [False, True])
async def test_a_wait_that_fails_as_the_time_ends_is_no_acknowledgement(other_ends: bool) -> None:
    """The timer may run between the failure and its callback, which is called in the next iteration."""
    produce = Produce()
    produce.waits[0].set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    if other_ends:
        produce.waits[1].set_result(None)
    produce.pending._time_out()
    await asyncio.sleep(0)
    second = (ErrorCode.NONE, 7) if other_ends else (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert produce.sent == [[(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), second]]
