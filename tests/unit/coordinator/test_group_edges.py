"""Groups at the edges: deadlines that come late, records that lack their group, checks of who may ask for offsets."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.steps import all_steps
from odradek.coordinator.batches import decode_batches, encode_batches
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.group.consumer.queries import preferred_assignor
from odradek.coordinator.group.consumer.records import epoch_record, member_tombstones
from odradek.coordinator.group.consumer.state import MemberMetadata
from odradek.coordinator.group.consumer.topics import topics_view
from odradek.coordinator.group.records import GROUP_RECORDS, TransactionEndRecord
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import BrokerImage, Endpoint, PartitionImage, TopicImage
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from odradek.record.batch import BatchHeader
from tests.support.models.consumer_shard import Box, view
from tests.support.models.mixed_groups import ClassicClient, MixedShard, NewClient
from tests.support.models.mixed_groups import topics_view as mixed_topics
from tests.unit.coordinator.conftest import VirtualShard

RECORDS: Any = GROUP_RECORDS


def test_before_any_deadline_nothing_is_due(shard: VirtualShard) -> None:
    result = shard.machine.on_deadline(shard.now)
    assert (list(result.records), result.response.response, list(result.response.completions)) == ([], None, [])


def test_a_join_deadline_of_a_group_at_rest_changes_nothing(shard: VirtualShard) -> None:
    (member,), generation_id = shard.stable(1)
    group = shard.group()
    assert shard.machine._rebalance.on_join_timer(group, shard.now) == []
    assert (group.state, group.generation_id) == (GroupState.STABLE, generation_id)
    assert shard.heartbeat(member, generation_id) == ErrorCode.NONE


def test_an_assignment_whose_group_is_gone_is_settled_quietly(shard: VirtualShard) -> None:
    """Its last member left and it was deleted, while the log took its time."""
    member, ticket = shard.enter()
    shard.advance(3_000)
    generation_id = shard.answers[ticket].generation_id
    shard.hold_writes = True
    syncing = shard.begin_sync(member, generation_id, {member: b"mine"})
    shard.leave((member, None))
    assert shard.answers[syncing].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    (deleted,) = shard.apply(shard.machine.commits.delete_groups(["g"]))
    assert deleted.error_code == ErrorCode.NONE
    assert len(shard.held) == 1
    shard.release_writes()
    assert shard.machine.groups.find("g") is None


def test_a_bounce_during_a_rebalance_is_answered_with_its_generation(shard: VirtualShard) -> None:
    """Its new id was stored, and by then another member had joined: it takes part in that rebalance."""
    tickets = [shard.begin_join("", instance=name) for name in ("one", "two")]
    shard.advance(6_000)
    one, two = (shard.answers[ticket].member_id for ticket in tickets)
    shard.sync(one, 1, {one: b"1", two: b"2"}, instance="one")
    shard.hold_writes = True
    back = shard.begin_join("", instance="two")
    new = shard.join("").member_id
    joining = shard.begin_join(new)
    shard.release_writes()
    assert not {back, joining} & set(shard.answers), "one member has yet to join"
    shard.begin_join(one, instance="one")
    answers = [shard.answers[ticket] for ticket in (back, joining)]
    assert [(each.error_code, each.generation_id) for each in answers] == [(ErrorCode.NONE, 2)] * 2


def test_a_consumer_group_is_created_by_no_classic_request() -> None:
    box = Box()
    box.beat("a")
    with pytest.raises(ApiError) as caught:
        box.machine.groups.get_or_create("g")
    assert caught.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert box.machine.groups.find("g") is None


@pytest.mark.parametrize(
    ("member_id", "more", "code"),
    [
        (None, None, ErrorCode.NONE),
        ("a", 0, ErrorCode.NONE),
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", None, ErrorCode.STALE_MEMBER_EPOCH),
    ],
)
def test_a_member_that_is_named_fetches_in_its_epoch(member_id: str | None, more: int | None, code: ErrorCode) -> None:
    box = Box()
    epoch = box.beat("a").member_epoch
    request = OffsetFetchRequestGroup(
        group_id="g",
        member_id=member_id,
        member_epoch=-1 if more is None else epoch + more,
        topics=[OffsetFetchRequestTopics(name="ta", partition_indexes=[0])],
    )
    found = ErrorCode.NONE
    try:
        answer = box.apply(box.machine.commits.fetch(request, False))
        assert answer.topics[0].partitions[0].committed_offset == -1
    except ApiError as error:
        found = error.code
    assert found is code


def test_tombstones_that_compaction_left_alone_change_nothing() -> None:
    box = Box()
    for record in member_tombstones("gone", "m"):
        box.machine.replay(record, 5)
    assert len(box.machine.consumers) == 0
    box.machine.replay(epoch_record("g", 3, 7), 6)
    assert box.group.group_epoch.value == 3


def test_an_expression_that_is_said_again_is_not_matched_again() -> None:
    box = Box(view(ta=2, xb=2))
    regex: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}
    epoch = box.beat("a", box.beat("a", **regex).member_epoch).member_epoch
    before, group_epoch = len(box.log), box.group.group_epoch.value
    for _ in range(3):
        answer = box.beat("a", epoch, subscribed_topic_regex="t.*")
        assert (answer.member_epoch, len(box.log), box.group.group_epoch.value) == (epoch, before, group_epoch)


def test_the_racks_of_a_topic_are_those_of_its_replicas() -> None:
    def broker(broker_id: int, rack: str | None) -> BrokerImage:
        return BrokerImage(broker_id, 0, UUID(int=broker_id), (Endpoint("P", "h", 9, 0),), rack=rack, fenced=False)

    topic = TopicImage(
        "t",
        UUID(int=9),
        {0: PartitionImage((1, 2), (1,), 1, 0, 0), 1: PartitionImage((3, 4), (3,), 3, 0, 0)},
    )
    brokers = {1: broker(1, "a"), 2: broker(2, "b"), 3: broker(3, None)}
    image = MetadataImage(brokers=brokers, topics_by_name={"t": topic}, topics_by_id={topic.topic_id: topic})
    facts = topics_view(image, 7)
    assert facts.version == 7
    assert facts.by_name["t"].racks == (frozenset({"a", "b"}), frozenset())
    assert facts.by_id[topic.topic_id].partition_count == 2
    none = MetadataImage(brokers={3: broker(3, None)}, topics_by_name={"t": topic})
    assert topics_view(none, 8).by_name["t"].racks == ()
    assert facts.metadata_hash(["t"]) != topics_view(none, 8).metadata_hash(["t"])


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_has_the_epochs_of_who_ends_the_transaction(committed: bool) -> None:
    end = TransactionEndRecord(5, committed, 3, 8)
    encoded = GROUP_RECORDS.encode(end)
    assert (encoded.producer_id, encoded.producer_epoch, encoded.is_control) == (5, 3, True)
    (batch,) = all_steps(encode_batches(RECORDS, [end], atomic=True, max_batch_bytes=10_000, now_ms=3))
    header = BatchHeader.read(batch)
    assert (header.is_control, header.is_transactional) == (True, True)
    assert (header.producer_id, header.producer_epoch) == (5, 3)
    ((_, read),), _ = decode_batches(RECORDS, batch)
    assert (read.producer_id, read.committed, read.producer_epoch) == (5, committed, 3)


@pytest.mark.parametrize(("most", "is_upgraded"), [(1, False), (2, True)])
def test_a_group_larger_than_consumer_groups_may_be_stays_classic(most: int, is_upgraded: bool) -> None:
    """Such a group is full: no member of either protocol can join."""
    shard = MixedShard(mixed_topics(ta=4), most_consumers=most)
    clients = [ClassicClient(shard, f"c{number}", ["ta"]) for number in range(2)]
    for _ in range(14):
        for client in clients:
            client.settle()
        shard.advance(200)
    assert [len(client.owned) for client in clients] == [2, 2]
    with pytest.raises(ApiError) as caught:
        NewClient(shard, "n", ["ta"])._beat(0)
    if is_upgraded:
        assert caught.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    else:
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert "more than the 1 members of group.consumer.max.size" in caught.value.message
    assert shard.kind == "classic"


def test_a_description_has_all_of_a_group_and_its_members() -> None:
    box = Box(view(ta=2, tb=1))
    box.beat("a", instance_id="i", rack_id="r", server_assignor="range", subscribed_topic_names=["ta", "tb"])
    box.beat("b", subscribed_topic_names=["tb", "ta"])
    (group,) = box.apply(box.machine.describe_consumers(["g"]))
    assert (group.group_id, group.error_code, group.error_message) == ("g", ErrorCode.NONE, None)
    epochs = (box.group.group_epoch.value, box.group.assignment_epoch.value)
    assert (group.group_epoch, group.assignment_epoch) == epochs and epochs[0] > 1
    assert (group.group_state, group.assignor_name) == (box.group.state.value, "range")
    first, second = group.members
    assert (first.member_id, first.instance_id, first.rack_id) == ("a", "i", "r")
    assert (second.member_id, second.instance_id, second.rack_id) == ("b", None, None)
    for each in group.members:
        assert each.member_epoch == box.group.current_of(each.member_id).member_epoch
        assert (each.client_id, each.client_host, each.member_type) == ("client", "/host", 1)
        assert each.subscribed_topic_regex is None
    assert (first.subscribed_topic_names, second.subscribed_topic_names) == (["ta", "tb"], ["tb", "ta"])

    def named(assignment: Any) -> dict[str, list[int]]:
        assert all(each.topic_id == UUID(int=ord(each.topic_name[-1])) for each in assignment.topic_partitions)
        return {each.topic_name: each.partitions for each in assignment.topic_partitions}

    assert (named(first.assignment), named(second.assignment)) == ({"ta": [0, 1], "tb": [0]}, {})
    targets = named(first.target_assignment), named(second.target_assignment)
    assert targets == ({"ta": [1]}, {"ta": [0], "tb": [0]})
    box.topics = view(2, tb=1)
    (group,) = box.apply(box.machine.describe_consumers(["g"]))
    assert named(group.members[0].assignment) == {"tb": [0]}, "a topic that is deleted has no name"


def test_a_description_of_a_group_of_the_other_protocol_says_so() -> None:
    box = Box()
    box.beat("a")
    box.machine.groups.get_or_create("classic")
    found = box.apply(box.machine.describe_consumers(["classic", "none"]))
    assert [(each.group_id, each.error_code, each.error_message) for each in found] == [
        ("classic", ErrorCode.GROUP_ID_NOT_FOUND, "Group classic is not a consumer group."),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found."),
    ]
    for version, code in ((5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
        other, none = box.apply(box.machine.describe_classics(["g", "none"], version))
        assert [(each.group_id, each.group_state, each.error_code) for each in (other, none)] == [
            ("g", "Dead", code),
            ("none", "Dead", code),
        ]
        if code:
            assert (other.error_message, none.error_message) == (
                "Group g is not a classic group.",
                "Group none not found.",
            )


def test_the_assignor_of_most_members_is_used_of_equals_the_first() -> None:
    def member(assignor: str | None) -> MemberMetadata:
        return MemberMetadata(server_assignor=assignor)

    for wanted, chosen in (
        ([], "default"),
        ([None, None], "default"),
        (["range"], "range"),
        (["uniform", "range"], "range"),
        (["uniform", "range", "uniform"], "uniform"),
        ([None, None, "uniform"], "uniform"),
    ):
        assert preferred_assignor([member(each) for each in wanted], "default") == chosen
