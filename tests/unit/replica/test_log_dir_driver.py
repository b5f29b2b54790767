"""The begin, the waits and the end of a move of a replica between log directories, over real files."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.log.retention import delete_records
from odradek.log.truncation import truncate_to
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.replica import log_dir_driver, log_dir_move
from odradek.replica.log_dir_move import LogDirMove
from odradek.replica.manager import ReplicaCallbacks
from odradek.replica.partition import Partition
from tests.support.models.batches import NOW_MS
from tests.support.waiting import eventually_async
from tests.unit.replica.test_replica_manager import Broker, append

KEY = ("t", 0)
RETRY_MS = 5000


class StandingClock:
    """A clock that goes on when a test says so."""

    def __init__(self) -> None:
        self.at_ms = 1000

    def now_ms(self) -> int:
        return NOW_MS + self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms


class Moving:
    """A broker with three directories, and a partition of five batches in one of them."""

    def __init__(self, directory: Path) -> None:
        self.clock = StandingClock()
        self.directories = [directory / name for name in ("d1", "d2", "d3")]
        self.settled: list[Partition] = []
        self.reported: list[tuple[Path, Callable[[], None]]] = []
        self.confirms = True
        self.start()
        self.broker.topic("t", 5)
        self.source = self.partition.log.log_dir
        self.target, self.other = [each for each in self.directories if each != self.source]
        for _ in range(5):
            append(self.partition)

    def start(self) -> None:
        callbacks = ReplicaCallbacks(report_move=self.report, move_ended=self.settled.append)
        self.broker = Broker(self.directories, self.clock, callbacks)
        self.moves = self.broker.replicas.moves

    def report(self, partition: Partition, log_dir: Path, confirmed: Callable[[], None]) -> None:
        self.reported.append((log_dir, confirmed))
        if self.confirms:
            confirmed()

    @property
    def partition(self) -> Partition:
        return self.broker.find("t")

    def move(self, log_dir: Path) -> None:
        self.broker.replicas.move("t", 0, log_dir, self.broker.publisher.image)

    async def ends(self) -> None:
        """Wait until no move is under way."""
        await eventually_async(lambda: self.moves.get(KEY) is None)

    def copies(self) -> list[Path]:
        return sorted(path.parent for each in self.directories for path in each.glob("t-0.*-future"))

    async def close(self) -> None:
        await self.broker.replicas.close()
        self.broker.logs.unlock()
        self.broker.disk.close()


@pytest.fixture
async def moving(tmp_path: Path) -> Any:
    made = Moving(tmp_path)
    yield made
    await made.close()


class TestMoving:
    async def test_a_copy_that_cannot_take_the_logs_place_costs_its_directory_alone(
        self, moving: Moving, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(key: object) -> None:
            raise StorageError(moving.target, "no name")

        monkeypatch.setattr(moving.broker.logs.futures, "replace", fail)
        moving.move(moving.target)
        await moving.ends()
        await eventually_async(lambda: moving.broker.failed)
        assert moving.broker.failed == [moving.target] and moving.settled == [moving.partition]
        assert moving.partition.log.log_dir == moving.source
        append(moving.partition)

    async def test_an_old_directory_that_fails_last_does_not_cost_the_replica(
        self, moving: Moving, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk, old = moving.broker.logs.disk, moving.partition.log.directory
        rename = disk.rename

        def fail(path: Path, target: Path) -> None:
            if path == old:
                raise OSError(errno.EIO, "no rename")
            rename(path, target)

        monkeypatch.setattr(disk, "rename", fail)
        moving.move(moving.target)
        await eventually_async(lambda: moving.broker.failed)
        assert moving.broker.failed == [moving.source] and moving.settled == [moving.partition]
        assert moving.partition.log is moving.broker.logs.get(KEY)
        assert moving.partition.log.log_dir == moving.target and old.is_dir()
        append(moving.partition)
        assert moving.partition.log.log_end_offset == 6

    async def test_a_log_is_copied_reported_and_replaced(self, moving: Moving) -> None:
        before = moving.partition.log
        moving.move(moving.target)
        move = moving.moves.get(KEY)
        assert move is not None and move.lag == 5
        await moving.ends()
        log = moving.partition.log
        assert (log.log_dir, log.log_end_offset, log.high_watermark) == (moving.target, 5, 5)
        assert moving.moves.moved_bytes == sum(segment.size_bytes for segment in before.segments)
        assert [log_dir for log_dir, _ in moving.reported] == [moving.target]
        assert moving.settled == [moving.partition]
        assert log.recovery_point == 5, "it is durable before it takes the place"

    async def test_a_moved_replica_can_move_again(self, moving: Moving) -> None:
        for log_dir in (moving.target, moving.source, moving.other):
            moving.move(log_dir)
            await moving.ends()
            assert moving.partition.log.log_dir == log_dir

    async def test_one_that_is_there_already_does_not_move(self, moving: Moving) -> None:
        moving.move(moving.source)
        assert moving.moves.get(KEY) is None and moving.copies() == [] and moving.settled == []

    async def test_a_repeated_request_continues_the_move(self, moving: Moving) -> None:
        moving.confirms = False
        moving.move(moving.target)
        move = moving.moves.get(KEY)
        moving.move(moving.target)
        assert moving.moves.get(KEY) is move and moving.copies() == [moving.target]

    @pytest.mark.parametrize("back", [True, False])
    async def test_another_target_ends_the_move_to_the_first(self, moving: Moving, back: bool) -> None:
        moving.confirms = False
        moving.move(moving.target)
        await eventually_async(lambda: len(moving.reported) == 1)
        moving.move(moving.source if back else moving.other)
        assert moving.settled == [moving.partition]
        assert moving.copies() == ([] if back else [moving.other])
        assert (moving.moves.get(KEY) is None) == back

    async def test_the_copy_takes_the_place_when_the_controller_knows(self, moving: Moving) -> None:
        moving.confirms = False
        moving.move(moving.target)
        await eventually_async(lambda: len(moving.reported) == 1)
        append(moving.partition)
        move = moving.moves.get(KEY)
        assert move is not None
        await eventually_async(lambda: move.lag == 0)
        assert moving.partition.log.log_dir == moving.source
        moving.reported[0][1]()
        await moving.ends()
        assert (moving.partition.log.log_dir, moving.partition.log.log_end_offset) == (moving.target, 6)
        assert len(moving.reported) == 1, "it is asked once"

    async def test_a_log_that_is_being_repaired_stays_until_that_is_over(self, moving: Moving) -> None:
        moving.partition.repair = asyncio.get_running_loop().create_future()
        moving.move(moving.target)
        await eventually_async(lambda: len(moving.reported) == 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert moving.partition.log.log_dir == moving.source
        moving.partition.repair = None
        await moving.ends()
        assert moving.partition.log.log_dir == moving.target

    @pytest.mark.parametrize(("batches", "durable"), [(0, 5), (2, 4), (10, 0)])
    async def test_a_copy_is_made_durable_on_its_way_where_it_is_large(
        self, moving: Moving, batches: int, durable: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batch_bytes = moving.partition.log.segments[0].size_bytes // 5
        monkeypatch.setattr(log_dir_move, "FLUSH_BYTES", max(1, batches * batch_bytes))
        moving.confirms = False
        moving.moves.change_piece_bytes(1)
        moving.move(moving.target)
        await eventually_async(lambda: len(moving.reported) == 1)
        move = moving.moves.get(KEY)
        assert move is not None
        assert (move.future.log_end_offset, move.future.recovery_point) == (5, durable)

    async def test_a_move_pauses_only_where_it_waits(self, moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
        """Pieces, the report and the swap follow each other at once, and the last move ends the worker."""
        monkeypatch.setattr(log_dir_driver, "IDLE_MS", 10**9)
        moving.moves.change_piece_bytes(1)
        moving.move(moving.target)
        await eventually_async(lambda: asyncio.all_tasks() == {asyncio.current_task()})
        assert moving.partition.log.log_dir == moving.target

    async def test_one_worker_does_all_moves(self, moving: Moving) -> None:
        moving.confirms = False
        moving.broker.topic("u", 6)
        moving.move(moving.target)
        workers = asyncio.all_tasks()
        second = moving.broker.find("u")
        target = next(each for each in moving.directories if each != second.log.log_dir)
        moving.broker.replicas.move("u", 0, target, moving.broker.publisher.image)
        assert asyncio.all_tasks() == workers and len(workers) == 2

    async def test_no_move_begins_after_a_stop(self, moving: Moving) -> None:
        await moving.moves.close()
        moving.move(moving.target)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def test_records_that_are_durable_before_a_swap_are_durable_after_it(
        self, moving: Moving, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flusher = moving.broker.replicas._flusher
        hold = flusher.hold

        async def append_before(partition: Partition) -> None:
            append(partition)
            await flusher.flush(partition)
            assert partition.log.recovery_point == 6
            await hold(partition)

        monkeypatch.setattr(flusher, "hold", append_before)
        moving.move(moving.target)
        await moving.ends()
        log = moving.partition.log
        assert (log.log_dir, log.log_end_offset, log.recovery_point) == (moving.target, 6, 6)
        append(moving.partition)
        await flusher.flush(moving.partition)
        assert log.recovery_point == 7, "flushes begin again"


class TestWhatEndsIt:
    async def test_no_replica_is_moved_to_an_offline_directory(self, moving: Moving) -> None:
        moving.broker.replicas.storage_failed(StorageError(moving.other, "dead"))
        with pytest.raises(ApiError) as caught:
            moving.move(moving.target)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert moving.moves.get(KEY) is None and moving.copies() == []

    async def test_a_topic_that_is_deleted_takes_its_copy_along(self, moving: Moving) -> None:
        moving.confirms = False
        moving.move(moving.target)
        await eventually_async(lambda: len(moving.reported) == 1)
        moving.broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)))
        assert moving.moves.get(KEY) is None and moving.copies() == []

    async def test_only_moves_to_the_directory_that_failed_end(self, moving: Moving) -> None:
        moving.confirms = False
        moving.move(moving.target)
        await eventually_async(lambda: len(moving.reported) == 1)
        partition = moving.partition
        moving.broker.replicas.storage_failed(StorageError(moving.other, "dead"))
        assert moving.moves.get(KEY) is not None and moving.settled == []
        moving.broker.replicas.storage_failed(StorageError(moving.target, "dead"))
        assert moving.moves.get(KEY) is None
        assert moving.settled == [partition]
        assert moving.partition is partition and partition.log.log_dir == moving.source

    async def test_a_disk_that_fails_under_the_copy_goes_offline(self, moving: Moving) -> None:
        moving.confirms = False
        moving.move(moving.target)
        moving.broker.disk.dead = {moving.target}
        await eventually_async(lambda: moving.broker.failed == [moving.target])
        assert moving.moves.get(KEY) is None
        append(moving.partition)

    async def test_without_space_it_is_tried_again_and_logged_once(
        self, moving: Moving, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        moving.move(moving.target)
        moving.broker.disk.code, moving.broker.disk.dead = errno.ENOSPC, {moving.target}
        move = moving.moves.get(KEY)
        assert move is not None
        for tries in range(1, 4):
            await eventually_async(lambda: move.retry_at_ms == moving.clock.at_ms + RETRY_MS)
            assert len([each for each in caplog.records if "cannot be moved yet" in each.getMessage()]) == 1, tries
            moving.clock.at_ms += RETRY_MS - 1
            for _ in range(20):
                await asyncio.sleep(0)
            assert move.retry_at_ms == moving.clock.at_ms + 1, "not before its time"
            moving.clock.at_ms += 1
        moving.broker.disk.dead = set()
        moving.clock.at_ms += RETRY_MS
        await moving.ends()
        assert moving.partition.log.log_dir == moving.target

    @pytest.mark.parametrize("error", [OSError(errno.EIO, "unreadable"), RuntimeError("a bug")], ids=["disk", "bug"])
    async def test_a_read_error_fails_the_directory_and_a_bug_ends_the_move(
        self, moving: Moving, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fails(*given: Any) -> Any:
            raise error

        monkeypatch.setattr(LogDirMove, "begin_read", fails)
        moving.move(moving.target)
        await moving.ends()
        assert moving.broker.failed == ([moving.source] if isinstance(error, OSError) else [])
        bugs = [each for each in caplog.records if each.getMessage() == "a replica is not moved"]
        assert len(bugs) == isinstance(error, RuntimeError)

    async def test_a_stop_leaves_the_copy_and_a_start_goes_on(self, moving: Moving) -> None:
        moving.confirms = False
        moving.move(moving.target)
        await eventually_async(lambda: len(moving.reported) == 1)
        await moving.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "it has ended on return"
        moving.broker.logs.close()
        moving.confirms = True
        moving.start()
        moving.broker.topic("t", 5)
        assert moving.moves.get(KEY) is not None
        await moving.ends()
        assert (moving.partition.log.log_dir, moving.partition.log.log_end_offset) == (moving.target, 5)

    async def test_a_copy_of_a_topic_of_that_name_before_is_removed(self, moving: Moving) -> None:
        moving.confirms = False
        moving.move(moving.target)
        await eventually_async(lambda: len(moving.reported) == 1)
        await moving.close()
        moving.broker.logs.close()
        moving.start()
        futures = moving.broker.logs.futures
        assert futures.get(KEY) is not None
        futures.topic_ids[KEY] = UUID(int=99)
        moving.broker.topic("t", 5)
        assert (futures.get(KEY), moving.moves.get(KEY)) == (None, None)
        assert moving.partition.log.log_end_offset == 5
        moving.move(moving.target)
        move = moving.moves.get(KEY)
        moving.moves.resume(moving.partition)
        assert moving.moves.get(KEY) is move, "it is under way"

    async def test_a_move_that_was_given_up_while_it_waited_copies_nothing(
        self, moving: Moving, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        moving.move(moving.target)
        move = moving.moves.get(KEY)
        assert move is not None

        async def wait_and_give_up() -> None:
            moving.moves._remove_move(moving.partition)

        monkeypatch.setattr(moving.moves, "_wait_for_quota", wait_and_give_up)
        moved_bytes = moving.moves.moved_bytes
        assert await moving.moves._copy(move)
        assert moving.moves.moved_bytes == moved_bytes


class TestQuota:
    async def test_no_more_is_copied_than_the_rate_allows(self, moving: Moving) -> None:
        moving.moves.quota.change_rate(1, moving.clock.at_ms)
        moving.moves.change_piece_bytes(1)
        moving.move(moving.target)
        size = moving.partition.log.segments[0].size_bytes // 5
        await eventually_async(lambda: moving.moves.moved_bytes > 0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert moving.moves.moved_bytes == size, "one batch, then the debt is paid first"
        moving.moves.quota.change_rate(1 << 30, moving.clock.at_ms)
        moving.clock.at_ms += 10_000
        await moving.ends()
        assert moving.moves.moved_bytes == 5 * size

    @pytest.mark.parametrize(
        ("rate", "spent", "paused_s"), [(None, 5000, []), (1000, 1300, [0.301]), (1000, 9000, [1.0]), (0, 0, [1.0])]
    )
    async def test_a_quota_is_waited_for_a_second_at_most(
        self,
        moving: Moving,
        monkeypatch: pytest.MonkeyPatch,
        rate: int | None,
        spent: int,
        paused_s: list[float],
    ) -> None:
        """It may be changed meanwhile."""
        if rate is not None:
            moving.moves.quota.change_rate(rate, moving.clock.at_ms)
        moving.moves.quota.spend(spent, moving.clock.at_ms)
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "sleep", sleep)
            await moving.moves._wait_for_quota()
        assert slept == paused_s

    def test_a_piece_is_as_large_as_a_fetch_where_nothing_else_is_set(self, moving: Moving) -> None:
        assert (moving.moves.piece_bytes, moving.moves.moved_bytes) == (1_048_576, 0)


class TestOneMove:
    """Steps that the driver takes, one by one."""

    @pytest.fixture
    def move(self, moving: Moving) -> Iterator[LogDirMove]:
        future = moving.broker.logs.futures.create(moving.partition.log, UUID(int=5), moving.target)
        yield LogDirMove(moving.partition, future)

    @staticmethod
    def read(move: LogDirMove, max_bytes: int = 1) -> tuple[int, bytes]:
        token, chunks = move.begin_read(max_bytes, NOW_MS)
        return token, b"".join(chunk.read() for chunk in chunks)

    async def test_marks_come_along_with_each_piece(self, moving: Moving, move: LogDirMove) -> None:
        delete_records(moving.partition.log, 1)
        seen = []
        while (piece := self.read(move))[1]:
            assert move.append(*piece, NOW_MS) == len(piece[1])
            seen.append((move.lag, move.future.high_watermark, move.future.log_start_offset))
        assert seen[0] == (3, 2, 1)
        assert seen[-1] == (0, 5, 1)
        delete_records(moving.partition.log, 3)
        assert move.finish(NOW_MS)
        assert move.future.log_start_offset == 3

    async def test_reads_before_a_truncation_or_after_the_swap_are_dropped(
        self, moving: Moving, move: LogDirMove
    ) -> None:
        token, data = self.read(move)
        truncate_to(moving.partition.log, 4)
        assert move.append(token, data, NOW_MS) == 0
        assert move.future.log_end_offset == 0
        token, data = self.read(move)
        moving.partition.switch_log(move.future)
        assert move.is_over and move.append(token, data, NOW_MS) == 0

    async def test_half_of_a_batch_is_damage(self, move: LogDirMove) -> None:
        token, data = self.read(move)
        with pytest.raises(ApiError) as caught:
            move.append(token, data[:-1], NOW_MS)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE

    async def test_a_move_flushes_after_a_number_of_bytes(
        self, move: LogDirMove, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert log_dir_move.FLUSH_BYTES == 64 * 1024 * 1024
        token, data = self.read(move)
        monkeypatch.setattr(log_dir_move, "FLUSH_BYTES", 2 * len(data))
        assert not move.wants_flush
        move.append(token, data, NOW_MS)
        assert not move.wants_flush
        move.append(*self.read(move), NOW_MS)
        assert move.wants_flush
        move.flushed()
        assert not move.wants_flush

    async def test_the_last_of_it_is_copied_in_one_piece_where_it_is_little(
        self, move: LogDirMove, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert log_dir_move.LAST_BYTES == 4 * 1024 * 1024
        size = move.source.segments[0].size_bytes
        monkeypatch.setattr(log_dir_move, "LAST_BYTES", size - 1)
        assert not move.finish(NOW_MS)
        assert 0 < move.lag < 5, "what there was room for"
        monkeypatch.setattr(log_dir_move, "LAST_BYTES", size)
        assert move.finish(NOW_MS) and move.lag == 0

    async def test_a_log_under_repair_is_not_replaced(self, moving: Moving, move: LogDirMove) -> None:
        moving.partition.repair = asyncio.get_running_loop().create_future()
        assert not move.finish(NOW_MS)
        moving.partition.repair = None
        assert move.finish(NOW_MS)

    async def test_a_move_ends_when_the_partition_is_gone(self, moving: Moving, move: LogDirMove) -> None:
        assert not move.is_over
        moving.partition.close()
        assert move.is_over
