"""Records of the logs are framed as Kafka frames them."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.common.errors import ProtocolError
from odradek.protocol.declare import Message
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.share_snapshot_key import ShareSnapshotKey
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.messages.transaction_log_key import TransactionLogKey
from odradek.protocol.record_types import (
    CoordinatorKind,
    coordinator_type_id,
    decode_coordinator_key,
    decode_coordinator_value,
    decode_metadata_record,
    encode_coordinator_key,
    encode_coordinator_value,
    encode_metadata_record,
)
from tests.protocol.values import all_messages, sample


def test_a_metadata_record_has_frame_version_type_and_version_before_it() -> None:
    record = TopicRecord(name="foo", topic_id=UUID(int=5))
    raw = encode_metadata_record(record, 0)
    assert raw == b"\x01\x02\x00" + b"\x04foo" + UUID(int=5).bytes + b"\x00"
    assert decode_metadata_record(memoryview(raw)) == (record, 0)


def test_a_coordinator_record_has_type_and_version_before_it() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    raw = encode_coordinator_key(key)
    assert raw == b"\x00\x01" + b"\x00\x01g\x00\x01t\x00\x00\x00\x01"
    assert coordinator_type_id(raw) == 1
    assert decode_coordinator_key(CoordinatorKind.GROUP, raw) == key
    value = OffsetCommitValue(offset=9, metadata="m", commit_timestamp=4)
    stored = encode_coordinator_value(value, 3)
    assert stored[:2] == b"\x00\x03"
    assert decode_coordinator_value(CoordinatorKind.GROUP, 1, stored) == (value, 3)


def test_each_coordinator_numbers_its_records_by_itself() -> None:
    transaction, share = TransactionLogKey(transactional_id="x"), ShareSnapshotKey(group_id="x")
    assert decode_coordinator_key(CoordinatorKind.TRANSACTION, encode_coordinator_key(transaction)) == transaction
    assert decode_coordinator_key(CoordinatorKind.SHARE, encode_coordinator_key(share)) == share
    group = GroupMetadataKey(group="x")
    assert decode_coordinator_key(CoordinatorKind.GROUP, encode_coordinator_key(group)) == group


@pytest.mark.parametrize("cls", [cls for cls in all_messages() if cls.KIND == "metadata"], ids=lambda cls: cls.__name__)
def test_every_metadata_record_comes_back(cls: type[Message]) -> None:
    if "remote_log" in cls.__module__ or "remote_partition" in cls.__module__:
        return  # tiered storage numbers its own records
    for version in cls.VERSIONS.versions():
        record = sample(cls, version, "random")
        assert decode_metadata_record(encode_metadata_record(record, version)) == (record, version)


@pytest.mark.parametrize("raw", [b"", b"\x01", b"\x02\x02\x00", b"\x01\x63\x00", b"\x01\x02\x63", b"\x01\x02\x00"])
def test_a_metadata_record_that_is_malformed_or_unknown_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_metadata_record(raw)


def test_a_coordinator_record_that_is_malformed_or_unknown_is_refused() -> None:
    for raw in (b"", b"\x00", b"\x03\xe7", b"\x00\x01", b"\xff\xff"):
        with pytest.raises(ProtocolError):
            decode_coordinator_key(CoordinatorKind.GROUP, raw)
    for raw in (b"", b"\x00", b"\x00\x63", b"\xff\xff", b"\x00\x03"):
        with pytest.raises(ProtocolError):
            decode_coordinator_value(CoordinatorKind.GROUP, 1, raw)


def test_a_message_of_another_kind_is_our_bug() -> None:
    for encode in (encode_metadata_record, encode_coordinator_key, encode_coordinator_value):
        with pytest.raises(ValueError, match="FetchRequest"):
            encode(FetchRequest(), 4)
