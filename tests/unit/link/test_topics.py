"""The changes that a mirror's topic needs, and the steps by which the floor of its leader epochs is raised."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.link.topics import MirrorTopicManager, changes_of
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic
from odradek.settings.links import MAX_SOURCE_EPOCH, Mirror, MirrorState

ID = UUID(int=7)
LAST = MAX_SOURCE_EPOCH
FLOOR = "odradek.link.west.leader.epoch.t"


def mirror(*, floor: int = 0, source_id: UUID | None = ID) -> Mirror:
    return Mirror("west", "t", MirrorState.ACTIVE, source_id, floor)


def at_source(*epochs: int) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(partition_index=number, leader_id=1, leader_epoch=epoch)
        for number, epoch in enumerate(epochs)
    ]
    return MetadataResponseTopic(name="t", topic_id=ID, partitions=partitions)


@pytest.mark.parametrize(
    ("epoch", "floor"),
    [(1, 16), (16, 16), (17, 32), (LAST - 1, LAST), (LAST, LAST)],
)
def test_the_floor_is_raised_in_steps(epoch: int, floor: int) -> None:
    assert changes_of(mirror(), at_source(0, epoch)) == {FLOOR: str(floor)}
    assert changes_of(mirror(floor=floor), at_source(0, epoch)) == {}


def test_an_epoch_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        changes_of(mirror(), at_source(0, LAST + 1))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_the_leader_epoch_of_an_unmoved_source_is_not_raised() -> None:
    assert changes_of(mirror(), at_source(0)) == {}
    assert changes_of(mirror(source_id=None), at_source(0)) == {"odradek.link.west.source.id.t": str(ID)}


def test_a_topic_that_is_not_there_lacks() -> None:
    async def send(*_: object) -> Any:
        raise AssertionError("it only looks")

    topic_manager = MirrorTopicManager(MetadataImage, send)
    assert topic_manager.differs(mirror(), at_source(0))
