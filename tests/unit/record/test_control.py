"""Control records: markers that end transactions, and those of the metadata log."""

from __future__ import annotations

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.codec import decode
from odradek.protocol.messages.leader_change_message import LeaderChangeMessage, Voter
from odradek.record.batch import BatchHeader
from odradek.record.control import (
    ControlType,
    control_batch,
    control_key,
    control_type,
    marker_coordinator_epoch,
    marker_value,
    transaction_marker,
)
from odradek.record.reader import read_records
from odradek.record.record import Record

# Kafka's numbers (ControlRecordType).
KINDS = {
    "ABORT": 0,
    "COMMIT": 1,
    "LEADER_CHANGE": 2,
    "SNAPSHOT_HEADER": 3,
    "SNAPSHOT_FOOTER": 4,
    "KRAFT_VERSION": 5,
    "KRAFT_VOTERS": 6,
}


@pytest.mark.parametrize(("name", "number"), KINDS.items())
def test_a_key_holds_a_version_and_a_type(name: str, number: int) -> None:
    kind = ControlType[name]
    assert control_key(kind) == bytes((0, 0, 0, number))
    assert control_type(Record(bytes((0, 0, 0, number)))) is kind
    assert control_type(Record(bytes((0, 9, 0, number, 77)))) is kind, "a later version may have more"


def test_a_type_of_later_releases_is_unknown() -> None:
    assert control_type(Record(bytes((0, 0, 0, 7)))) is None
    assert control_type(Record(bytes((0, 0, 0xFF, 0xFF)))) is None


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_control_record_has_a_key(key: bytes | None) -> None:
    with pytest.raises(ApiError, match="without a control key") as refused:
        control_type(Record(key))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_marker_says_under_which_epoch_it_was_written() -> None:
    assert marker_value(0x01020304) == bytes((0, 0, 1, 2, 3, 4))
    assert marker_coordinator_epoch(Record(value=bytes((0, 0, 1, 2, 3, 4)))) == 0x01020304
    assert marker_coordinator_epoch(Record(value=bytes((0, 1, 0, 0, 0, 9, 77)))) == 9


@pytest.mark.parametrize("value", [None, b"", bytes(5)])
def test_a_marker_has_a_value(value: bytes | None) -> None:
    with pytest.raises(ApiError, match="without a value") as refused:
        marker_coordinator_epoch(Record(value=value))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(("commit", "kind"), [(True, 1), (False, 0)])
def test_a_marker_is_a_transactional_control_batch_without_a_sequence(commit: bool, kind: int) -> None:
    batch = transaction_marker(commit=commit, producer_id=9, producer_epoch=4, coordinator_epoch=6, timestamp_ms=1000)
    header = BatchHeader.read(batch)
    assert header.attributes == 0x30
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 4, -1)
    assert read_records(batch) == [Record(bytes((0, 0, 0, kind)), bytes((0, 0, 0, 0, 0, 6)), (), 1000, 0)]


def test_a_batch_of_the_metadata_log_holds_its_messages() -> None:
    first = LeaderChangeMessage(version=0, leader_id=1, voters=[Voter(voter_id=1)], granting_voters=[])
    second = LeaderChangeMessage(version=0, leader_id=2, voters=[], granting_voters=[])
    batch = control_batch(
        [(ControlType.LEADER_CHANGE, first), (ControlType.SNAPSHOT_HEADER, second)],
        base_offset=30,
        leader_epoch=5,
        timestamp_ms=1000,
    )
    header = BatchHeader.read(batch)
    assert (header.attributes, header.producer_id, header.partition_leader_epoch) == (0x20, -1, 5)
    records = read_records(batch)
    assert [control_type(each) for each in records] == [ControlType.LEADER_CHANGE, ControlType.SNAPSHOT_HEADER]
    assert [(each.offset, each.timestamp_ms) for each in records] == [(30, 1000), (31, 1000)]
    assert [decode(LeaderChangeMessage, each.value or b"", 0) for each in records] == [first, second]
