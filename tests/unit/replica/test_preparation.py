"""Batches that are prepared off the loop keep their order, and hold up no other partition."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.real_io import RealDisk
from odradek.replica.preparation import PartitionWorkQueues
from tests.support.waiting import eventually_async, some_turns

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


def unchanged(batch: object) -> object:
    return batch


def refusal() -> str:
    try:
        raise ValueError("damaged")
    except ValueError:
        raise ApiError(ErrorCode.INVALID_RECORD, "no")  # noqa: B904 - the error has a context, as after decompression


async def test_a_partition_keeps_its_order_and_others_do_not_wait() -> None:
    disk = GatedDisk()
    lines = PartitionWorkQueues(disk)
    one, two = cast("Any", object()), cast("Any", object())
    seen: list[object] = []

    def note(prepared: object, failure: OdradekError | None) -> None:
        seen.append(prepared if failure is None else cast("ApiError", failure).code)
        if failure is not None:
            assert (failure.__traceback__, failure.__context__) == (None, None), "frames hold all that was decompressed"
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


async def test_two_partitions_are_worked_for_at_a_time() -> None:
    disk = GatedDisk()
    lines = PartitionWorkQueues(disk)
    seen: list[object] = []
    for number in range(3):
        work = partial(str, number)
        lines.run(cast("Any", object()), work, lambda prepared, failure: seen.append(prepared))
    await some_turns()
    assert len(disk.gates) == 2
    disk.gates[1].set()
    await eventually_async(lambda: len(disk.gates) == 3)
    assert seen == ["1"]
    for gate in disk.gates:
        gate.set()
    await lines.close()
    assert sorted(map(str, seen)) == ["0", "1", "2"]
    disk.close()


async def test_a_prepared_batch_is_freed() -> None:
    """The next one of its partition may wait for long; and the task of a line ends with the line."""
    disk = GatedDisk()
    lines = PartitionWorkQueues(disk)
    one, batch = cast("Any", object()), RealDisk(workers=1)
    batch.close()
    kept: list[weakref.ref[Any]] = [weakref.ref(batch)]
    lines.run(one, partial(unchanged, batch), lambda prepared, failure: None)
    lines.run(one, lambda: "next", lambda prepared, failure: None)
    del batch
    kept += [weakref.ref(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert len(kept) == 2
    await eventually_async(lambda: len(disk.gates) == 1)
    disk.gates[0].set()
    await eventually_async(lambda: len(disk.gates) == 2)
    gc.collect()
    assert kept[0]() is None and lines.is_busy(one)
    disk.gates[1].set()
    await eventually_async(lambda: not lines.is_busy(one))
    await some_turns()
    gc.collect()
    assert kept[1]() is None
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
