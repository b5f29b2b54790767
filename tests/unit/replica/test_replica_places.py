"""The log directories of replicas: full, lost, cordoned or requested, and logs that are created or removed late."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.real_io import RealClock, RealNetwork
from odradek.metadata.model import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, ResourceType
from odradek.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.replica.config import FetcherConfig
from odradek.replica.fetcher_manager import ReplicaFetcherManager
from odradek.replica.followers import follower_fetched
from odradek.replica.in_sync import IsrCounts
from odradek.replica.manager import CREATED_AT_ONCE, DISCARDED_AT_ONCE
from odradek.replica.metrics import replication_families
from odradek.replica.repair_service import RepairCounts
from odradek.replica.throttle import NOT_THROTTLED, Throttled
from odradek.settings.links import MirrorState, mirror_key
from tests.support.models.batches import batch, header_of
from tests.support.waiting import eventually_async, some_turns
from tests.unit.replica.test_replica_manager import ME, Broker, append, idle_isr

THROTTLED = "follower.replication.throttled.replicas"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker([tmp_path / "d1", tmp_path / "d2"])
    for number, directory in enumerate(made.logs.directories, 101):
        directory.directory_id = UUID(int=number)
    yield made
    made.logs.unlock()
    made.disk.close()


def fetching(broker: Broker) -> ReplicaFetcherManager:
    """The fetcher manager of the broker, which reaches no leader."""
    made = ReplicaFetcherManager(
        FetcherConfig(),
        RealNetwork(),
        RealClock(),
        broker_id=ME,
        broker_epoch=lambda: 1,
        address_of=lambda leader_id: None,
        on_storage_failed=broker.replicas.storage_failed,
    )
    broker.replicas.attach(made, idle_isr(broker.replicas))
    return made


def followed(fetchers: ReplicaFetcherManager) -> set[str]:
    return {each.partition.name for each in fetchers}


def config(topic: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic, name=name, value=value)


def refusal(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        action()
    return caught.value.code


class TestWhatIsFetched:
    async def test_only_followers_with_a_leader_are_fetched(self, broker: Broker) -> None:
        broker.topic("t", 5, [ME, 2], [2, ME])
        assert broker.replicas.fetchers is None
        fetchers = fetching(broker)
        assert broker.replicas.fetchers is fetchers
        assert followed(fetchers) == {"t-1"}, "also what was here before"
        seen = []
        for leader in (2, -1, 2, ME):
            broker.publish(PartitionChangeRecord(partition_id=0, topic_id=UUID(int=5), leader=leader))
            seen.append("t-0" in followed(fetchers))
        assert seen == [True, False, True, False]
        await fetchers.close()

    async def test_deleted_or_lost_partitions_are_not_fetched(self, broker: Broker) -> None:
        fetchers = fetching(broker)
        broker.topic("t", 5, [2, ME], [2, ME])
        broker.topic("u", 6, [2, ME])
        lost = broker.find("t")
        broker.replicas.storage_failed(StorageError(lost.log.log_dir, "dead"))
        assert lost.name not in followed(fetchers)
        broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)), RemoveTopicRecord(topic_id=UUID(int=6)))
        assert followed(fetchers) == set()
        await fetchers.close()

    def test_throttles_of_a_topic_hold_from_its_beginning_and_when_they_change(self, broker: Broker) -> None:
        broker.publish(config("t", THROTTLED, "0:1"))
        broker.topic("t", 5, [2, ME], [2, ME])
        of = [broker.find("t", number).throttled for number in range(2)]
        assert of == [Throttled(as_follower=True), NOT_THROTTLED]
        broker.publish(config("t", THROTTLED, "1:1"))
        of = [broker.find("t", number).throttled for number in range(2)]
        assert of == [NOT_THROTTLED, Throttled(as_follower=True)]

    def test_batches_before_the_log_exists_are_refused_alike(self, broker: Broker) -> None:
        first, second = (batch(b"v", producer_id=7, sequence=sequence) for sequence in range(2))
        broker.replicas.early_refusals.record("t", 0, header_of(first), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        broker.topic("t", 5)

        def send(data: bytes) -> Any:
            header = header_of(data)
            return broker.find("t").append_as_leader([bytearray(data)], [header], required_acks=1, now_ms=0)

        assert refusal(lambda: send(second)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (send(first).base_offset, send(second).base_offset) == (0, 1)


class TestDirectories:
    def test_which_one_holds_a_partition(self, broker: Broker) -> None:
        broker.topic("t", 5, [ME], [2])
        where = broker.replicas.directory_of
        log_dir = broker.find("t").log.log_dir
        assert where("t", 0) == broker.logs.dirs[log_dir].directory_id
        assert where("t", 1) == where("u", 0) == UNASSIGNED_DIRECTORY
        directory = broker.logs.dirs[log_dir].directory_id
        assert broker.replicas.is_online(directory)
        broker.replicas.storage_failed(StorageError(log_dir, "dead"))
        assert where("t", 0) == LOST_DIRECTORY
        assert not broker.replicas.is_online(directory) and not broker.replicas.is_online(UNASSIGNED_DIRECTORY)

    def test_a_name_that_comes_again_in_one_change_is_another_log(self, broker: Broker) -> None:
        broker.topic("t", 5)
        first = broker.find("t")
        append(first)
        again = PartitionRecord(partition_id=0, topic_id=UUID(int=6), replicas=[ME], isr=[ME], leader=ME)
        broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)), TopicRecord(name="t", topic_id=UUID(int=6)), again)
        assert first.closed and broker.find("t").topic_id == UUID(int=6)
        assert broker.find("t").log.log_end_offset == 0

    def test_reasons_to_refuse_a_move(self, broker: Broker, tmp_path: Path) -> None:
        broker.topic("t", 5, [ME], [2])
        log_dir = broker.find("t").log.log_dir
        (other,) = [each for each in broker.logs.dirs if each != log_dir]

        def move(topic: str, number: int, target: Path) -> ErrorCode:
            return refusal(lambda: broker.replicas.move(topic, number, target, broker.publisher.image))

        assert move("t", 0, tmp_path / "d9") is ErrorCode.LOG_DIR_NOT_FOUND
        assert move("u", 0, other) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.logs.dirs[other].cordoned = True
        assert move("t", 0, other) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        broker.logs.dirs[log_dir].cordoned = True
        broker.replicas.move("t", 0, log_dir, broker.publisher.image)
        assert broker.replicas.moves.get(("t", 0)) is None, "it is there"
        broker.replicas.storage_failed(StorageError(other, "dead"))
        assert move("t", 0, other) is ErrorCode.KAFKA_STORAGE_ERROR

    def test_a_replica_that_is_not_here_yet_comes_where_it_is_wanted(self, broker: Broker, tmp_path: Path) -> None:
        broker.topic("t", 5, [2], [2])
        for number, target in enumerate((tmp_path / "d2", tmp_path / "d2")):
            asked = lambda: broker.replicas.move("t", number, target, broker.publisher.image)  # noqa: B023, E731 - called within the round, twice
            assert refusal(asked) is ErrorCode.REPLICA_NOT_AVAILABLE
            placed = PartitionChangeRecord(partition_id=number, topic_id=UUID(int=5), replicas=[2, ME])
            broker.publish(placed)
            assert broker.find("t", number).log.log_dir == target


class TestWithoutSpace:
    """A log for which no directory can be made waits for space, and answers with an error that passes."""

    @pytest.fixture
    async def full(self, broker: Broker, tmp_path: Path) -> Broker:
        broker.disk.code, broker.disk.dead = errno.ENOSPC, {tmp_path / "d1", tmp_path / "d2"}
        broker.topic("t", 5)
        broker.topic("u", 6)
        return broker

    async def test_a_replica_is_placed_when_there_is_space(self, full: Broker) -> None:
        placed = full.placed
        assert full.refusal("t") is full.refusal("u") is ErrorCode.KAFKA_STORAGE_ERROR
        assert full.failed == [], "it is no fault of the disk"
        full.replicas.retry_unplaced()
        assert full.refusal("t") is ErrorCode.KAFKA_STORAGE_ERROR
        full.disk.dead = set()
        full.replicas.retry_unplaced()
        assert placed == [], "not before who asked for it has returned"
        await asyncio.sleep(0)
        assert placed == [("t", 0), ("u", 0)]
        append(full.find("t"))
        full.replicas.retry_unplaced()
        await asyncio.sleep(0)
        assert len(placed) == 2

    async def test_the_first_that_fails_is_the_last_that_is_tried(
        self, full: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tried: list[str] = []
        create = full.logs.create

        def counted(topic: str, *given: Any, **named: Any) -> Any:
            tried.append(topic)
            return create(topic, *given, **named)

        monkeypatch.setattr(full.logs, "create", counted)
        full.replicas.retry_unplaced()
        assert tried == ["t"]

    @pytest.mark.parametrize("change", ["deleted", "moved away"])
    async def test_unneeded_logs_are_not_created(self, full: Broker, change: str) -> None:
        if change == "deleted":
            full.publish(RemoveTopicRecord(topic_id=UUID(int=5)))
        else:
            full.publish(PartitionChangeRecord(partition_id=0, topic_id=UUID(int=5), replicas=[2], isr=[2], leader=2))
        expected = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if change == "deleted" else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert full.refusal("t") is expected
        full.disk.dead = set()
        full.replicas.retry_unplaced()
        assert full.names() == {"u-0"}


class TestLater:
    """Logs are made, and removed, some in each turn of the loop."""

    async def test_logs_are_created_in_limited_numbers_at_once(self, broker: Broker) -> None:
        assert [broker.replicas.may_create_now(count) for count in (4, 5)] == [True, False]
        assert (CREATED_AT_ONCE, DISCARDED_AT_ONCE) == (4, 20)
        broker.topic("t", 5, *[[ME]] * 4)
        assert not broker.replicas.is_creating_logs and len(broker.replicas) == 4
        broker.topic("u", 6, *[[ME]] * 5)
        assert broker.replicas.is_creating_logs and len(broker.replicas) == 8
        await broker.replicas.logs_created()
        assert len(broker.replicas) == 9

    async def test_a_requested_log_is_created_at_once_and_once(self, broker: Broker) -> None:
        later = broker.created_later
        broker.topic("t", 5, *[[ME]] * 8)
        assert broker.replicas.partition("t", 7) is broker.find("t", 7)
        assert later == [("t", 7)]
        await broker.replicas.logs_created()
        assert later == [("t", number) for number in (7, 4, 5, 6)]

    @pytest.mark.parametrize("change", ["deleted", "moved away"])
    async def test_unneeded_logs_are_not_created(self, broker: Broker, change: str) -> None:
        broker.topic("t", 5, *[[ME]] * 5)
        if change == "deleted":
            broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)))
        else:
            broker.publish(PartitionChangeRecord(partition_id=4, topic_id=UUID(int=5), replicas=[2], isr=[2], leader=2))
        assert not broker.replicas.is_creating_logs
        await broker.replicas.logs_created()
        assert "t-4" not in broker.names()

    async def test_a_few_are_removed_with_the_change_and_the_others_after_it(
        self, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def left() -> int:
            return len(list(tmp_path.glob("*/t-*-delete")))

        turns: list[int] = []
        discard = broker.logs.discard_deleted

        def counted(limit: int) -> bool:
            turns.append(limit)
            return discard(limit)

        monkeypatch.setattr(broker.logs, "discard_deleted", counted)
        for topic_id in (5, 6):
            broker.topic("t", topic_id, *[[ME]] * 45)
            await broker.replicas.logs_created()
            for number in range(45):
                append(broker.find("t", number))
            before = left()
            broker.publish(RemoveTopicRecord(topic_id=UUID(int=topic_id)))
            seen = [left() - before]
            for _ in range(4):
                await asyncio.sleep(0)
                seen.append(left() - before)
            assert seen == [20, 40, 45, 45, 45]
        assert turns == [20] * 4, "two turns each time, and none when all is done"

    async def test_a_removal_that_fails_takes_its_directory_offline(
        self, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker.topic("t", 5)
        log_dir = broker.find("t").log.log_dir

        def fails(key: tuple[str, int]) -> bool:
            raise StorageError(log_dir, "dead")

        monkeypatch.setattr(broker.logs, "delete", fails)
        broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)))
        assert broker.failed == [log_dir]
        assert broker.refusal("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def test_closing_ends_what_is_to_be_made(self, broker: Broker) -> None:
        broker.topic("t", 5, *[[ME]] * 9)
        await broker.replicas.close()
        assert not broker.replicas.is_creating_logs and len(broker.replicas) == 0
        await broker.replicas.logs_created()


class TestMirrors:
    """Topics that a link of the cluster's settings names."""

    @staticmethod
    def linked(topic: str, what: str, value: str) -> ConfigRecord:
        name = mirror_key("l", what, topic)
        return ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=name, value=value)

    def promoted(self, broker: Broker) -> None:
        """Topic t was a mirror, and its leader may end it from epoch 1 on."""
        broker.topic("t", 5)
        broker.topic("u", 6)
        broker.publish(self.linked("t", "mirror", MirrorState.ACTIVE))
        assert broker.replicas.mirrors == {"t"}
        assert [broker.find(name).is_mirror for name in ("t", "u")] == [True, False]
        with pytest.raises(ApiError):
            append(broker.find("t"))
        append(broker.find("u"))
        broker.publish(PartitionChangeRecord(partition_id=0, topic_id=UUID(int=5), leader=ME))

    def test_a_mirror_is_written_when_it_is_promoted(self, broker: Broker) -> None:
        self.promoted(broker)
        broker.publish(self.linked("t", "mirror", MirrorState.PROMOTED), self.linked("t", "leader.epoch", "1"))
        assert not broker.find("t").is_mirror and broker.replicas.mirrors == frozenset()
        append(broker.find("t"))

    def test_a_new_partition_of_a_mirror_is_one_from_its_beginning(self, broker: Broker) -> None:
        broker.publish(self.linked("t", "mirror", MirrorState.ACTIVE))
        broker.topic("t", 5)
        broker.topic("u", 6)
        assert [broker.find(name).is_mirror for name in ("t", "u")] == [True, False]

    def test_a_promoted_mirror_ends_with_the_leader_epoch_that_is_its_own(self, broker: Broker) -> None:
        """The settings may come before that epoch, and another broker may lead until then."""
        broker.topic("t", 5, [ME, 2])
        broker.publish(self.linked("t", "mirror", MirrorState.ACTIVE))
        broker.publish(self.linked("t", "mirror", MirrorState.PROMOTED), self.linked("t", "leader.epoch", "2"))
        seen = []
        for leader in (2, ME):
            broker.publish(PartitionChangeRecord(partition_id=0, topic_id=UUID(int=5), leader=leader))
            seen.append((broker.find("t").leader_epoch, broker.find("t").is_mirror))
        assert seen == [(1, True), (2, False)]

    def test_a_failback_and_what_was_cut_in_it_are_known_to_the_partition(self, broker: Broker) -> None:
        def marks() -> list[tuple[bool, bool, int]]:
            found = [broker.find(*each) for each in (("t", 0), ("t", 1), ("u", 0))]
            return [(each.is_failing_back, each.is_mirror, each.own_from) for each in found]

        broker.topic("t", 5, [ME], [ME])
        broker.topic("u", 6)
        assert marks() == [(False, False, -1)] * 3
        broker.publish(
            self.linked("t", "own.from", "7"),
            self.linked("t", "begun.1", "3"),
            self.linked("t", "mirror", MirrorState.FAILBACK),
        )
        assert broker.replicas.failing_back == {"t"}
        assert marks() == [(True, True, 7), (True, True, -1), (False, False, -1)], "one leader has begun to cut"
        broker.publish(self.linked("t", "begun.0", "3"), self.linked("t", "mirror", MirrorState.ACTIVE))
        assert broker.replicas.failing_back == frozenset()
        assert marks() == [(False, True, -1), (False, True, -1), (False, False, -1)]

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
    def test_a_mirror_that_a_full_disk_cannot_end_stays_one(self, broker: Broker, code: int) -> None:
        self.promoted(broker)
        partition = broker.find("t")
        broker.disk.code, broker.disk.dead = code, {partition.log.log_dir}
        broker.publish(self.linked("t", "mirror", MirrorState.PROMOTED), self.linked("t", "leader.epoch", "1"))
        assert partition.is_mirror
        assert broker.failed == ([partition.log.log_dir] if code == errno.EIO else [])
        broker.disk.dead = set()
        if code == errno.ENOSPC:
            append(partition)
            assert not partition.is_mirror, "the next write ends it"


def test_a_topic_deleted_and_made_again_at_once_has_none_of_its_records(broker: Broker) -> None:
    broker.topic("t", 5)
    append(broker.find("t"))
    made = PartitionRecord(
        partition_id=0, topic_id=UUID(int=6), replicas=[ME], isr=[ME], leader=ME, leader_epoch=0, partition_epoch=0
    )
    broker.publish(RemoveTopicRecord(topic_id=UUID(int=5)), TopicRecord(name="t", topic_id=UUID(int=6)), made)
    partition = broker.find("t")
    assert (partition.topic_id, partition.log.log_end_offset) == (UUID(int=6), 0)


@pytest.mark.parametrize("what", ["prepared", "flushed"])
async def test_a_close_waits_for_work_on_partitions(broker: Broker, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    assert broker.replicas.parked_fetch_count == 0
    broker.topic("t", 5)
    partition = broker.find("t")
    append(partition)
    gate, run = asyncio.Event(), broker.disk.run_blocking

    async def gated(work: Callable[[], Any]) -> Any:
        await gate.wait()
        return await run(work)

    monkeypatch.setattr(broker.disk, "run_blocking", gated)
    seen: list[object] = []
    if what == "prepared":
        broker.replicas.preparations.run(partition, lambda: what, lambda prepared, failure: seen.append(prepared))
    else:
        flush = asyncio.ensure_future(broker.replicas.flush(partition))
        flush.add_done_callback(lambda _: seen.append(what))
    await some_turns()
    closing = asyncio.ensure_future(broker.replicas.close())
    await some_turns()
    assert not closing.done() and not seen
    gate.set()
    await closing
    await some_turns()
    assert seen == [what] and partition.log.recovery_point == (what == "flushed")


def test_the_brokers_that_may_join_an_isr_are_registered_and_active(broker: Broker) -> None:
    """KIP-841, KIP-903: a broker that was restarted since its fetch may have lost records."""
    for broker_id in (2, 3, 4):
        broker.publish(RegisterBrokerRecord(broker_id=broker_id, broker_epoch=7, fenced=broker_id == 3))
    broker.publish(BrokerRegistrationChangeRecord(broker_id=4, broker_epoch=7, in_controlled_shutdown=1))
    broker.topic("t", 5)
    asked = [(2, 7), (2, -1), (2, 6), (2, 8), (3, 7), (3, -1), (4, 7), (4, -1), (9, 7), (9, -1)]
    may_join = [each for each in asked if broker.find("t").is_isr_eligible(*each)]
    assert may_join == [(2, 7), (2, -1)]


async def test_a_partitions_records_are_flushed(broker: Broker) -> None:
    broker.topic("t", 5)
    append(broker.find("t"))
    await broker.replicas.flush(broker.find("t"))
    assert broker.find("t").log.recovery_point == 1


class TestMetrics:
    @staticmethod
    def values(broker: Broker) -> dict[str, dict[tuple[str, ...], float]]:
        families = list(replication_families(broker.replicas))
        return {
            family.name: {tuple(value for _, value in sample.labels): sample.value for sample in family.samples}
            for family in families
        }

    def test_leaders_report_the_state_of_their_followers(self, broker: Broker) -> None:
        now_ms = 0
        broker.replicas.monotonic_ms = lambda: now_ms
        broker.topic("t", 5, [ME, 2, 3], [2, ME])
        broker.publish(config("t", "min.insync.replicas", "2"))
        for _ in range(3):
            append(broker.find("t"))
        fetch = partial(follower_fetched, broker.find("t"))
        fetch(2, fetch_offset=2, log_start_offset=0, now_ms=0, broker_epoch=1)
        found = self.values(broker)
        assert found["odradek_follower_lag_records"] == {("t", "0", "2"): 1, ("t", "0", "3"): 3}
        assert found["odradek_partitions_under_replicated"] == {(): 0}
        assert found["odradek_partitions_under_min_isr"] == {(): 0}
        assert found["odradek_follower_out_of_sync_seconds"] == {}
        now_ms = 500
        broker.publish(PartitionChangeRecord(partition_id=0, topic_id=UUID(int=5), isr=[ME]))
        now_ms = 3000
        found = self.values(broker)
        assert found["odradek_partitions_under_replicated"] == {(): 1}
        assert found["odradek_partitions_under_min_isr"] == {(): 1}
        assert found["odradek_isr_shrinks"] == {(): 1} and found["odradek_isr_expansions"] == {(): 0}
        out = {("t", "0", "2", "fenced"): 2.5, ("t", "0", "3", "fenced"): 2.5}
        assert found["odradek_follower_out_of_sync_seconds"] == out
        assert found["odradek_follower_isr_removals"] == dict.fromkeys(out, 1)
        now_ms = -1
        assert set(self.values(broker)["odradek_follower_out_of_sync_seconds"].values()) == {0}

    async def test_counters_of_fetches_and_repairs_start_at_zero(self, broker: Broker) -> None:
        names = [
            "odradek_replica_fetched_bytes",
            "odradek_replica_fetch_failures",
            "odradek_repaired_batches",
            "odradek_repaired_bytes",
            "odradek_repair_failures",
        ]
        found = self.values(broker)
        assert [found[name] for name in names] == [{(): 0}] * 5
        assert broker.replicas.repair_counts is None
        assert RepairCounts() == RepairCounts(0, 0, 0) and IsrCounts() == IsrCounts(0, 0)
        fetchers = fetching(broker)
        fetchers.appended_bytes, fetchers.failed_count = 11, 12
        found = self.values(broker)
        assert [found[name][()] for name in names[:2]] == [11, 12]
        await fetchers.close()

    async def test_the_replica_that_is_furthest_behind_counts(self, broker: Broker) -> None:
        name = "odradek_replica_max_lag_records"
        broker.topic("t", 5, *[[2, ME]] * 3)
        assert self.values(broker)[name] == {(): 0}
        fetchers = fetching(broker)
        assert self.values(broker)[name] == {(): 0}, "no leader has answered"
        first, second, _ = fetchers
        first.lag, second.lag = 7, 3
        assert self.values(broker)[name] == {(): 7}
        await fetchers.close()


async def test_a_partition_that_waits_for_its_directory_is_logged_once(
    broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)

    def refuse(*given: Any, **named: Any) -> Any:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "not yet")

    monkeypatch.setattr(broker.logs, "create", refuse)
    broker.topic("t", 5)
    broker.replicas.retry_unplaced()
    lines = [each for each in caplog.records if each.getMessage() == "a partition waits for its directory"]
    assert len(lines) == 1
    monkeypatch.undo()
    broker.replicas.retry_unplaced()
    await eventually_async(lambda: broker.names() == {"t-0"})
