"""Offsets inside transactions, in one shard: state that is ahead of the log, and late requests."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.consumer.heartbeats import HeartbeatCaller
from odradek.coordinator.group.outcome import Outcome
from odradek.coordinator.group.records import GROUP_RECORDS, OffsetRecord, TransactionEndRecord
from odradek.log.producer_state import NOT_REQUIRED, ProducerState, Verification
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.record.batch import BatchHeader
from odradek.record.control import ControlType, transaction_marker
from odradek.statemachine.machine import Result
from tests.unit.coordinator.conftest import VirtualShard

PRODUCER = 5
NO_ID = UUID(int=0)


class Offsets:
    """A shard with group `g`, and the producer state of its log.

    The log gets the records of an iteration of the event loop at its end: here never, unless `marker_in_log` is set.
    """

    def __init__(self) -> None:
        self.shard = VirtualShard()
        self.producers = ProducerState()

    def commit(
        self,
        offset: int,
        *,
        epoch: int = 0,
        verification: Verification | None = None,
        topic_id: UUID = NO_ID,
        **member: Any,
    ) -> str:
        wanted = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topics = [TxnOffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[wanted])]
        try:
            self.commit_all(topics, epoch=epoch, verification=verification, **member)
        except ApiError as error:
            return error.code.name
        return "NONE"

    def commit_all(
        self,
        topics: list[TxnOffsetCommitRequestTopic],
        *,
        epoch: int = 0,
        verification: Verification | None = None,
        **member: Any,
    ) -> Any:
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=PRODUCER,
            producer_epoch=epoch,
            topics=topics,
            **member,
        )
        commits = self.shard.machine.commits
        return self.shard.apply(commits.commit_in_transaction(request, self.producers, verification, self.shard.now))

    def verified(self, epoch: int = 0, *, supports_epoch_bump: bool = True) -> Verification:
        return self.producers.begin_verification(PRODUCER, epoch, supports_epoch_bump=supports_epoch_bump)

    def end(self, *, commit: bool = True, epoch: int = 1, version: int = 2, coordinator_epoch: int = 0) -> str:
        end = TransactionEndRecord(PRODUCER, commit, epoch, coordinator_epoch)
        try:
            written = self.shard.apply(self.shard.machine.commits.end_transaction(end, version, self.producers))
        except ApiError as error:
            return error.code.name
        return "written" if written else "there already"

    def marker_in_log(self, epoch: int) -> None:
        marker = transaction_marker(
            commit=True, producer_id=PRODUCER, producer_epoch=epoch, coordinator_epoch=0, timestamp_ms=1
        )
        self.producers.end_transaction(BatchHeader.read(marker), ControlType.COMMIT, 0, 0)


@pytest.fixture
def offsets() -> Offsets:
    return Offsets()


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_with_the_marker(offsets: Offsets, commit: bool) -> None:
    assert offsets.commit(7) == "INVALID_TXN_STATE"
    assert offsets.commit(7, verification=offsets.verified()) == "NONE"
    assert offsets.commit(8) == "NONE", "it is open here"
    assert offsets.shard.committed() == -1
    assert offsets.end(commit=commit) == "written"
    assert offsets.shard.committed() == (8 if commit else -1)


def test_each_partition_of_a_commit_is_answered(offsets: Offsets) -> None:
    """One whose metadata is too large is refused, and the others are stored."""
    long = offsets.shard.machine.commits._config.offset_metadata_max_bytes
    topics = [
        TxnOffsetCommitRequestTopic(
            name=name,
            topic_id=UUID(int=number),
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=7, committed_metadata="m" * size
                )
                for index, size in ((0, long), (3, long + 1))
            ],
        )
        for number, name in enumerate(("t", "u"), 1)
    ]
    answer = offsets.commit_all(topics, verification=offsets.verified())
    answered = [(part.partition_index, part.error_code) for topic in answer.topics for part in topic.partitions]
    assert answered == [(0, ErrorCode.NONE), (3, ErrorCode.OFFSET_METADATA_TOO_LARGE)] * 2
    assert [(topic.name, topic.topic_id.int) for topic in answer.topics] == [("t", 1), ("u", 2)]
    assert offsets.end() == "written"
    assert sorted(offsets.shard.machine.offsets.of_group("g")) == [("t", 0), ("u", 0)]


def test_a_commit_in_the_turn_of_its_marker_is_late(offsets: Offsets) -> None:
    verification = offsets.verified()
    assert offsets.commit(7, verification=verification) == "NONE"
    assert offsets.end() == "written", "though the log does not know of the commit yet"
    assert offsets.commit(8, verification=verification) == "INVALID_TXN_STATE"
    assert offsets.commit(8) == "INVALID_TXN_STATE"
    assert not offsets.shard.machine.offsets.pending_of_group("g")


def test_a_marker_before_what_was_verified_makes_it_worthless(offsets: Offsets) -> None:
    verification = offsets.verified()
    assert offsets.end() == "written"
    assert offsets.commit(7, verification=verification) == "INVALID_TXN_STATE"


def test_a_commit_during_an_end_is_answered_after_its_marker(offsets: Offsets) -> None:
    """Asked under the epoch that the marker brings: it ended the transaction before, as the log has it too."""
    offsets.commit(7, verification=offsets.verified())
    following, by_hand = offsets.verified(1), offsets.verified(1, supports_epoch_bump=False)
    assert following is not by_hand
    following = offsets.verified(1)
    assert offsets.end(epoch=1) == "written"
    offsets.marker_in_log(1)
    assert offsets.commit(9, epoch=1, verification=by_hand) == "INVALID_TXN_STATE"
    assert offsets.commit(9, epoch=1, verification=following) == "NONE"


def test_a_marker_that_comes_again_ends_no_later_transaction(offsets: Offsets) -> None:
    offsets.commit(7, verification=offsets.verified())
    assert offsets.end(epoch=1) == "written"
    offsets.marker_in_log(1)
    assert offsets.end(epoch=1) == "there already"
    assert offsets.commit(9, epoch=1, verification=offsets.verified(1)) == "NONE"
    assert offsets.end(epoch=1) == "INVALID_PRODUCER_EPOCH"
    assert offsets.end(epoch=0, version=0) == "INVALID_PRODUCER_EPOCH"
    assert offsets.shard.committed() == 7
    assert offsets.end(epoch=2) == "written"
    assert offsets.shard.committed() == 9


def test_an_older_epoch_is_refused_whatever_was_verified(offsets: Offsets) -> None:
    offsets.marker_in_log(3)
    assert offsets.commit(7, epoch=2, verification=NOT_REQUIRED) == "INVALID_PRODUCER_EPOCH"
    assert offsets.commit(7, epoch=3, verification=NOT_REQUIRED) == "NONE"


def test_members_are_checked_where_they_are_named(offsets: Offsets) -> None:
    ticket = offsets.shard.begin_join("", version=3)
    offsets.shard.advance(10_000)
    joined = offsets.shard.answers[ticket]
    verification = offsets.verified()
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
    assert offsets.commit(1, verification=verification, **member) == "NONE"
    stale = member | {"generation_id_or_member_epoch": joined.generation_id - 1}
    assert offsets.commit(2, verification=verification, **stale) == "ILLEGAL_GENERATION"
    foreign = member | {"member_id": "unknown"}
    assert offsets.commit(2, verification=verification, **foreign) == "UNKNOWN_MEMBER_ID"
    assert offsets.commit(2, verification=verification) == "NONE", "older producers name no member"


def test_a_commit_in_a_transaction_keeps_the_session_alive(offsets: Offsets) -> None:
    ticket = offsets.shard.begin_join("", version=3, session_ms=10_000)
    offsets.shard.advance(10_000)
    joined = offsets.shard.answers[ticket]
    offsets.shard.sync(joined.member_id, joined.generation_id, {})
    verification = offsets.verified()
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
    for offset in range(4):
        offsets.shard.advance(9_000)
        assert offsets.commit(offset, verification=verification, **member) == "NONE"
    offsets.shard.advance(10_000)
    assert offsets.commit(5, verification=verification, **member) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize(
    ("generation_id", "code"), [(-1, "NONE"), (0, "ILLEGAL_GENERATION"), (1, "ILLEGAL_GENERATION")]
)
def test_a_group_that_is_not_known_has_no_generation(offsets: Offsets, generation_id: int, code: str) -> None:
    verification = offsets.verified()
    assert offsets.commit(5, verification=verification, generation_id_or_member_epoch=generation_id) == code


def test_members_of_a_consumer_group_commit_in_their_epoch(offsets: Offsets) -> None:
    """One that was given up copies on for a while: its successor copies the same, and both would count."""
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000)
    request.topic_partitions, request.subscribed_topic_names = [], ["t"]
    caller = HeartbeatCaller("c", "/h", 1, "")
    joined = offsets.shard.apply(offsets.shard.machine.consumer_heartbeat(request, caller, offsets.shard.now))
    verification = offsets.verified()
    for more, code in ((0, "NONE"), (-1, "ILLEGAL_GENERATION"), (1, "ILLEGAL_GENERATION")):
        member: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": joined.member_epoch + more}
        assert offsets.commit(1, verification=verification, **member) == code
    foreign: dict[str, Any] = {"member_id": "unknown", "generation_id_or_member_epoch": 1}
    assert offsets.commit(2, verification=verification, **foreign) == "UNKNOWN_MEMBER_ID"


def test_a_shard_that_is_loaded_holds_back_what_was_open(offsets: Offsets) -> None:
    offsets.commit(7, verification=offsets.verified())
    again = Offsets()
    for record in offsets.shard.log:
        encoded = GROUP_RECORDS.encode(record)
        assert (encoded.producer_id, encoded.producer_epoch) == (PRODUCER, 0)
        again.shard.machine.replay(record, 0)
    assert again.shard.machine.offsets.open_epoch(PRODUCER) == 0
    assert again.end() == "written" and again.shard.committed() == 7


OLD, NEW = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize("topic_id", [OLD, NO_ID], ids=["by its id", "by its name"])
@pytest.mark.parametrize("before", [None, 3], ids=["the first", "one more"])
def test_pending_offsets_of_a_deleted_topic_are_dropped(offsets: Offsets, topic_id: UUID, before: int | None) -> None:
    """KAFKA-16168: the marker brought offsets of the topic back, under which a namesake would have been read."""
    if before is not None:
        offsets.shard.commit(before)
    offsets.commit(7, verification=offsets.verified(), topic_id=topic_id)
    offsets.shard.apply(offsets.shard.machine.commits.drop_topics({"t": OLD}))
    assert not offsets.shard.machine.offsets.pending_of_group("g")
    assert offsets.shard.machine.offsets.open_epoch(PRODUCER) is None
    offsets.end()
    assert offsets.shard.committed() == -1
    assert offsets.shard.restarted().committed() == -1


def test_pending_offsets_of_a_recreated_topic_stay(offsets: Offsets) -> None:
    offsets.commit(7, verification=offsets.verified(), topic_id=NEW)
    offsets.shard.apply(offsets.shard.machine.commits.drop_topics({"t": OLD, "another": NEW}))
    assert offsets.end() == "written"
    assert offsets.shard.committed() == 7


def test_a_namesakes_commit_outlives_what_was_held_back_before_it(offsets: Offsets) -> None:
    offsets.commit(7, verification=offsets.verified(), topic_id=OLD)
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    offsets.shard.apply(Result([OffsetRecord(key, OffsetCommitValue(offset=2, topic_id=NEW))], Outcome(None)))
    offsets.shard.apply(offsets.shard.machine.commits.drop_topics({"t": OLD}))
    offsets.end()
    assert offsets.shard.committed() == 2
