"""Committed offsets: which members may commit, which offsets are fetched, when they expire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.steps import all_steps
from odradek.coordinator.batches import encode_batches
from odradek.coordinator.group.classic.group import Moment
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.group.machine import MAX_EXPIRED_PER_RUN, MAX_RECORD_BYTES
from odradek.coordinator.group.records import GROUP_RECORDS, OffsetRecord, TransactionEndRecord
from odradek.log.producer_state import NOT_REQUIRED, ProducerState
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from tests.unit.coordinator.conftest import START_MS, subscription

RETENTION_MS = 10080 * 60_000


def delete_offset(shard: Any, topic: str = "t", partition: int = 0, group: str = "g") -> ErrorCode:
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)])
        ],
    )
    try:
        answer = shard.apply(shard.machine.commits.delete_offsets(request))
    except ApiError as error:
        return error.code
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def delete_group(shard: Any, group: str = "g") -> ErrorCode:
    return ErrorCode(shard.apply(shard.machine.commits.delete_groups([group]))[0].error_code)


def test_a_consumer_without_a_group_commits_and_fetches(shard: Any) -> None:
    assert shard.committed() == -1
    assert shard.commit(42, metadata="here") == ErrorCode.NONE
    assert shard.committed() == 42
    assert shard.committed(partition=1) == -1
    assert shard.group().protocol_type is None and shard.group().is_in(GroupState.EMPTY)


def test_all_offsets_of_a_group_are_fetched_without_naming_topics(shard: Any) -> None:
    for topic, partition in (("a", 0), ("b", 1), ("a", 2)):
        shard.commit(partition + 10, topic=topic, partition=partition)
    shard.commit(99, group="another")
    answer = shard.apply(shard.machine.commits.fetch(OffsetFetchRequestGroup(group_id="g", topics=None), False))
    found = {(t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions}
    assert found == {("a", 0): 10, ("b", 1): 11, ("a", 2): 12}


def test_a_partition_without_an_offset_is_answered_with_none(shard: Any) -> None:
    shard.commit(7, topic="t", partition=0)
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
    answer = shard.apply(shard.machine.commits.fetch(OffsetFetchRequestGroup(group_id="g", topics=topics), False))
    found = [
        (each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code)
        for each in answer.topics[0].partitions
    ]
    assert found == [(0, 7, -1, "", 0), (1, -1, -1, "", 0)]


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.ILLEGAL_GENERATION), (8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_member_of_a_group_that_does_not_exist(shard: Any, version: int, code: ErrorCode) -> None:
    for generation_id in (3, 0):
        assert shard.commit(1, member_id="m", generation_id=generation_id, version=version) == code
    assert shard.log == []


def test_only_members_of_the_present_generation_commit(shard: Any) -> None:
    (leader, follower), generation_id = shard.stable(2)
    assert shard.commit(1, member_id=leader, generation_id=generation_id) == ErrorCode.NONE
    assert shard.commit(2, member_id=leader, generation_id=generation_id - 1) == ErrorCode.ILLEGAL_GENERATION
    assert shard.commit(2, member_id=leader, generation_id=generation_id + 1) == ErrorCode.ILLEGAL_GENERATION
    assert shard.commit(2, member_id="stolen", generation_id=generation_id) == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.commit(2) == ErrorCode.UNKNOWN_MEMBER_ID, "an administrator, while members are there"
    assert shard.commit(2, member_id=leader) == ErrorCode.ILLEGAL_GENERATION
    assert shard.commit(2, member_id=follower, generation_id=generation_id, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.committed() == 1


def test_commits_during_a_rebalance_count_until_the_join_completes(shard: Any) -> None:
    (leader, follower), generation_id = shard.stable(2)
    shard.begin_join(leader)
    assert shard.commit(5, member_id=follower, generation_id=generation_id) == ErrorCode.NONE
    shard.begin_join(follower)
    assert shard.group().state is GroupState.COMPLETING_REBALANCE
    code = shard.commit(6, member_id=follower, generation_id=generation_id + 1)
    assert code == ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.commit(6, member_id=follower, generation_id=generation_id) == ErrorCode.ILLEGAL_GENERATION
    assert shard.committed() == 5


def test_a_commit_keeps_the_session_alive(shard: Any) -> None:
    (member,), generation_id = shard.stable(1, session_ms=10_000)
    for offset in range(4):
        shard.advance(9000)
        assert shard.commit(offset, member_id=member, generation_id=generation_id) == ErrorCode.NONE


def test_metadata_above_the_limit_is_refused_for_that_partition_alone(make_shard: Any) -> None:
    shard = make_shard(offset_metadata_max_bytes=10)
    parts = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="x" * 11),
        OffsetCommitRequestPartition(partition_index=1, committed_offset=2, committed_metadata="x" * 10),
        OffsetCommitRequestPartition(partition_index=2, committed_offset=3, committed_metadata=None),
    ]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=parts)])
    answer = shard.apply(shard.machine.commits.commit(request, 9, shard.now))
    codes = [part.error_code for part in answer.topics[0].partitions]
    assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE, ErrorCode.NONE]
    assert [shard.committed(partition=p) for p in range(3)] == [-1, 2, 3]


class Counted(list[Any]):
    """Entries of a request, and how many of them were looked at."""

    taken = 0

    def __iter__(self) -> Any:
        for each in super().__iter__():
            self.taken += 1
            yield each


def many_commits(topics: dict[str, int], metadata: str = "") -> OffsetCommitRequest:
    parts = {
        name: Counted(
            OffsetCommitRequestPartition(partition_index=each, committed_offset=each, committed_metadata=metadata)
            for each in range(count)
        )
        for name, count in topics.items()
    }
    return OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in parts.items()]
    )


def test_commits_that_no_batch_holds_are_refused_before_all_are_looked_at(shard: Any) -> None:
    request: Any = many_commits({"t": 100_000})
    with pytest.raises(ApiError) as caught:
        shard.machine.commits.commit(request, 9, shard.now)
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert request.topics[0].partitions.taken < 20_000
    transactional = TxnOffsetCommitRequest(group_id="g", topics=request.topics)
    request.topics[0].partitions.taken = 0
    producers = ProducerState()
    with pytest.raises(ApiError) as caught:
        shard.machine.commits.commit_in_transaction(transactional, producers, NOT_REQUIRED, shard.now)
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert request.topics[0].partitions.taken < 20_000


@pytest.mark.parametrize(("count", "is_taken"), [(14, True), (15, False)])
def test_the_commits_of_one_request_are_so_many_at_most(shard: Any, count: int, is_taken: bool) -> None:
    """The limit is the number that fits into a batch with the shortest names of the request: 68 bytes each, here."""
    shard.machine.commits._max_record_bytes = lambda: 68 * 14 + 67
    request: Any = many_commits({"t": count})
    transactional = TxnOffsetCommitRequest(group_id="g", topics=request.topics)
    commits: list[Callable[[], Any]] = [
        lambda: shard.machine.commits.commit(request, 9, shard.now),
        lambda: shard.machine.commits.commit_in_transaction(transactional, ProducerState(), NOT_REQUIRED, shard.now),
    ]
    for commit in commits:
        if is_taken:
            assert len(commit().records) == count
        else:
            with pytest.raises(ApiError) as caught:
                commit()
            assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_tombstones_may_be_written_in_several_batches(shard: Any) -> None:
    """The tombstones may not fit into one batch, and no response depends on them."""
    shard.commit(1)
    shard.advance(RETENTION_MS - 700_000)
    commits = shard.machine.commits
    late = Moment(shard.now.wall_ms + RETENTION_MS, shard.now.monotonic_ms)
    for result in (commits.expire(late, 10), commits.drop_topics({"t": UUID(int=1)}), commits.delete_groups(["g"])):
        assert result.records and not result.atomic
    request = OffsetCommitRequest(group_id="g", topics=[stored(7)])
    assert commits.commit(request, 10, shard.now).atomic, "what is acknowledged is written as a whole"


def test_as_many_commits_as_a_batch_holds_are_taken(shard: Any) -> None:
    """The names of one topic may be short, and those of another long."""
    topics = {"t": 10_000, "u" * 249: 500}
    result = shard.machine.commits.commit(many_commits(topics), 9, shard.now)
    assert len(result.records) == 10_500
    all_steps(encode_batches(GROUP_RECORDS, result.records, atomic=True, max_batch_bytes=MAX_RECORD_BYTES, now_ms=0))
    refused = many_commits({"t": 30_000}, metadata="x" * 4097)
    answer = shard.machine.commits.commit(refused, 9, shard.now).response.response
    assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.OFFSET_METADATA_TOO_LARGE}


def test_an_offset_of_a_deleted_topic_of_the_same_name_is_not_found(shard: Any) -> None:
    old, new = UUID(int=1), UUID(int=2)
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = OffsetCommitRequestTopic(name="t", topic_id=old, partitions=[part])
    shard.apply(shard.machine.commits.commit(OffsetCommitRequest(group_id="g", topics=[topic]), 10, shard.now))

    def fetch(topic_id: UUID) -> int:
        topics = [OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0])]
        answer = shard.apply(shard.machine.commits.fetch(OffsetFetchRequestGroup(group_id="g", topics=topics), False))
        return int(answer.topics[0].partitions[0].committed_offset)

    assert (fetch(old), fetch(new), fetch(UUID(int=0))) == (7, -1, 7)


def test_offsets_that_a_transaction_holds_back(shard: Any) -> None:
    shard.commit(1)
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    pending = OffsetRecord(key, OffsetCommitValue(offset=9), producer_id=5)
    shard.machine.replay(pending, 100)
    assert shard.committed() == 1
    assert shard.committed(stable=True) == -100 - ErrorCode.UNSTABLE_OFFSET_COMMIT
    shard.machine.replay(TransactionEndRecord(5, committed=False), 101)
    assert shard.committed(stable=True) == 1
    shard.machine.replay(pending, 102)
    shard.machine.replay(OffsetRecord(key, OffsetCommitValue(offset=3)), 103)
    shard.machine.replay(TransactionEndRecord(5, committed=True), 104)
    assert shard.committed(stable=True) == 3, "the commit that lies later in the log counts"
    shard.machine.replay(pending, 105)
    shard.machine.replay(TransactionEndRecord(5, committed=True), 106)
    assert shard.committed(stable=True) == 9


def test_a_simple_groups_offsets_expire_after_their_last_commit(shard: Any) -> None:
    shard.commit(1, partition=0)
    shard.advance(RETENTION_MS - 700_000)
    shard.commit(2, partition=1)
    shard.advance(1_400_000)
    assert (shard.committed(partition=0), shard.committed(partition=1)) == (-1, 2)
    shard.advance(RETENTION_MS)
    assert shard.committed(partition=1) == -1
    assert list(shard.machine.groups.ids()) == []


def test_retention_begins_when_the_last_member_has_left(shard: Any) -> None:
    (member,), generation_id = shard.stable(1, session_ms=1_800_000, protocols=[("range", subscription("t"))])
    shard.commit(1, member_id=member, generation_id=generation_id)
    shard.commit(1, member_id=member, generation_id=generation_id, topic="left behind")
    for _ in range(RETENTION_MS // 1_700_000 + 2):
        shard.advance(1_700_000)
        shard.heartbeat(member, generation_id)
    assert shard.committed() == 1, "a topic that a member consumes keeps its offsets"
    assert shard.committed(topic="left behind") == -1, "an offset of an unsubscribed topic does not"
    shard.leave((member, None))
    shard.advance(RETENTION_MS - 700_000)
    assert shard.committed() == 1
    shard.advance(1_400_000)
    assert shard.committed() == -1
    assert "g" not in shard.machine.groups.stored
    assert list(shard.machine.groups.ids()) == []


def test_another_coordinator_knows_since_when_a_group_is_empty(shard: Any) -> None:
    """Its offsets would expire by their last commit, which may be long ago."""
    (member,), generation_id = shard.stable(1, session_ms=1_800_000, protocols=[("range", subscription("t"))])
    shard.commit(1, member_id=member, generation_id=generation_id)
    for _ in range(RETENTION_MS // 1_700_000 + 2):
        shard.advance(1_700_000)
        shard.heartbeat(member, generation_id)
    shard.leave((member, None))
    again = shard.restarted()
    again.advance(RETENTION_MS - 700_000)
    assert again.committed() == 1
    again.advance(1_400_000)
    assert again.committed() == -1


def test_members_that_do_not_say_what_they_consume_keep_all_offsets(shard: Any) -> None:
    (member,), generation_id = shard.stable(1, session_ms=1_800_000, protocol_type="connect")
    shard.commit(1, member_id=member, generation_id=generation_id)
    for _ in range(RETENTION_MS // 1_700_000 + 2):
        shard.advance(1_700_000)
        shard.heartbeat(member, generation_id)
    assert shard.committed() == 1


def test_an_explicit_retention_of_an_old_client_counts(shard: Any) -> None:
    shard.commit(1, retention_ms=1_000_000, version=2)
    record = shard.log[-1]
    assert record.value.expire_timestamp == START_MS + 1_000_000
    shard.advance(600_000)
    assert shard.committed() == 1
    shard.advance(600_000)
    assert shard.committed() == -1


def test_offsets_of_a_subscribed_topic_are_not_deleted(shard: Any) -> None:
    assert delete_offset(shard) == ErrorCode.GROUP_ID_NOT_FOUND
    (member,), generation_id = shard.stable(1, protocols=[("range", subscription("t", "u"))])
    for topic in ("t", "old"):
        shard.commit(1, member_id=member, generation_id=generation_id, topic=topic)
    assert delete_offset(shard, "t") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offset(shard, "old") == ErrorCode.NONE
    assert delete_offset(shard, "never committed") == ErrorCode.NONE
    assert (shard.committed(), shard.committed(topic="old")) == (1, -1)
    shard.leave((member, None))
    assert delete_offset(shard, "t") == ErrorCode.NONE
    assert shard.committed() == -1


def test_offsets_of_members_of_another_kind_are_not_deleted(shard: Any) -> None:
    shard.stable(1, protocol_type="connect")
    assert delete_offset(shard) == ErrorCode.NON_EMPTY_GROUP


def test_a_group_is_deleted_when_it_is_empty(shard: Any) -> None:
    assert delete_group(shard) == ErrorCode.GROUP_ID_NOT_FOUND
    (member,), generation_id = shard.stable(1)
    shard.commit(1, member_id=member, generation_id=generation_id)
    assert delete_group(shard) == ErrorCode.NON_EMPTY_GROUP
    shard.leave((member, None))
    assert delete_group(shard) == ErrorCode.NONE
    assert shard.committed() == -1
    assert delete_group(shard) == ErrorCode.GROUP_ID_NOT_FOUND
    assert list(shard.restarted().machine.groups.ids()) == []
    again = shard.enter()[1]
    shard.advance(3000)
    assert shard.answers[again].generation_id == 1


def test_garbage_as_a_subscription_is_no_harm(shard: Any) -> None:
    for garbage in (b"", b"\x00", b"\x00\x01\x7f\xff\xff\xff", b"\x80\x00rest", b"\x00\x01\x00\x00\x00\x01\xff\xff"):
        members, generation_id = shard.stable(1, group=garbage.hex(), protocols=[("range", garbage)])
        assert shard.group(garbage.hex()).subscribed_topics is None
        assert shard.heartbeat(members[0], generation_id, group=garbage.hex()) == ErrorCode.NONE


def test_expiry_that_cannot_be_written_is_tried_again_with_pauses(shard: Any) -> None:
    """As many offsets as one run may remove are due, and the log refuses them: the next scan waits for a pause."""
    for partition in range(MAX_EXPIRED_PER_RUN + 500):
        shard.commit(1, partition=partition)
    shard.advance(RETENTION_MS - 700_000)
    machine, shard.fail_writes = shard.machine, ErrorCode.NOT_ENOUGH_REPLICAS
    while len(shard.machine.offsets) and not _removes_many(shard):
        pass
    began_ms = shard.clock_ms
    assert (machine.next_deadline_ms() or 0) >= began_ms + 100, "not at once"
    for _ in range(20):
        shard.clock_ms = machine.next_deadline_ms()
        shard.apply(machine.on_deadline(shard.now))
    assert shard.clock_ms - began_ms >= 20 * 100
    assert len(machine.offsets) == MAX_EXPIRED_PER_RUN + 500
    shard.fail_writes = None
    shard.advance(300)
    assert len(machine.offsets) == 0, "the rest follows soon"


def _removes_many(shard: Any) -> bool:
    """Go to the next deadline; whether it would have removed as much as one run may."""
    shard.clock_ms = shard.machine.next_deadline_ms()
    result = shard.machine.on_deadline(shard.now)
    shard.apply(result)
    return len(result.records) == MAX_EXPIRED_PER_RUN


def test_a_group_of_another_protocol_consumes_no_topics_that_are_known(shard: Any) -> None:
    (member,), _ = shard.stable(1, protocols=[("range", subscription("t"))])
    assert shard.group().subscribed_topics == {"t"}
    shard.leave((member, None))
    assert shard.commit(1) == ErrorCode.NONE, "so that the group stays"
    assert shard.group().subscribed_topics == frozenset()
    shard.stable(1, protocol_type="connect", protocols=[("default", b"workers")])
    assert shard.group().subscribed_topics is None, "its offsets are spared"


def stored(offset: int, *, leader_epoch: int = 2, metadata: str = "here", topic_id: UUID = UUID(int=1)) -> Any:  # noqa: B008 - immutable
    """A commit of partition 3, with every field set."""
    part = OffsetCommitRequestPartition(
        partition_index=3, committed_offset=offset, committed_leader_epoch=leader_epoch, committed_metadata=metadata
    )
    return OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[part])


def test_a_commit_is_fetched_with_its_leader_epoch_and_metadata(shard: Any) -> None:
    """OffsetFetch returns them for the topic, and for all offsets of the group."""
    request = OffsetCommitRequest(group_id="g", topics=[stored(7)])
    answer = shard.apply(shard.machine.commits.commit(request, 10, shard.now))
    (topic,) = answer.topics
    assert (topic.name, topic.topic_id) == ("t", UUID(int=1))
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(3, ErrorCode.NONE)]
    (record,) = shard.log
    assert (record.value.commit_timestamp, record.value.expire_timestamp) == (START_MS, -1)
    assert record.value.topic_id == UUID(int=1)
    named = [OffsetFetchRequestTopics(name="t", topic_id=UUID(int=1), partition_indexes=[3])]
    for topics in (named, None):
        asked = OffsetFetchRequestGroup(group_id="g", topics=topics)
        group = shard.apply(shard.machine.commits.fetch(asked, require_stable=True))
        (found,) = group.topics
        assert (group.group_id, group.error_code, found.name) == ("g", ErrorCode.NONE, "t")
        assert found.topic_id == (UUID(int=0) if topics is None else UUID(int=1))
        (part,) = found.partitions
        assert (part.partition_index, part.committed_offset, part.error_code) == (3, 7, ErrorCode.NONE)
        assert (part.committed_leader_epoch, part.metadata) == (2, "here")


def test_an_unstable_offset_is_answered_with_none(shard: Any) -> None:
    shard.apply(shard.machine.commits.commit(OffsetCommitRequest(group_id="g", topics=[stored(7)]), 10, shard.now))
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    shard.machine.replay(OffsetRecord(key, OffsetCommitValue(offset=9), producer_id=5), 100)
    for topics in ([OffsetFetchRequestTopics(name="t", partition_indexes=[3])], None):
        asked = OffsetFetchRequestGroup(group_id="g", topics=topics)
        for stable, expected in (
            (True, (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)),
            (False, (7, 2, "here", ErrorCode.NONE)),
        ):
            answer = shard.apply(shard.machine.commits.fetch(asked, stable))
            (part,) = answer.topics[0].partitions
            found = (part.committed_offset, part.committed_leader_epoch, part.metadata, part.error_code)
            assert (part.partition_index, found) == (3, expected)


def test_each_group_of_a_deletion_is_answered_once(shard: Any) -> None:
    shard.commit(1)
    shard.stable(1, group="busy")
    results = shard.apply(shard.machine.commits.delete_groups(["unknown", "busy", "g", "unknown", "g"]))
    assert [(each.group_id, each.error_code, each.error_message) for each in results] == [
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND, "Group unknown not found."),
        ("busy", ErrorCode.NON_EMPTY_GROUP, "The group busy is not empty."),
        ("g", ErrorCode.NONE, None),
    ]
    assert (shard.committed(), sorted(shard.machine.groups.ids())) == (-1, ["busy"])


@pytest.mark.parametrize("by_group", [True, False])
def test_pending_offsets_of_a_transaction_are_deleted_too(shard: Any, by_group: bool) -> None:
    """An offset of an open transaction is deleted with its group, or by itself: the marker would bring it back."""
    shard.commit(1)
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    shard.machine.replay(OffsetRecord(key, OffsetCommitValue(offset=9), producer_id=5), 100)
    codes = [delete_group(shard)] if by_group else [delete_offset(shard, partition=each) for each in (0, 1, 2)]
    assert set(codes) == {ErrorCode.NONE}
    shard.machine.replay(TransactionEndRecord(5, committed=True), 101)
    assert [shard.committed(partition=each) for each in (0, 1)] == [-1, -1]
    assert [(each.key.partition, each.value) for each in shard.log[1:] if isinstance(each, OffsetRecord)] == [
        (0, None),
        (1, None),
    ]


def test_each_partition_of_an_offset_deletion_is_answered_in_order(shard: Any) -> None:
    (member,), generation_id = shard.stable(1, protocols=[("range", subscription("t"))])
    shard.commit(1, member_id=member, generation_id=generation_id, topic="old", partition=4)
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in (4, 2)]
        )
        for name in ("old", "t")
    ]
    answer = shard.apply(shard.machine.commits.delete_offsets(OffsetDeleteRequest(group_id="g", topics=topics)))
    assert answer.error_code == ErrorCode.NONE
    assert [(each.name, [(p.partition_index, p.error_code) for p in each.partitions]) for each in answer.topics] == [
        ("old", [(4, 0), (2, 0)]),
        ("t", [(4, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC), (2, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]),
    ]
    assert shard.committed(topic="old", partition=4) == -1
