"""Committed records reach the publisher in order; those of a long batch over several iterations of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.raft.batches import pack, prepare
from odradek.raft.storage import RECORDS_PER_TURN
from tests.support.waiting import eventually_async
from tests.unit.raft.test_raft_driver import Home

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
    return home.driver.append([home.driver.prepare(records, atomic=True)])


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
    assert all(before < after for before, after in zip(images.turns_before, images.turns_before[1:], strict=False))
    for image in images.all:
        assert {len(topic.partitions) for topic in image.topics_by_name.values()} == {PARTITIONS}, "whole topics"
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
    replay = publisher.replay

    def counted(records: Sequence[tuple[int, Any]]) -> int:
        replayed.append(len(records))
        return replay(records)

    monkeypatch.setattr(publisher, "replay", counted)
    records = [
        AccessControlEntryRecord(
            id=id_of(number), resource_type=2, resource_name=f"t{number}", pattern_type=3, principal="User:a",
            host="*", operation=3, permission_type=3,
        )
        for number in range(2 * RECORDS_PER_TURN)
    ]  # fmt: skip
    append(home, records)
    await eventually_async(lambda: bool(images.all), "the ACLs")
    assert [len(image.acls) for image in images.all] == [len(records)]
    assert replayed[-2:] == [RECORDS_PER_TURN] * 2
    await home.stop()


async def test_a_new_controller_is_kept_while_acls_are_applied(home: Home, publisher: MetadataPublisher) -> None:
    """A snapshot takes the place of what was applied and not published."""
    acl = AccessControlEntryRecord(id=id_of(1), resource_type=2, resource_name="t", pattern_type=3, operation=3)
    publisher.replay([(publisher.image.offset + 1, acl)])
    publisher.controller_changed(7)
    assert not publisher.image.acls
    publisher.committed([(publisher.image.offset + 2, TopicRecord(name="t", topic_id=id_of(0)))], 1)
    assert (publisher.image.controller_id, len(publisher.image.acls), publisher.image.topics_by_name.keys()) == (
        7,
        1,
        {"t"},
    )
    publisher.replay([(publisher.image.offset + 1, TopicRecord(name="u", topic_id=id_of(1)))])
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
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(images.all) == count and images.counts[-1] < MANY
    assert not home.failures


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
        [prepare(topics(1, MANY), atomic=True, metadata_version=version)],
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
