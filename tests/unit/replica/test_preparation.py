"""Batches that are prepared off the loop keep their order, and hold up no other partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.real_io import RealDisk
from odradek.replica.preparation import PartitionWorkQueues
from tests.support.waiting import eventually_async

T = TypeVar("T")


class GatedDisk(RealDisk):
    """Work waits until its name is let go."""

    def __init__(self) -> None:
        super().__init__(workers=1)
        self.gates: list[asyncio.Event] = []

    async def run_blocking(self, work: Callable[[], T]) -> T:
        gate = asyncio.Event()
        self.gates.append(gate)
        await gate.wait()
        return work()


def refusal() -> str:
    raise ApiError(ErrorCode.INVALID_RECORD, "no")


async def test_a_partition_keeps_its_order_and_others_do_not_wait() -> None:
    disk = GatedDisk()
    lines = PartitionWorkQueues(disk)
    one, two = cast("Any", object()), cast("Any", object())
    seen: list[object] = []

    def note(prepared: object, failure: OdradekError | None) -> None:
        seen.append(prepared if failure is None else cast("ApiError", failure).code)
        assert lines.is_busy(one) or lines.is_busy(two), "until its append is done none may overtake"

    lines.run(one, lambda: "first", note)
    lines.run(one, refusal, note)
    lines.run(one, lambda: "third", note)
    lines.run(two, lambda: "other", note)
    assert lines.is_busy(one) and lines.is_busy(two)
    await eventually_async(lambda: len(disk.gates) == 2)
    disk.gates[1].set()
    await eventually_async(lambda: seen == ["other"])
    assert not lines.is_busy(two)
    for number in (0, 2, 3):
        await eventually_async(lambda number=number: len(disk.gates) > number)
        disk.gates[number].set()
    await eventually_async(lambda: len(seen) == 4)
    assert seen == ["other", "first", ErrorCode.INVALID_RECORD, "third"]
    await lines.close()
    assert not lines.is_busy(one)
    disk.close()


async def test_a_close_waits_for_all_that_is_in_line() -> None:
    disk = GatedDisk()
    lines = PartitionWorkQueues(disk)
    seen: list[object] = []
    lines.run(cast("Any", object()), lambda: "last", lambda prepared, failure: seen.append(prepared))
    closed = asyncio.ensure_future(lines.close())
    await eventually_async(lambda: len(disk.gates) == 1)
    assert not closed.done()
    disk.gates[0].set()
    await closed
    assert seen == ["last"]
    disk.close()
