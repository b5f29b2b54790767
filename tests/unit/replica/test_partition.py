"""One partition over a real log: leadership, acknowledgements, reads, and the waiting requests that it completes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.real_io import RealDisk
from odradek.log.append_info import AppendInfo
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.log import Log
from odradek.log.opening import close_log, open_log
from odradek.log.retention import delete_records
from odradek.metadata.model import PartitionImage
from odradek.record.reader import read_batches
from odradek.replica.followers import follower_fetched
from odradek.replica.leadership import apply_image
from odradek.replica.partition import READ_COMMITTED, Partition
from odradek.replica.partition_read import PartitionRead, nothing_of
from odradek.replica.unreplicated import MAX_ENTRIES
from odradek.replica.waiters import DataWait
from tests.support.models.batches import NOW_MS, batch, header_of

ME = 1
LATE_MS = 60_000


class Home:
    """A partition on broker 1 and the metadata that it follows."""

    def __init__(self, directory: Path, replicas: tuple[int, ...], **config: Any) -> None:
        path = directory / "t-0"
        path.mkdir()
        self.disk = RealDisk(workers=1)
        self.log = open_log(FileCache(self.disk), path, ("t", 0), LogConfig(**config), now_ms=NOW_MS)
        self.isr_asked: list[Partition] = []
        self.flush_asked: list[Partition] = []
        self.partition = Partition(
            "t",
            0,
            UUID(int=5),
            self.log,
            broker_id=ME,
            request_isr=self.isr_asked.append,
            request_flush=self.flush_asked.append,
        )
        self.image = PartitionImage(replicas=replicas, isr=replicas, leader=ME, leader_epoch=0, partition_epoch=0)
        apply_image(self.partition, self.image)

    def change(self, **fields: Any) -> bool:
        """The metadata log changes the partition; returns whether a leader epoch began."""
        fields.setdefault("partition_epoch", self.image.partition_epoch + 1)
        self.image = replace(self.image, **fields)
        return apply_image(self.partition, self.image)

    def append(self, *values: bytes, acks: int = 1, **fields: Any) -> AppendInfo:
        data = bytearray(batch(*values, **fields))
        return self.partition.append_as_leader([data], [header_of(bytes(data))], required_acks=acks, now_ms=NOW_MS)

    def fetched(self, follower: int, offset: int, **fields: Any) -> None:
        fields = {"now_ms": NOW_MS, "broker_epoch": -1, "log_start_offset": 0, **fields}
        follower_fetched(self.partition, follower, fetch_offset=offset, **fields)

    def read(self, offset: int, **fields: Any) -> PartitionRead:
        return self.partition.read(offset, **{"max_bytes": 2**20, "at_least_one": True, **fields})

    @property
    def watermark(self) -> int:
        return self.log.high_watermark


MakeHome = Callable[..., Home]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[MakeHome]:
    homes: list[Home] = []

    def make(*replicas: int, **config: Any) -> Home:
        homes.append(Home(tmp_path, replicas or (ME,), **config))
        return homes[-1]

    yield make
    for each in homes:
        close_log(each.log, clean=False)
        each.disk.close()


def offsets(read: PartitionRead) -> list[int]:
    data = b"".join(chunk.read() for chunk in read.chunks)
    return [header.base_offset for _, header in read_batches(data)]


def refused(action: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        action()
    return caught.value.code


class TestAcknowledgement:
    async def test_alone_all_is_replicated_at_once(self, home: MakeHome) -> None:
        node = home()
        info = node.append(b"a", b"b", acks=-1)
        assert (info.base_offset, info.last_offset, node.watermark) == (0, 1, 2)
        assert node.partition.wait_replicated(2) is None

    async def test_all_in_sync_are_waited_for(self, home: MakeHome) -> None:
        node = home(ME, 2, 3)
        node.append(b"a", acks=-1)
        node.append(b"b", acks=-1)
        first, second = node.partition.wait_replicated(1), node.partition.wait_replicated(2)
        assert first is not None and second is not None
        node.fetched(2, 2)
        assert not first.done()
        node.fetched(3, 1)
        assert first.done() and not second.done()
        node.fetched(3, 2)
        assert second.done()
        assert node.watermark == 2

    async def test_one_that_leaves_the_set_is_waited_for_no_longer(self, home: MakeHome) -> None:
        node = home(ME, 2, 3)
        node.append(b"a", acks=-1)
        wait = node.partition.wait_replicated(1)
        node.fetched(2, 1)
        assert wait is not None and not wait.done()
        node.change(isr=(ME, 2))
        assert wait.done()

    async def test_too_few_in_sync(self, home: MakeHome) -> None:
        node = home(ME, 2, 3, min_insync_replicas=2)
        node.change(isr=(ME,))
        assert refused(lambda: node.append(b"a", acks=-1)) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert node.log.log_end_offset == 0, "refused before it is written"
        node.append(b"a", acks=1)
        assert node.watermark == 0, "nothing is committed under min.insync.replicas"
        node.change(isr=(ME, 2))
        node.fetched(2, 1)
        assert node.watermark == 1

    @pytest.mark.parametrize("known", [True, False])
    async def test_batches_behind_a_refused_one_are_refused_alike(self, home: MakeHome, *, known: bool) -> None:
        node = home(ME, 2, 3, min_insync_replicas=2)

        def append(sequence: int) -> AppendInfo:
            return node.append(b"a", acks=-1, producer_id=7, sequence=sequence)

        if known:
            append(0)
        first = 1 if known else 0
        node.change(isr=(ME,))
        assert refused(lambda: append(first)) is ErrorCode.NOT_ENOUGH_REPLICAS
        node.change(isr=(ME, 2))
        assert refused(lambda: append(first + 1)) is ErrorCode.NOT_ENOUGH_REPLICAS, "and not out of order"
        node.change(leader=2, leader_epoch=1)
        assert refused(lambda: append(first)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        node.change(leader=ME, leader_epoch=2)
        assert refused(lambda: append(first + 1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        append(first)
        append(first + 1)

    async def test_no_more_are_asked_for_than_there_are(self, home: MakeHome) -> None:
        node = home(min_insync_replicas=3)
        node.append(b"a", acks=-1)
        assert node.watermark == 1

    async def test_another_setting_counts_at_once(self, home: MakeHome) -> None:
        node = home(ME, 2, 3, min_insync_replicas=2)
        node.change(isr=(ME,))
        node.append(b"a", acks=1)
        node.log.config = replace(node.log.config, min_insync_replicas=1)
        node.partition.config_changed()
        assert node.watermark == 1

    async def test_a_repeated_batch_moves_nothing(self, home: MakeHome) -> None:
        node = home()
        fields = {"producer_id": 7, "producer_epoch": 0, "sequence": 0}
        node.append(b"a", **fields)
        info = node.append(b"a", **fields)
        assert (info.base_offset, node.log.log_end_offset) == (0, 1)

    async def test_a_long_wait_for_followers_costs_a_bounded_amount(self, home: MakeHome) -> None:
        node = home(ME, 2)
        wait = DataWait([node.partition], missing_bytes=10**12, timeout_ms=LATE_MS)
        data = bytearray(batch(b"a"))
        header = header_of(bytes(data))
        for _ in range(MAX_ENTRIES + 50):
            node.partition.append_as_leader([data], [header], required_acks=1, now_ms=NOW_MS)
        assert len(node.partition.unreplicated) == MAX_ENTRIES
        node.fetched(2, node.log.log_end_offset)
        assert wait._missing_bytes == 10**12 - len(data) * (MAX_ENTRIES + 50), "no byte is forgotten"
        wait.future.cancel()


class TestLeaderEpochs:
    async def test_only_a_leader_appends(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.change(leader=2, leader_epoch=1)
        assert refused(lambda: node.append(b"a")) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert node.change(leader=ME, leader_epoch=2), "a new leader epoch"
        assert node.append(b"a").base_offset == 0

    @pytest.mark.parametrize("fields", [{"leader": 2, "leader_epoch": 1}, {"leader": ME, "leader_epoch": 1}])
    async def test_the_end_of_a_leader_epoch_fails_waiting_produces(
        self, home: MakeHome, fields: dict[str, int]
    ) -> None:
        node = home(ME, 2)
        node.append(b"a", acks=-1)
        wait = node.partition.wait_replicated(1)
        poll = DataWait([node.partition], missing_bytes=1, timeout_ms=LATE_MS)
        node.change(**fields)
        assert wait is not None and isinstance(wait.exception(), ApiError)
        assert poll.future.done()

    async def test_a_new_leader_knows_nothing_of_its_followers(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.append(b"a")
        node.fetched(2, 1)
        assert node.watermark == 1
        node.append(b"b")
        node.fetched(2, 2)
        node.change(leader_epoch=1)
        node.append(b"c")
        assert node.watermark == 2, "it stays until they have fetched again"
        node.fetched(2, 3)
        assert node.watermark == 3

    async def test_a_new_leader_is_not_sure_of_its_end_until_its_followers_have_come(self, home: MakeHome) -> None:
        """Redpanda d170fc6e7d, 3aa33d37d6: right after an election ListOffsets answered an end offset below the last
        one that it had answered."""
        node = home(ME, 2)
        node.append(b"a")
        node.change(leader_epoch=1)
        assert not node.partition.offsets_are_known()
        node.fetched(2, 1)
        assert node.partition.offsets_are_known()

    async def test_old_news_is_no_news(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.change(leader=2, leader_epoch=1, partition_epoch=5)
        assert not node.change(leader=ME, leader_epoch=2, partition_epoch=4)
        assert not node.partition.is_leader

    async def test_a_follower_that_is_no_replica(self, home: MakeHome) -> None:
        node = home(ME, 2)
        assert refused(lambda: node.fetched(9, 0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused(lambda: node.fetched(9, 0, current_leader_epoch=0)) is ErrorCode.UNKNOWN_LEADER_EPOCH

    async def test_leader_epochs_of_requests_are_checked(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.change(leader_epoch=3)
        check = node.partition.check_leader
        check()
        check(3)
        assert refused(lambda: check(2)) is refused(lambda: check(0)) is ErrorCode.FENCED_LEADER_EPOCH
        assert refused(lambda: check(4)) is ErrorCode.UNKNOWN_LEADER_EPOCH
        node.change(leader=2, leader_epoch=4)
        assert refused(lambda: check(4)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused(lambda: check(3)) is ErrorCode.FENCED_LEADER_EPOCH

    async def test_epochs_end_where_the_next_begins(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.append(b"a")
        node.append(b"b")
        node.change(leader_epoch=4)
        node.append(b"c")
        ends = {epoch: node.partition.end_offset_for_epoch(epoch) for epoch in (-1, 0, 2, 4, 5)}
        assert ends == {-1: (-1, -1), 0: (0, 2), 2: (0, 2), 4: (4, 3), 5: (-1, -1)}

    async def test_epochs_without_records_end_where_the_log_does(self, home: MakeHome) -> None:
        """KIP-320: a client that gets no epoch takes the log for truncated, and resets its position."""
        node = home()
        node.change(leader_epoch=4)
        ends = {epoch: node.partition.end_offset_for_epoch(epoch) for epoch in (-1, 0, 3, 4, 5)}
        assert ends == {-1: (-1, -1), 0: (0, 0), 3: (3, 0), 4: (4, 0), 5: (-1, -1)}
        node.append(b"a")
        node.change(leader_epoch=6)
        node.change(leader_epoch=8)
        ends = {epoch: node.partition.end_offset_for_epoch(epoch) for epoch in (0, 4, 6, 7, 8, 9)}
        assert ends == {0: (0, 0), 4: (4, 1), 6: (4, 1), 7: (4, 1), 8: (8, 1), 9: (-1, -1)}

    async def test_one_that_is_closed_answers_no_longer(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.append(b"a", acks=-1)
        wait = node.partition.wait_replicated(1)
        node.partition.close()
        assert wait is not None and isinstance(wait.exception(), ApiError)
        assert refused(lambda: node.append(b"b")) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused(node.partition.check_leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestReading:
    async def test_consumers_see_what_is_committed_and_followers_all(self, home: MakeHome) -> None:
        node = home(ME, 2)
        for value in (b"a", b"b", b"c"):
            node.append(value)
        node.fetched(2, 2)
        assert offsets(node.read(0)) == [0, 1]
        assert offsets(node.read(0, replica_id=2)) == [0, 1, 2]
        assert READ_COMMITTED == 1, "as clients send it"
        of_broker_0 = node.read(0, replica_id=0, isolation_level=1)
        assert (offsets(of_broker_0), of_broker_0.aborted_transactions) == ([0, 1, 2], None)
        found = node.read(2)
        assert (found.size_bytes, found.high_watermark, found.last_stable_offset) == (0, 2, 2)
        assert nothing_of(node.log) == found == PartitionRead(2, 2, 0)

    async def test_the_marks_are_read_once(self, home: MakeHome, monkeypatch: pytest.MonkeyPatch) -> None:
        """KAFKA-9835, 9807: records between two reads of a mark went to consumers that were given another mark."""
        node = home(ME, 2)
        for value in (b"a", b"b"):
            node.append(value)
        node.fetched(2, 1)
        read = Log.read

        def moved(log: Log, *arguments: Any, **settings: Any) -> Any:
            node.fetched(2, 2)
            return read(log, *arguments, **settings)

        monkeypatch.setattr(Log, "read", moved)
        found = node.read(0)
        assert node.watermark == 2
        assert (offsets(found), found.high_watermark, found.last_stable_offset) == ([0], 1, 1)

    async def test_committed_readers_stop_at_an_open_transaction(self, home: MakeHome) -> None:
        node = home()
        node.append(b"a")
        node.append(b"b", producer_id=7, producer_epoch=0, sequence=0, transactional=True)
        node.append(b"c")
        assert offsets(node.read(0)) == [0, 1, 2]
        found = node.read(0, isolation_level=READ_COMMITTED)
        assert (offsets(found), found.last_stable_offset, found.aborted_transactions) == ([0], 1, [])
        assert node.read(0).aborted_transactions is None

    async def test_a_first_batch_is_given_and_a_second_is_not(self, home: MakeHome) -> None:
        node = home()
        for value in (b"a", b"b"):
            node.append(value)
        assert offsets(node.read(0, max_bytes=1)) == [0]
        assert offsets(node.read(0, max_bytes=1, at_least_one=False)) == []
        assert offsets(node.read(0, max_bytes=0)) == [0]

    @pytest.mark.parametrize("offset", [-1, 0, 5])
    async def test_outside_of_the_log(self, home: MakeHome, offset: int) -> None:
        node = home()
        for value in (b"a", b"b", b"c"):
            node.append(value)
        delete_records(node.partition.log, 1)
        assert refused(lambda: node.read(offset)) is ErrorCode.OFFSET_OUT_OF_RANGE

    async def test_between_the_watermark_and_the_end_is_no_error(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.append(b"a")
        assert node.read(1).size_bytes == 0

    async def test_where_histories_part(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.append(b"a")
        node.append(b"b")
        node.change(leader_epoch=4)
        node.append(b"c")
        node.fetched(2, 3)
        assert node.read(2, last_fetched_epoch=0).diverging is None
        assert node.read(3, last_fetched_epoch=4).diverging is None
        assert node.read(3, last_fetched_epoch=0).diverging == (0, 2)
        assert node.read(3, last_fetched_epoch=2).diverging == (0, 2)
        assert not node.read(3, last_fetched_epoch=2).chunks
        assert refused(lambda: node.read(3, last_fetched_epoch=9)) is ErrorCode.OFFSET_OUT_OF_RANGE

    async def test_records_are_deleted_below_the_watermark_only(self, home: MakeHome) -> None:
        node = home(ME, 2)
        for value in (b"a", b"b", b"c"):
            node.append(value)
        node.fetched(2, 2)
        assert refused(lambda: delete_records(node.partition.log, 3)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert refused(lambda: delete_records(node.partition.log, -2)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert delete_records(node.partition.log, 1) == 1
        assert delete_records(node.partition.log, 0) == 1
        assert delete_records(node.partition.log, -1) == 2


class TestLongPolls:
    @staticmethod
    def poll(node: Home, missing: int = 1, **fields: bool) -> DataWait:
        return DataWait([node.partition], missing_bytes=missing, timeout_ms=LATE_MS, **fields)

    async def test_a_consumer_is_woken_by_the_watermark_and_a_follower_by_the_append(self, home: MakeHome) -> None:
        node = home(ME, 2)
        consumer, follower = self.poll(node), self.poll(node, replica=True)
        node.append(b"a")
        assert follower.future.done()
        assert not consumer.future.done()
        node.fetched(2, 1)
        assert consumer.future.done()

    async def test_bytes_count_once_they_may_be_read(self, home: MakeHome) -> None:
        node = home(ME, 2)
        size = len(batch(b"a"))
        consumer = self.poll(node, 2 * size)
        for _ in range(3):
            node.append(b"a")
        node.fetched(2, 1)
        assert not consumer.future.done()
        node.fetched(2, 2)
        assert consumer.future.done()

    async def test_a_committed_reader_is_not_woken_by_what_it_may_not_read(self, home: MakeHome) -> None:
        node = home()
        node.append(b"a")
        committed, any_reader = self.poll(node, committed_only=True), self.poll(node)
        node.append(b"b", producer_id=7, producer_epoch=0, sequence=0, transactional=True)
        assert any_reader.future.done()
        assert not committed.future.done()
        committed.future.cancel()
        await asyncio.sleep(0)

    async def test_no_long_poll_is_left_waiting(self, home: MakeHome) -> None:
        node = home()
        polls = [self.poll(node) for _ in range(10)]
        node.append(b"a")
        await asyncio.gather(*(poll.future for poll in polls))
        await asyncio.sleep(0)
        assert not node.partition.data_waits
