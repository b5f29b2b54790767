"""flush.messages: nothing is acknowledged before it is durable, and one fsync serves all who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, StorageError
from odradek.common.real_io import RealDisk
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.opening import close_log, open_log
from odradek.metadata.model import PartitionImage
from odradek.replica.flusher import Flusher
from odradek.replica.partition import Partition
from tests.support.models.batches import NOW_MS, batch, header_of

T = TypeVar("T")


class HeldDisk(RealDisk):
    """A real disk whose work off the loop is counted, and waits until it is let go."""

    def __init__(self) -> None:
        super().__init__(workers=1)
        self.gate = asyncio.Event()
        self.work_count = 0
        self.error: OSError | None = None

    async def off_loop(self, work: Callable[[], T]) -> T:
        await self.gate.wait()
        self.work_count += 1
        if self.error is not None:
            raise StorageError(Path("disk"), str(self.error))
        return await super().off_loop(work)


class Home:
    """One partition that this broker leads alone."""

    def __init__(self, directory: Path, flush_messages: int) -> None:
        path = directory / "t-0"
        path.mkdir()
        self.disk = HeldDisk()
        self.failures: list[StorageError] = []
        self.flusher = Flusher(self.disk, self.failures.append)
        config = LogConfig(flush_messages=flush_messages)
        self.log = open_log(FileCache(self.disk), path, ("t", 0), config, now_ms=NOW_MS)
        self.partition = Partition("t", 0, UUID(int=5), self.log, broker_id=1, request_flush=self.flusher.request)
        self.partition.update(PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0))

    def append(self, *values: bytes, acks: int = -1) -> asyncio.Future[None] | None:
        data = bytearray(batch(*values))
        info = self.partition.append_as_leader([data], [header_of(bytes(data))], required_acks=acks, now_ms=NOW_MS)
        end_offset = info.last_offset + 1
        return self.partition.wait_replicated(end_offset) if acks == -1 else self.partition.wait_durable(end_offset)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Callable[[int], Home]]:
    homes: list[Home] = []

    def make(flush_messages: int) -> Home:
        homes.append(Home(tmp_path, flush_messages))
        return homes[-1]

    yield make
    for each in homes:
        close_log(each.log, clean=False)
        each.disk.close()


@pytest.mark.parametrize("acks", [-1, 1])
async def test_an_acknowledgement_waits_for_the_flush_and_one_flush_serves_many(
    home: Callable[[int], Home], acks: int
) -> None:
    node = home(1)
    first = node.append(b"a", acks=acks)
    assert first is not None
    await asyncio.sleep(0)
    others = [node.append(b"b", acks=acks) for _ in range(20)]
    assert node.log.high_watermark == 0 and node.log.recovery_point == 0
    node.disk.gate.set()
    await asyncio.gather(first, *(wait for wait in others if wait is not None))
    assert node.log.high_watermark == node.log.recovery_point == 21
    assert node.disk.work_count <= 2, "the first flush, and one for all who came while it ran"
    await node.flusher.close()


async def test_below_the_limit_nothing_waits(home: Callable[[int], Home]) -> None:
    node = home(3)
    assert node.append(b"a") is None
    assert node.append(b"b", acks=1) is None
    assert node.log.high_watermark == 2
    third = node.append(b"c")
    assert third is not None and node.log.high_watermark == 2
    node.disk.gate.set()
    await third
    assert node.log.recovery_point == node.log.high_watermark == 3
    await node.flusher.close()


async def test_a_failed_flush_acknowledges_nothing(home: Callable[[int], Home]) -> None:
    node = home(1)
    wait = node.append(b"a")
    assert wait is not None
    node.disk.error = OSError("the platter is gone")
    node.disk.gate.set()
    await node.flusher.close()
    assert node.failures and not wait.done() and node.log.high_watermark == 0
    node.partition.close()
    with pytest.raises(ApiError):
        await wait
