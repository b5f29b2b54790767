"""Committed records reach the publisher in order; those of a long batch over several iterations of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError
from odradek.common.steps import all_steps
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.raft.batches import data_batch, pack, prepare
from odradek.raft.snapshot import SnapshotId, decode_snapshot, write_snapshot
from odradek.raft.storage import RECORDS_PER_TURN, QuorumStorage
from tests.support.waiting import eventually_async
from tests.unit.raft.test_raft_driver import Home
from tests.unit.raft.test_raft_edges import HOME, disk_of, snapshot, storage_of

PARTITIONS = 3
# Each is a record, and one of each of its partitions.
MANY = 2 * RECORDS_PER_TURN


def id_of(number: int) -> UUID:
    return UUID(int=1000 + number)


def topics(count: int, first: int = 0) -> list[Any]:
    """The records of topics."""
    records: list[Any] = []
    for number in range(first, first + count):
        records.append(TopicRecord(name=f"t{number}", topic_id=id_of(number)))
        records += [
            PartitionRecord(topic_id=id_of(number), partition_id=each, replicas=[1], isr=[1], leader=1)
            for each in range(PARTITIONS)
        ]
    return records


def acls(count: int) -> list[Any]:
    """The records of ACLs."""
    return [
        AccessControlEntryRecord(
            id=id_of(number), resource_type=2, resource_name=f"t{number}", pattern_type=3, principal="User:a",
            host="*", operation=3, permission_type=3,
        )
        for number in range(count)
    ]  # fmt: skip


class Images:
    """The images that a publisher passes to a subscriber, and the turns of another task in between."""

    def __init__(self, publisher: MetadataPublisher) -> None:
        self.all: list[MetadataImage] = []
        self.turns_before: list[int] = []
        self._turns = 0
        self._next = asyncio.Event()
        publisher.subscribe(self._on_metadata)
        self._other = asyncio.get_running_loop().create_task(self._take_turns())

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.all.append(image)
        self.turns_before.append(self._turns)
        self._next.set()

    async def _take_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._turns += 1

    @property
    def counts(self) -> list[int]:
        """The number of topics of each."""
        return [len(image.topics_by_name) for image in self.all]

    async def wait_for_next(self) -> None:
        self._next.clear()
        await self._next.wait()

    async def wait_for(self, count: int) -> None:
        """Wait until the newest image has so many topics."""
        await eventually_async(lambda: bool(self.all) and len(self.all[-1].topics_by_name) == count, "the topics")
        self._other.cancel()


@pytest.fixture
async def home() -> Home:
    return await Home().start()


@pytest.fixture
def publisher(home: Home) -> MetadataPublisher:
    return home.driver._publisher


def append(home: Home, records: list[Any]) -> int:
    return home.driver.append([all_steps(home.driver.prepare(records, atomic=True))])


async def until_partly_published(images: Images) -> None:
    while not images.all or not images.counts[-1]:
        await images.wait_for_next()
    assert images.counts[-1] < MANY


async def test_a_batch_of_many_topics_is_published_in_parts(home: Home, publisher: MetadataPublisher) -> None:
    images = Images(publisher)
    append(home, topics(MANY))
    await images.wait_for(MANY)
    parts = MANY * (1 + PARTITIONS) // RECORDS_PER_TURN
    assert len(images.all) == parts
    end_offset = home.driver.end_offset
    assert [image.offset for image in images.all] == [-1] * (parts - 1) + [end_offset - 1], "whole batches"
    assert all(before < after for before, after in zip(images.turns_before, images.turns_before[1:], strict=False))
    for image in images.all:
        assert {len(topic.partitions) for topic in image.topics_by_name.values()} == {PARTITIONS}, "whole topics"
    await home.stop()


@pytest.mark.parametrize("records", [topics(MANY), acls(MANY)], ids=["topics", "acls"])
async def test_a_commit_is_published_when_its_caller_goes_on(
    home: Home, publisher: MetadataPublisher, records: list[Any]
) -> None:
    """A client reads from this node what it has just changed."""
    long, short = append(home, records), append(home, topics(1, MANY))
    for end_offset in (long, short):
        await home.driver.wait_committed(end_offset)
        assert home.driver.committed_offset >= end_offset
        assert publisher.image.offset >= end_offset - 1
    await home.stop()


async def test_unpublished_records_are_lag(home: Home, publisher: MetadataPublisher) -> None:
    images = Images(publisher)
    append(home, topics(MANY))
    await until_partly_published(images)
    assert home.driver.metadata_lag
    await images.wait_for(MANY)
    assert home.driver.metadata_lag == 0
    await home.stop()


async def test_a_short_batch_comes_behind_the_long_one_before_it(home: Home, publisher: MetadataPublisher) -> None:
    images = Images(publisher)
    append(home, topics(MANY))
    end_offset = append(home, topics(1, MANY))
    await home.driver.wait_committed(end_offset)
    await images.wait_for(MANY + 1)
    assert [f"t{MANY}" in image.topics_by_name for image in images.all].count(True) == 1
    append(home, topics(MANY, MANY + 1))
    await images.wait_for(MANY + 1 + MANY)
    await home.stop()


async def test_short_batches_are_published_together(home: Home, publisher: MetadataPublisher) -> None:
    images = Images(publisher)
    for number in range(10):
        append(home, topics(1, number))
    await images.wait_for(10)
    assert images.counts == [10]
    await home.stop()


async def test_acls_of_a_batch_are_published_together(
    home: Home, publisher: MetadataPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule that denies may be behind the one that allows. They are applied in several turns."""
    images = Images(publisher)
    replayed: list[int] = []
    replay = publisher.replay_part

    def counted(records: Sequence[tuple[int, Any]]) -> int:
        replayed.append(len(records))
        return replay(records)

    monkeypatch.setattr(publisher, "replay_part", counted)
    records = acls(2 * RECORDS_PER_TURN)
    append(home, records)
    await eventually_async(lambda: bool(images.all), "the ACLs")
    assert [len(image.acls) for image in images.all] == [len(records)]
    assert replayed[-2:] == [RECORDS_PER_TURN] * 2
    await home.stop()


async def test_a_new_controller_is_kept_while_acls_are_applied(home: Home, publisher: MetadataPublisher) -> None:
    acl = AccessControlEntryRecord(id=id_of(1), resource_type=2, resource_name="t", pattern_type=3, operation=3)
    publisher.replay_part([(publisher.image.offset + 1, acl)])
    publisher.controller_changed(7)
    assert not publisher.image.acls
    publisher.committed([(publisher.image.offset + 2, TopicRecord(name="t", topic_id=id_of(0)))], 1)
    assert (publisher.image.controller_id, len(publisher.image.acls), publisher.image.topics_by_name.keys()) == (
        7,
        1,
        {"t"},
    )
    await home.stop()


async def test_a_snapshot_takes_the_place_of_what_was_applied(home: Home, publisher: MetadataPublisher) -> None:
    publisher.replay_part([(publisher.image.offset + 1, TopicRecord(name="u", topic_id=id_of(1)))])
    publisher.load_snapshot([], publisher.image.offset + 5, 1)
    publisher.committed([(publisher.image.offset + 1, TopicRecord(name="v", topic_id=id_of(2)))], 1)
    assert publisher.image.topics_by_name.keys() == {"v"}
    await home.stop()


async def test_a_snapshot_has_no_part_of_a_batch(home: Home, publisher: MetadataPublisher) -> None:
    """Its end would be inside a batch, where no log can begin."""
    images = Images(publisher)
    await home.driver.wait_committed(append(home, topics(1, MANY)))
    start_offset = home.driver.end_offset
    append(home, topics(MANY))
    await until_partly_published(images)
    await images.wait_for_next()
    assert (await home.driver.write_snapshot()).end_offset == start_offset
    assert not home.driver.storage.snapshot_due(1 << 40), "it would hold the same"
    await images.wait_for(MANY + 1)
    assert (await home.driver.write_snapshot()).end_offset == home.driver.end_offset
    await home.stop()


async def test_a_change_of_the_leader_does_not_undo_a_part(home: Home, publisher: MetadataPublisher) -> None:
    images = Images(publisher)
    append(home, topics(MANY))
    await until_partly_published(images)
    publisher.controller_changed(7)
    await images.wait_for(MANY)
    assert images.counts == sorted(images.counts)
    assert publisher.image.controller_id == 7
    await home.stop()


async def test_a_replica_that_stops_publishes_nothing_more(home: Home, publisher: MetadataPublisher) -> None:
    images = Images(publisher)
    append(home, topics(MANY))
    await until_partly_published(images)
    await home.stop()
    count = len(images.all)
    home.driver._publication.committed(home.driver.end_offset)  # a replica's Fetch came late
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(images.all) == count and images.counts[-1] < MANY
    assert not home.failures


async def test_a_commit_after_the_stop_is_not_published(home: Home, publisher: MetadataPublisher) -> None:
    """A replica's Fetch that comes while the node stops shows the leader that records are committed."""
    images = Images(publisher)
    await home.driver._publication.close()
    append(home, topics(1))
    await home.driver.durable()
    assert home.driver.node.high_watermark == home.driver.end_offset
    assert not images.all
    await home.stop()


async def test_a_later_part_that_cannot_be_applied_stops_the_node(home: Home, publisher: MetadataPublisher) -> None:
    append(home, [*topics(MANY), RemoveTopicRecord(topic_id=id_of(MANY))])
    await eventually_async(lambda: bool(home.failures), "the failure")
    assert "which does not exist" in str(home.failures[0])
    await home.stop()


async def test_records_without_disk_space_come_behind_the_others(home: Home, publisher: MetadataPublisher) -> None:
    """A follower with a full disk publishes what it cannot write; here it still publishes what it wrote before."""
    images, storage = Images(publisher), home.driver.storage
    append(home, topics(MANY))
    await until_partly_published(images)
    version = publisher.image.metadata_version
    batches, _ = pack(
        [all_steps(prepare(topics(1, MANY), atomic=True, metadata_version=version))],
        base_offset=storage.log.log_end_offset,
        leader_epoch=home.driver.leader_epoch,
        now_ms=0,
    )
    home.is_full()
    with pytest.raises(ApiError):
        storage.append_fetched(b"".join(batches), home.driver.leader_epoch)
    storage.publish_unwritten(storage.log.log_end_offset + 1 + PARTITIONS)
    assert f"t{MANY}" not in publisher.image.topics_by_name
    await images.wait_for(MANY)
    await home.stop()


# -- the storage, with turns of two records ---------------------------------------------------------------------------


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> QuorumStorage:
    monkeypatch.setattr("odradek.raft.storage.RECORDS_PER_TURN", 2)
    return storage_of(disk_of())


def fetch(storage: QuorumStorage, first: int, count: int) -> None:
    """Append a batch of topics, as one that was fetched from the leader."""
    records = [TopicRecord(name=f"t{number}", topic_id=id_of(number)) for number in range(first, first + count)]
    storage.append_fetched(data_batch(values(records), base_offset=first, leader_epoch=1, now_ms=0), 1)


def values(records: list[Any]) -> Sequence[bytes]:
    return all_steps(prepare(records, atomic=True, metadata_version=25))[1]


def names(storage: QuorumStorage) -> list[str]:
    return list(storage._publisher.image.topics_by_name)


def test_a_fetched_snapshot_takes_the_place_of_a_batch_published_in_part(storage: QuorumStorage) -> None:
    fetch(storage, 0, 6)
    assert not storage.publish(6)
    assert names(storage) == ["t0", "t1"]
    snapshot_id, data = SnapshotId(9, 1), snapshot("a", "b")
    write_snapshot(storage._disk, HOME, snapshot_id, data)
    storage.install(snapshot_id, decode_snapshot(data), 6)
    assert storage.publish(9)
    assert names(storage) == ["a", "b"]
    assert storage.snapshot_writer(0)[0] == snapshot_id
    fetch(storage, 9, 1)
    assert storage.publish(10)
    assert storage.snapshot_writer(0)[0].end_offset == 10


def test_a_batch_cut_off_behind_one_published_in_part_is_never_published(storage: QuorumStorage) -> None:
    fetch(storage, 0, 6)
    fetch(storage, 6, 2)
    assert not storage.publish(6)
    storage.truncate_to(6, 6)
    fetch(storage, 6, 1)
    while not storage.publish(7):
        pass
    assert names(storage) == [f"t{number}" for number in range(7)]
