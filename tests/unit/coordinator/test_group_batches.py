"""The records of __consumer_offsets, byte for byte as Kafka writes them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.steps import all_steps, next_step
from odradek.coordinator.batches import decode_batches, encode_batches
from odradek.coordinator.group.classic.group import Moment
from odradek.coordinator.group.records import (
    GROUP_RECORDS,
    GroupRecord,
    OffsetRecord,
    TransactionEndRecord,
    decode_record,
    encode_record,
    group_tombstone,
    offset_tombstone,
)
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.record.builder import build_batch
from odradek.record.control import transaction_marker
from odradek.record.record import Record
from tests.unit.coordinator.conftest import VirtualShard

NOW = Moment(1, 1)

# The codec knows records of many types, and no type that they share.
RECORDS: Any = GROUP_RECORDS


def commit(offset: int, *, expire_ms: int = -1, metadata: str = "m") -> OffsetRecord:
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=7 if expire_ms == -1 else -1,  # version 1, which carries an expiry, has no leader epoch
        metadata=metadata,
        commit_timestamp=5,
        expire_timestamp=expire_ms,
    )
    return OffsetRecord(OffsetCommitKey(group="g", topic="t", partition=3), value)


def test_a_commit_has_kafkas_bytes() -> None:
    key, value = encode_record(commit(258))
    assert key == bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert value == bytes.fromhex("0004 0000000000000102 00000007 02 6d 0000000000000005 00")


def test_a_commit_with_its_own_expiry_is_written_in_version_1() -> None:
    _, value = encode_record(commit(1, expire_ms=9))
    assert value == bytes.fromhex("0001 0000000000000001 0001 6d 0000000000000005 0000000000000009")


def test_a_generation_has_kafkas_bytes() -> None:
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="/h", rebalance_timeout=1, session_timeout=2, subscription=b"s",
        assignment=b"a",
    )  # fmt: skip
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        current_state_timestamp=6,
        members=[member],
    )
    key_bytes, value_bytes = encode_record(GroupRecord(GroupMetadataKey(group="g"), value))
    assert key_bytes == bytes.fromhex("0002 0001 67")
    assert value_bytes == bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000004 0005 72616e6765 0001 6d 0000000000000006 00000001"
        "0001 6d ffff 0001 63 0002 2f68 00000001 00000002 00000001 73 00000001 61"
    )


def test_records_come_back_from_their_batches() -> None:
    records = [commit(1), group_tombstone("g"), offset_tombstone("g", "t", 1), commit(2, expire_ms=5)]
    (batch,) = all_steps(encode_batches(RECORDS, records, atomic=True, max_batch_bytes=10_000, now_ms=3))
    assert decode_batches(RECORDS, batch) == (list(enumerate(records)), 4)


def test_non_atomic_writes_are_split_into_batches() -> None:
    records = [commit(offset, metadata="x" * 100) for offset in range(50)]
    batches = all_steps(encode_batches(RECORDS, records, atomic=False, max_batch_bytes=1000, now_ms=3))
    assert len(batches) > 5
    assert all(len(batch) <= 1000 for batch in batches)
    assert [record for batch in batches for _, record in decode_batches(RECORDS, batch)[0]] == records


@pytest.mark.parametrize(("group_bytes", "count"), [(1, 3), (100, 6), (400, 30), (800, 30)])
def test_keys_count_for_the_size_of_a_batch(group_bytes: int, count: int) -> None:
    records = [
        OffsetRecord(OffsetCommitKey(group="g" * group_bytes, topic="t", partition=number), commit(1).value)
        for number in range(30)
    ]
    batches = all_steps(encode_batches(RECORDS, records, atomic=False, max_batch_bytes=1000, now_ms=3))
    assert all(len(batch) <= 1000 for batch in batches)
    assert len(batches) == count, "a batch takes as many as fit"
    assert [record for batch in batches for _, record in decode_batches(RECORDS, batch)[0]] == records
    large = OffsetRecord(OffsetCommitKey(group="g" * 1000, topic="t", partition=0), None)
    with pytest.raises(ApiError) as caught:
        all_steps(encode_batches(RECORDS, [large], atomic=False, max_batch_bytes=1000, now_ms=3))
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_many_records_are_encoded_in_steps() -> None:
    steps = encode_batches(RECORDS, [commit(1)] * 2500, atomic=False, max_batch_bytes=1_000_000, now_ms=3)
    assert [next_step(steps) is None for _ in range(3)] == [True, True, False]


def test_records_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ApiError) as caught:
        all_steps(
            encode_batches(RECORDS, [commit(1, metadata="x" * 600)] * 2, atomic=True, max_batch_bytes=1000, now_ms=3)
        )
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    with pytest.raises(ApiError) as caught:
        all_steps(
            encode_batches(RECORDS, [commit(1, metadata="x" * 1001)], atomic=False, max_batch_bytes=1000, now_ms=3)
        )
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_transactional_commits_and_their_markers_are_read() -> None:
    key, value = encode_record(commit(9))
    pending = build_batch([Record(key, value, timestamp_ms=1)], producer_id=5, producer_epoch=0, transactional=True)
    end = transaction_marker(commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)
    shard = VirtualShard()
    for batch, offset in ((pending, 0), (end, 1)):
        ((_, record),), _ = decode_batches(RECORDS, batch)
        shard.machine.replay(record, offset)
        assert shard.machine.offsets.is_unstable("g", "t", 3) is (offset == 0)
    assert shard.committed(partition=3) == 9
    assert decode_batches(RECORDS, end)[0] == [(0, TransactionEndRecord(5, committed=True, producer_epoch=0))]


def test_legacy_commits_of_old_brokers_are_read() -> None:
    key = bytes.fromhex("0000 0001 67 0001 74 00000003")
    value = bytes.fromhex("0000 0000000000000102 0001 6d 0000000000000005")
    record = decode_record(key, value, -1)
    assert isinstance(record, OffsetRecord)
    assert record.value is not None
    assert (record.key.group, record.key.partition, record.value.offset) == ("g", 3, 258)
    assert record.value.topic_id == UUID(int=0)


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x01\x00\x09g", b"\x00\x02\xff\xff", None])
def test_a_record_that_no_one_can_read_is_left_out(key: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    good_key, good_value = encode_record(commit(1))
    batch = build_batch([Record(key, b"", timestamp_ms=1), Record(good_key, good_value, timestamp_ms=1)])
    assert [offset for offset, _ in decode_batches(RECORDS, batch)[0]] == [1]
    assert "skipped" in caplog.text


def test_records_of_other_protocols_are_passed_over_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    batch = build_batch([Record(b"\x00\x0a\x00\x01g", b"\x00\x00\x00\x00\x00\x01", timestamp_ms=1)])
    assert decode_batches(RECORDS, batch) == ([], 1)
    assert not caplog.text
