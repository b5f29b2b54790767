"""The partitions of a broker follow the metadata; a directory that fails takes only its own with it."""

from __future__ import annotations

import asyncio
import errno
import gc
import itertools
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, OdradekError, StorageError
from odradek.common.ports import Clock
from odradek.common.real_io import RealClock, RealNetwork
from odradek.log.config import LogConfig
from odradek.log.manager import LogManager
from odradek.metadata.model import LOST_DIRECTORY, ResourceType
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.alter_partition_request import AlterPartitionRequest
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.replica import manager as replica_manager
from odradek.replica.config import FetcherConfig
from odradek.replica.fetcher_manager import ReplicaFetcherManager
from odradek.replica.isr_service import IsrService
from odradek.replica.manager import CREATED_AT_ONCE, ReplicaCallbacks, ReplicaManager
from odradek.replica.partition import Partition
from odradek.replica.waiters import DataWait
from tests.support.disks.failing import FailingDisk
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.support.waiting import eventually_async

ME = 1


class Broker:
    """The part of a broker that lies under its handlers."""

    def __init__(
        self, directories: Sequence[Path], clock: Clock | None = None, callbacks: ReplicaCallbacks | None = None
    ) -> None:
        self.disk = FailingDisk()
        self.logs = LogManager(self.disk, clock or RealClock(), directories, LogConfig(), Random(1))
        self.logs.lock_dirs()
        self.logs.load()
        self.failed: list[Path] = []
        self.created_later: list[tuple[str, int]] = []
        self.placed: list[tuple[str, int]] = []
        self.replicas = ReplicaManager(
            ME,
            self.logs,
            fetch_max_bytes=2**20,
            on_storage_failed=self.failed.append,
            callbacks=callbacks
            or ReplicaCallbacks(
                log_created_later=lambda *key: self.created_later.append(key),
                log_placed=lambda *key: self.placed.append(key),
            ),
        )
        self.publisher = MetadataPublisher()
        self.publisher.subscribe(self.replicas.on_metadata)
        self._offset = 0

    def publish(self, *records: Any) -> None:
        """The metadata log was committed further."""
        numbered = []
        for record in records:
            self._offset += 1
            numbered.append((self._offset, record))
        self.publisher.committed(numbered, 1)

    def topic(self, name: str, topic_id: int, *replicas: list[int]) -> None:
        records: list[Any] = [TopicRecord(name=name, topic_id=UUID(int=topic_id))]
        for number, each in enumerate(replicas or ([ME],)):
            records.append(
                PartitionRecord(
                    partition_id=number,
                    topic_id=UUID(int=topic_id),
                    replicas=each,
                    isr=each,
                    leader=each[0],
                    leader_epoch=0,
                    partition_epoch=0,
                )
            )
        self.publish(*records)

    def find(self, topic: str, number: int = 0) -> Partition:
        return self.replicas.find(topic, number, self.publisher.image)

    def refusal(self, topic: str, number: int = 0) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            self.find(topic, number)
        return caught.value.code

    def names(self) -> set[str]:
        return {partition.name for partition in self.replicas}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker([tmp_path / "d1", tmp_path / "d2"])
    yield made
    made.logs.unlock()
    made.disk.close()


def append(partition: Partition) -> None:
    data = bytearray(batch(b"value"))
    partition.append_as_leader([data], [header_of(bytes(data))], required_acks=1, now_ms=NOW_MS)


def idle_isr(replicas: ReplicaManager) -> IsrService:
    """Sends no request, as it is not started."""

    async def send(request: AlterPartitionRequest) -> AlterPartitionResponse:
        raise OdradekError("no request may be sent")

    return IsrService(
        RealClock(), broker_id=ME, broker_epoch=lambda: 1, send=send, partitions=lambda: replicas, max_lag_ms=1000
    )


class TestFollowing:
    def test_only_logs_of_this_brokers_replicas_are_created(self, broker: Broker) -> None:
        broker.topic("t", 5, [ME], [2], [2, ME])
        assert broker.names() == {"t-0", "t-2"}
        assert broker.find("t").is_leader
        assert not broker.find("t", 2).is_leader
        assert broker.refusal("t", 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.refusal("t", 9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.refusal("u") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.find("t").log.log_dir in broker.logs.dirs

    async def test_directories_are_filled_evenly(self, broker: Broker) -> None:
        broker.topic("t", 5, *[[ME]] * 10)
        await broker.replicas.logs_created()
        counts = [len(broker.logs.logs_in(directory)) for directory in broker.logs.directories]
        assert counts == [5, 5]

    def test_a_topic_that_is_deleted_is_gone_at_once(self, broker: Broker) -> None:
        broker.topic("t", 5)
        partition = broker.find("t")
        broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)))
        assert partition.closed
        assert broker.refusal("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.logs.get(("t", 0)) is None

    def test_a_name_that_comes_again_is_another_topic(self, broker: Broker) -> None:
        broker.topic("t", 5)
        append(broker.find("t"))
        broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)))
        broker.topic("t", 6)
        assert broker.find("t").topic_id == UUID(int=6)
        assert broker.find("t").log.log_end_offset == 0

    def test_a_replica_that_moves_away_is_let_go_and_one_that_comes_is_made(self, broker: Broker) -> None:
        broker.topic("t", 5, [ME], [2])
        for number, replicas in ((0, [2]), (1, [ME])):
            broker.publish(
                PartitionChangeRecord(
                    partition_id=number, topic_id=UUID(int=5), replicas=replicas, isr=replicas, leader=replicas[0]
                )
            )
        assert broker.names() == {"t-1"}
        assert broker.refusal("t", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_leadership_follows(self, broker: Broker) -> None:
        broker.topic("t", 5, [ME, 2])
        broker.publish(PartitionChangeRecord(partition_id=0, topic_id=UUID(int=5), leader=2))
        partition = broker.find("t")
        assert (partition.is_leader, partition.leader_epoch, partition.partition_epoch) == (False, 1, 1)

    def test_settings_of_a_topic_and_defaults_of_the_broker(self, broker: Broker) -> None:
        broker.topic("t", 5)
        broker.topic("u", 6)
        kind = ResourceType.TOPIC
        change = ConfigRecord(resource_type=kind, resource_name="t", name="max.message.bytes", value="77")
        broker.publish(change)
        assert (broker.find("t").rules.max_message_bytes, broker.find("u").rules.max_message_bytes) == (77, 1_048_588)
        broker.replicas.base_config_changed(LogConfig(max_message_bytes=99), broker.publisher.image)
        assert (broker.find("t").rules.max_message_bytes, broker.find("u").rules.max_message_bytes) == (77, 99)
        broker.publish(ConfigRecord(resource_type=kind, resource_name="t", name="max.message.bytes", value=None))
        assert broker.find("t").rules.max_message_bytes == 99


class TestFailingDisks:
    @staticmethod
    def split(broker: Broker) -> tuple[Partition, Partition]:
        """A partition in the first directory and one in the second."""
        broker.topic("t", 5, [ME], [ME])
        one, two = sorted((broker.find("t", 0), broker.find("t", 1)), key=lambda p: p.log.log_dir)
        return one, two

    @pytest.mark.parametrize("reported", [True, False], ids=["the controller knows", "it does not"])
    def test_a_log_in_an_offline_directory_is_not_recreated(self, tmp_path: Path, reported: bool) -> None:
        logs = LogManager(FailingDisk(), RealClock(), [tmp_path / "d1", tmp_path / "d2"], LogConfig(), Random(1))
        for number, each in enumerate(logs.directories, 1):
            each.directory_id = UUID(int=100 + number)  # the first hundred are reserved (KIP-858)
        logs.take_offline(tmp_path / "d2")
        publisher = MetadataPublisher()
        replicas = ReplicaManager(ME, logs, fetch_max_bytes=2**20)
        records: list[Any] = [TopicRecord(name="t", topic_id=UUID(int=5))]
        records += [
            PartitionRecord(
                partition_id=number,
                topic_id=UUID(int=5),
                replicas=[ME],
                isr=[ME],
                leader=ME,
                directories=[UUID(int=101 + number if reported else 0)],
            )
            for number in range(2)
        ]
        publisher.committed(list(enumerate(records)), 1)
        publisher.subscribe(replicas.on_metadata)
        with pytest.raises(ApiError) as caught:
            replicas.find("t", 1, publisher.image)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not list(tmp_path.glob("*/t-1")), "an empty log would give its offsets once more"
        assert (tmp_path / "d1" / "t-0").is_dir() == reported
        placed = PartitionRecord(partition_id=0, topic_id=UUID(int=6), replicas=[ME], isr=[ME], leader=ME)
        publisher.committed(list(enumerate([TopicRecord(name="u", topic_id=UUID(int=6)), placed], 10)), 1)
        assert replicas.find("u", 0, publisher.image).log.log_dir == tmp_path / "d1", "what is new has its place"

    def test_a_log_seen_in_a_failed_directory_is_not_recreated_elsewhere(self, tmp_path: Path) -> None:
        for name in ("d1", "d2"):
            (tmp_path / name).mkdir()

        def manager() -> LogManager:
            logs = LogManager(FailingDisk(), RealClock(), [tmp_path / "d1", tmp_path / "d2"], LogConfig(), Random(1))
            for number, each in enumerate(logs.directories, 1):
                each.directory_id = UUID(int=100 + number)
            return logs

        manager().create("t", 0, UUID(int=5), {}, log_dir=tmp_path / "d2")
        logs = manager()
        loader = logs.begin_load()
        loader.failures[tmp_path / "d2"] = "dead"
        logs.finish_load(loader)
        publisher = MetadataPublisher()
        replicas = ReplicaManager(ME, logs, fetch_max_bytes=2**20)
        publisher.subscribe(replicas.on_metadata)
        # The controller was notified of a move to the first directory, and not of its end without success.
        placed = PartitionRecord(
            partition_id=0, topic_id=UUID(int=5), replicas=[ME], isr=[ME], leader=ME, directories=[UUID(int=101)]
        )
        publisher.committed(list(enumerate([TopicRecord(name="t", topic_id=UUID(int=5)), placed])), 1)
        assert not (tmp_path / "d1" / "t-0").exists(), "an empty log would give its offsets once more"
        assert replicas.directory_of("t", 0) == LOST_DIRECTORY

    async def test_a_directory_goes_offline_and_the_other_is_served(self, broker: Broker) -> None:
        lost, kept = self.split(broker)
        poll = DataWait([lost], missing_bytes=1, timeout_ms=60_000)
        broker.disk.dead.add(lost.log.log_dir)
        with pytest.raises(StorageError) as caught:
            append(lost)
        broker.replicas.storage_failed(caught.value)
        broker.replicas.storage_failed(caught.value)
        assert broker.failed == [lost.log.log_dir], "reported once"
        assert poll.future.done()
        assert broker.refusal("t", lost.partition_id) is ErrorCode.KAFKA_STORAGE_ERROR
        append(broker.find("t", kept.partition_id))
        assert kept.log.log_end_offset == 1

    async def test_a_log_that_cannot_be_discarded_takes_its_directory_offline(
        self, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its turn comes after that of the first one, when the deletion is answered already."""
        monkeypatch.setattr(replica_manager, "DISCARDED_AT_ONCE", 1)
        self.split(broker)
        kept, lost = (broker.find("t", number).log.log_dir for number in range(2))
        rename = broker.disk.rename

        def fails(source: Path, target: Path) -> None:
            if lost in source.parents:
                raise OSError(errno.EIO, "no")
            rename(source, target)

        monkeypatch.setattr(broker.disk, "rename", fails)
        broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)))
        assert broker.failed == []
        await eventually_async(lambda: broker.failed == [lost])
        broker.topic("u", 6)
        assert broker.find("u").log.log_dir == kept, "the other one is served"

    @pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
    def test_too_many_open_files_are_no_fault_of_a_directory(self, broker: Broker, number: int) -> None:
        one, _ = self.split(broker)
        try:
            raise StorageError(one.log.log_dir, "a segment cannot be opened") from OSError(
                number, "too many open files"
            )
        except StorageError as error:
            broker.replicas.storage_failed(error)
        assert broker.failed == []
        append(broker.find("t", one.partition_id))
        assert one.log.log_end_offset == 1

    def test_new_partitions_go_where_the_disk_works(self, broker: Broker) -> None:
        lost, kept = self.split(broker)
        broker.disk.dead.add(lost.log.log_dir)
        broker.replicas.storage_failed(StorageError(lost.log.log_dir, "dead"))
        broker.topic("u", 6, *[[ME]] * 4)
        assert {broker.find("u", number).log.log_dir for number in range(4)} == {kept.log.log_dir}

    def test_a_partition_that_cannot_be_made_is_offline(self, broker: Broker, tmp_path: Path) -> None:
        broker.disk.dead.add(tmp_path / "d1")
        broker.topic("t", 5)
        assert broker.refusal("t") is ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.failed == [tmp_path / "d1"]
        broker.topic("u", 6)
        append(broker.find("u"))

    async def test_followers_go_offline_with_the_one_whose_append_failed(self, broker: Broker, tmp_path: Path) -> None:
        fetchers = ReplicaFetcherManager(
            FetcherConfig(),
            RealNetwork(),
            RealClock(),
            broker_id=ME,
            broker_epoch=lambda: 1,
            address_of=lambda leader_id: None,
            on_storage_failed=broker.replicas.storage_failed,
        )
        broker.replicas.attach(fetchers, idle_isr(broker.replicas))
        broker.topic("t", 5, *[[2, ME]] * 6)
        await broker.replicas.logs_created()
        lost = [each for each in broker.replicas if each.log.log_dir == tmp_path / "d1"]
        kept = [each for each in broker.replicas if each not in lost]
        assert len(lost) == len(kept) == 3
        for each in kept:
            fetchers.remove_partition(each)
        failing = fetchers._tasks[2, 0].fetcher
        sent = bytes(batch(b"value"))
        answer = FetchResponse(responses=[FetchableTopicResponse(topic_id=UUID(int=5), partitions=[])])
        answer.responses[0].partitions = [PartitionData(partition_index=lost[-1].partition_id, records=sent)]
        assert failing.next_request(0, broker_epoch=1) is not None
        broker.disk.dead.add(tmp_path / "d1")
        fetchers.storage_failed(failing.received(answer, now_ms=0, wall_ms=NOW_MS).failures)
        assert broker.failed == [tmp_path / "d1"]
        assert {broker.refusal("t", each.partition_id) for each in lost} == {ErrorCode.KAFKA_STORAGE_ERROR}
        await fetchers.close()

    def test_a_lost_topic_may_be_deleted_and_made_again(self, broker: Broker) -> None:
        lost, kept = self.split(broker)
        broker.replicas.storage_failed(StorageError(lost.log.log_dir, "dead"))
        broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)))
        assert broker.refusal("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.topic("t", 7)
        assert broker.find("t").log.log_dir == kept.log.log_dir

    def test_changes_to_what_is_lost_are_passed_over(self, broker: Broker) -> None:
        lost, _ = self.split(broker)
        broker.replicas.storage_failed(StorageError(lost.log.log_dir, "dead"))
        broker.publish(PartitionChangeRecord(partition_id=lost.partition_id, topic_id=UUID(int=5), leader=ME))
        assert broker.refusal("t", lost.partition_id) is ErrorCode.KAFKA_STORAGE_ERROR


class TestMany:
    """Thousands of partitions are created and deleted some at a time; the result is the same."""

    COUNT = 100

    @pytest.mark.parametrize("directories", [1, 3])
    async def test_each_turn_of_the_loop_makes_a_few_logs(self, tmp_path: Path, directories: int) -> None:
        with closing_broker(tmp_path, directories) as broker:
            broker.topic("t", 5, *[[ME]] * self.COUNT)
            made = [0, len(broker.logs.logs)]
            while broker.replicas.is_creating_logs:
                await asyncio.sleep(0)
                made.append(len(broker.logs.logs))
            assert max(after - before for before, after in itertools.pairwise(made)) <= CREATED_AT_ONCE
            assert made[-1] == self.COUNT
            assert broker.created_later == [("t", number) for number in range(CREATED_AT_ONCE, self.COUNT)]
            counts = [len(broker.logs.logs_in(directory)) for directory in broker.logs.directories]
            assert max(counts) - min(counts) <= 1, "they are filled evenly"

    async def test_directories_are_filled_evenly_whatever_happened_to_logs_meanwhile(self, tmp_path: Path) -> None:
        with closing_broker(tmp_path, 3) as broker:
            broker.topic("t", 5, *[[ME]] * 9)
            await broker.replicas.logs_created()
            one, two, three = broker.logs.directories
            for number in range(9):
                if broker.find("t", number).log.log_dir == two.path:
                    change = PartitionChangeRecord(
                        partition_id=number, topic_id=UUID(int=5), leader=2, replicas=[2], isr=[2]
                    )
                    broker.publish(change)
            broker.topic("u", 6, *[[ME]] * 3)
            await broker.replicas.logs_created()
            assert [len(broker.logs.logs_in(each)) for each in (one, two, three)] == [3, 3, 3]
            broker.replicas.storage_failed(StorageError(one.path, "dead"))
            broker.topic("v", 7, *[[ME]] * 4)
            await broker.replicas.logs_created()
            assert [len(broker.logs.logs_in(each)) for each in (two, three)] == [5, 5]

    async def test_a_large_topic_is_removed_at_once_and_its_files_later(self, tmp_path: Path) -> None:
        with closing_broker(tmp_path) as broker:
            broker.topic("t", 5, *[[ME]] * self.COUNT)
            for number in range(self.COUNT):
                append(broker.find("t", number))
            broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)))
            assert not broker.names()
            assert not broker.logs.logs
            assert 0 < len(discarded(tmp_path)) < self.COUNT, "some have their turn later"
            await eventually_async(lambda: len(discarded(tmp_path)) == self.COUNT)

    async def test_deleted_partitions_need_no_garbage_collector(self, tmp_path: Path) -> None:
        with closing_broker(tmp_path) as broker:
            gc.disable()
            try:
                broker.topic("t", 5, *[[ME]] * self.COUNT)
                await broker.replicas.logs_created()
                alive = []
                for number in range(self.COUNT):
                    append(broker.find("t", number))
                    alive.append(weakref.ref(broker.find("t", number).log))
                broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)))
                assert broker.logs.log_count > 0, "they are there until their directories have other names"
                await eventually_async(lambda: len(discarded(tmp_path)) == self.COUNT)
                assert broker.logs.log_count == 0
                assert [log() for log in alive] == [None] * self.COUNT
            finally:
                gc.enable()

    async def test_a_name_that_comes_again_meanwhile_is_another_log(self, tmp_path: Path) -> None:
        with closing_broker(tmp_path) as broker:
            broker.topic("t", 5, *[[ME]] * self.COUNT)
            for number in range(self.COUNT):
                append(broker.find("t", number))
            broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)))
            broker.topic("t", 6, *[[ME]] * self.COUNT)
            for number in range(self.COUNT):
                assert broker.find("t", number).log.log_end_offset == 0
                append(broker.find("t", number))
            await eventually_async(lambda: len(discarded(tmp_path)) == self.COUNT)
            for number in range(self.COUNT):
                assert broker.find("t", number).log.read(0, max_bytes=100).chunks[0].read()

    async def test_a_stop_in_the_middle_discards_the_rest(self, tmp_path: Path) -> None:
        with closing_broker(tmp_path) as broker:
            broker.topic("t", 5, *[[ME]] * self.COUNT)
            for number in range(self.COUNT):
                append(broker.find("t", number))
            broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)))
            broker.logs.close()
            assert len(discarded(tmp_path)) == self.COUNT


def discarded(directory: Path) -> list[Path]:
    return list(directory.glob("t-*-delete"))


@contextmanager
def closing_broker(directory: Path, directories: int = 1) -> Iterator[Broker]:
    made = Broker([directory] if directories == 1 else [directory / f"d{number}" for number in range(directories)])
    yield made
    made.logs.unlock()
    made.disk.close()


async def test_closing_lets_everyone_go(broker: Broker) -> None:
    broker.topic("t", 5)
    poll = DataWait([broker.find("t")], missing_bytes=1, timeout_ms=60_000)
    await broker.replicas.close()
    assert poll.future.done()
    assert len(broker.replicas) == 0
