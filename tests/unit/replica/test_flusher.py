"""flush.messages: nothing is acknowledged before it is durable, and one fsync serves all who wait."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, StorageError
from odradek.common.ports import Disk
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.opening import close_log, open_log
from odradek.metadata.model import PartitionImage
from odradek.replica import flusher
from odradek.replica.flusher import Flusher
from odradek.replica.leadership import apply_image
from odradek.replica.partition import Partition
from tests.support.disks.failing import FailingDisk
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.support.waiting import eventually_async

T = TypeVar("T")
PATIENCE_S = 60.0


class HeldDisk(FailingDisk):
    """A real disk whose work off the loop is counted, and waits until it is let go."""

    def __init__(self) -> None:
        super().__init__(errno.ENOSPC)
        self.gate = asyncio.Event()
        self.work_count = 0
        self.error: Exception | None = None

    def hold(self, directory: Path) -> Disk:
        return self if self.is_dead(directory / "any") else super().hold(directory)

    async def run_blocking(self, work: Callable[[], T]) -> T:
        await self.gate.wait()
        self.work_count += 1
        if isinstance(self.error, OSError):
            raise StorageError(Path("disk"), str(self.error)) from self.error
        if self.error is not None:
            raise self.error
        return await super().run_blocking(work)


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
        apply_image(
            self.partition, PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
        )

    def append(self, *values: bytes, acks: int = -1) -> asyncio.Future[None] | None:
        data = bytearray(batch(*values))
        info = self.partition.append_as_leader([data], [header_of(bytes(data))], required_acks=acks, now_ms=NOW_MS)
        end_offset = info.last_offset + 1
        return self.partition.wait_replicated(end_offset) if acks == -1 else self.partition.wait_durable(end_offset)


MakeHome = Callable[[int], Home]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush that waits for space where there is some never ends."""
    monkeypatch.setattr(flusher, "NO_SPACE_PAUSE_S", 3600)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[MakeHome]:
    homes: list[Home] = []

    def make(flush_messages: int) -> Home:
        homes.append(Home(tmp_path, flush_messages))
        return homes[-1]

    yield make
    for each in homes:
        close_log(each.log, clean=False)
        each.disk.close()


@pytest.mark.parametrize("acks", [-1, 1])
async def test_an_acknowledgement_waits_for_the_flush_and_one_flush_serves_many(home: MakeHome, acks: int) -> None:
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


async def test_below_the_limit_nothing_waits(home: MakeHome) -> None:
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


async def test_a_failed_flush_acknowledges_nothing(home: MakeHome) -> None:
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


async def test_records_are_acknowledged_when_there_is_room_for_their_epoch(
    home: MakeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are durable before, and a start would not know under which leader they were written."""
    monkeypatch.setattr(flusher, "NO_SPACE_PAUSE_S", 0)
    node = home(1)
    wait = node.append(b"a")
    assert wait is not None
    node.disk.dead = {node.log.directory}
    node.disk.gate.set()
    await eventually_async(lambda: node.disk.work_count > 3)
    assert not wait.done() and node.log.recovery_point == 0 and not node.failures
    node.disk.dead = set()
    await ended(wait)
    assert node.log.recovery_point == node.log.high_watermark == 1
    await node.flusher.close()


async def turns() -> None:
    """The loop goes on for as long as it takes for a step that is not held back."""
    for _ in range(50):
        await asyncio.sleep(0)


async def ended(work: Awaitable[None]) -> None:
    """Bounded, for the case that it never ends."""
    async with asyncio.timeout(PATIENCE_S):
        await work


async def test_each_time_the_limit_is_reached_there_is_a_flush_and_none_before(home: MakeHome) -> None:
    node = home(2)
    node.disk.gate.set()
    for count in (1, 2, 3):
        assert node.append(b"a") is None
        node.flusher.request(node.partition)
        await node.flusher.close()
        assert node.disk.work_count == count - 1, "it is asked for, and not due"
        wait = node.append(b"b")
        assert wait is not None
        await wait
        await node.flusher.close()
        assert (node.disk.work_count, node.log.recovery_point) == (count, 2 * count)


class TestOnePartitionAtOnce:
    """`flush` makes all durable that is there, `hold` keeps any flush from beginning."""

    async def test_one_flush_covers_everything_below_the_limit(self, home: MakeHome) -> None:
        node = home(3)
        node.append(b"a")
        node.disk.gate.set()
        await ended(node.flusher.flush(node.partition))
        assert (node.log.recovery_point, node.disk.work_count) == (1, 1)
        await ended(node.flusher.flush(node.partition))
        assert node.disk.work_count == 2, "as often as it is asked for"

    async def test_a_flush_follows_the_one_under_way(self, home: MakeHome) -> None:
        node = home(3)
        node.append(b"a", b"b", b"c")
        await asyncio.sleep(0)
        assert node.append(b"d") is not None
        asked = asyncio.ensure_future(node.flusher.flush(node.partition))
        await turns()
        assert not asked.done()
        node.disk.gate.set()
        await ended(asked)
        assert (node.log.recovery_point, node.disk.work_count) == (4, 2)

    async def test_a_held_partition_is_not_flushed_before_it_is_released(self, home: MakeHome) -> None:
        node = home(1)
        node.disk.gate.set()
        await ended(node.flusher.hold(node.partition))
        wait = node.append(b"a")
        await ended(node.flusher.flush(node.partition))
        await turns()
        assert (node.disk.work_count, node.log.recovery_point) == (0, 0)
        assert wait is not None and not wait.done()
        node.flusher.release(node.partition)
        await wait
        assert node.log.recovery_point == 1
        await node.flusher.close()

    async def test_a_hold_waits_for_the_flush_that_is_under_way_and_for_no_later_one(self, home: MakeHome) -> None:
        node = home(1)
        node.append(b"a")
        await asyncio.sleep(0)
        flush = asyncio.ensure_future(node.flusher.flush(node.partition))
        await asyncio.sleep(0)
        hold = asyncio.ensure_future(node.flusher.hold(node.partition))
        await turns()
        assert not hold.done() and not flush.done()
        node.append(b"b")
        node.disk.gate.set()
        await ended(hold)
        await ended(flush)
        assert (node.log.recovery_point, node.disk.work_count) == (1, 1)
        node.flusher.release(node.partition)
        await node.flusher.close()
        assert node.log.recovery_point == 2

    @pytest.mark.parametrize("reason", ["nothing is due", "it is closed"])
    async def test_a_release_flushes_only_what_is_waited_for(self, home: MakeHome, reason: str) -> None:
        node = home(3 if reason == "nothing is due" else 1)
        node.disk.gate.set()
        await ended(node.flusher.hold(node.partition))
        wait = node.append(b"a")
        if reason == "it is closed":
            node.partition.close()
            assert wait is not None and wait.exception() is not None
        node.flusher.release(node.partition)
        await node.flusher.close()
        assert node.disk.work_count == 0


class TestShortages:
    @pytest.mark.parametrize("once", [True, False])
    async def test_without_descriptors_it_is_tried_again(
        self, home: MakeHome, monkeypatch: pytest.MonkeyPatch, once: bool
    ) -> None:
        monkeypatch.setattr(flusher, "NO_SPACE_PAUSE_S", 0.01)
        node = home(3 if once else 1)
        node.append(b"a")
        node.disk.error = OSError(errno.EMFILE, "too many open files")
        node.disk.gate.set()
        asked = asyncio.ensure_future(node.flusher.flush(node.partition))
        await eventually_async(lambda: len(node.failures) == 3)
        assert not asked.done() and node.log.recovery_point == 0
        node.disk.error = None
        await ended(asked)
        assert node.log.recovery_point == 1
        await node.flusher.close()

    async def test_there_is_a_pause_before_it_is_tried_again(self, home: MakeHome) -> None:
        node = home(1)
        node.append(b"a")
        node.disk.error = OSError(errno.EMFILE, "too many open files")
        node.disk.gate.set()
        await eventually_async(lambda: len(node.failures) == 1)
        await turns()
        assert len(node.failures) == 1
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def test_of_one_that_is_closed_it_is_not_tried_again(self, home: MakeHome) -> None:
        node = home(1)
        node.append(b"a")
        node.disk.error = OSError(errno.EMFILE, "too many open files")
        await asyncio.sleep(0)
        node.partition.close()
        node.disk.gate.set()
        await ended(node.flusher.close())
        assert len(node.failures) == 1

    async def test_while_there_is_no_space_to_note_it_nothing_is_acknowledged(
        self, home: MakeHome, tmp_path: Path
    ) -> None:
        node = home(1)
        wait = node.append(b"a")
        node.disk.dead = {tmp_path / "t-0"}
        node.disk.gate.set()
        await eventually_async(lambda: node.disk.work_count == 1)
        await turns()
        assert wait is not None and not wait.done()
        assert (node.disk.work_count, node.failures) == (1, []), "it waits for space"
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def test_a_bug_in_one_flush_does_not_keep_the_broker_running(self, home: MakeHome) -> None:
        node = home(1)
        node.append(b"a")
        node.disk.error = RuntimeError("a bug")
        node.disk.gate.set()
        await ended(node.flusher.close())
        assert node.log.recovery_point == 0
