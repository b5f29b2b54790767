"""The guarantees of the codec: round trips, unknown fields are kept, records by reference, values that do not fit."""

from __future__ import annotations

import copy
import dataclasses
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.common.errors import ApiError, ErrorCode, ProtocolError
from odradek.common.steps import all_steps, next_step
from odradek.protocol import layout
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.codec import RecordsChunks, append_in_steps, decode, decode_in_steps, encode, encode_chunks
from odradek.protocol.decoder import compile_decoder
from odradek.protocol.encoder import compile_encoder
from odradek.protocol.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.records_field import received
from tests.protocol.values import all_messages, make


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(all_messages()), st.integers(0, 20), st.sampled_from(("high", "random")), st.integers(0, 1 << 32)
)
def test_encoded_messages_are_decoded(cls: Any, newer: int, style: str, seed: int) -> None:
    version = min(cls.VERSIONS.first + newer, cls.VERSIONS.last)
    message = make(cls, version, version in cls.FLEXIBLE, style, Random(seed))
    data = encode(message, version)
    again = decode(cls, memoryview(bytearray(data)), version)
    assert again == message
    assert encode(again, version) == data


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_in_steps_comes_the_same(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "ELEMENTS_PER_STEP", 2)
    version = cls.VERSIONS.last
    flexible = version in cls.FLEXIBLE
    encoder = compile_encoder(cls, version, flexible, in_steps=True)
    decoder = compile_decoder(cls, version, in_steps=True)
    for style in ("default", "high", "random"):
        message = make(cls, version, flexible, style, Random(7))
        data = encode(message, version)
        encoding = encoder(message, bytearray())
        while (pieces := next_step(encoding)) is None:
            pass
        assert b"".join(map(bytes, pieces[0])) == data
        assert pieces[1] == len(data)
        decoding = decoder(data, memoryview(data), 0, len(data))
        while (decoded := next_step(decoding)) is None:
            pass
        assert decoded == (message, len(data))


def test_a_step_is_so_many_elements() -> None:
    topics = [MetadataRequestTopic(name="x") for _ in range(2 * layout.ELEMENTS_PER_STEP + 1)]
    data = encode(MetadataRequest(topics=topics), 12)
    steps = decode_in_steps(MetadataRequest, data, 12)
    assert next_step(steps) is None
    assert next_step(steps) is None
    assert next_step(steps) == (MetadataRequest(topics=topics), len(data))
    for cut in (1, 2, len(data) // 2, len(data) - 1):
        with pytest.raises(ProtocolError):
            all_steps(decode_in_steps(MetadataRequest, data[:cut], 12))
    out = append_in_steps(bytearray(b"head"), MetadataRequest(topics=topics), 12)
    assert next_step(out) is None
    assert next_step(out) is None
    assert next_step(out) == ([b"head" + data], len(data) + 4)
    with pytest.raises(ValueError, match="cannot be encoded"):
        all_steps(append_in_steps(bytearray(), MetadataRequest(topics=[5]), 12))  # type: ignore[list-item]  # wrong on purpose


@given(st.text(max_size=300), st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=200), st.uuids())
def test_any_text_numbers_and_ids_come_back(text: str, numbers: list[int], topic_id: UUID) -> None:
    partitions = [FetchPartition(partition=number) for number in numbers]
    message = FetchRequest(rack_id=text, topics=[FetchTopic(topic_id=topic_id, partitions=partitions)])
    assert decode(FetchRequest, encode(message, 18), 18) == message


def test_a_value_that_a_version_cannot_carry_is_not_dropped_in_silence() -> None:
    with pytest.raises(ApiError) as refused:
        encode(FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(last_fetched_epoch=3)])]), 11)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(ApiError):
        encode(FetchRequest(replica_state=ReplicaState(replica_id=1)), 14)
    encode(FetchRequest(replica_state=ReplicaState()), 14)


def test_a_value_that_may_be_dropped_is() -> None:
    assert encode(FetchRequest(rack_id="r"), 10) == encode(FetchRequest(), 10)


def test_a_version_that_does_not_exist_is_our_bug() -> None:
    with pytest.raises(ValueError, match="versions 4 to 18"):
        encode(FetchRequest(), 3)
    with pytest.raises(ValueError, match="versions 4 to 18"):
        decode(FetchRequest, b"", 19)


@pytest.mark.parametrize(
    "message",
    [
        FetchRequest(max_wait_ms=1 << 31),
        FetchRequest(rack_id="a" * 32768),
        FetchRequest(rack_id=None),  # type: ignore[arg-type]  # wrong on purpose
        FetchRequest(topics=None),  # type: ignore[arg-type]  # wrong on purpose
        FetchRequest(min_bytes="1"),  # type: ignore[arg-type]  # wrong on purpose
        FetchRequest(unknown_tagged_fields=[(9, b"a"), (9, b"b")]),
        FetchRequest(cluster_id="c", unknown_tagged_fields=[(0, b"a")]),
    ],
)
def test_a_value_that_does_not_fit_is_our_bug(message: FetchRequest) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        encode(message, 18)


def test_tagged_fields_are_written_by_ascending_tag() -> None:
    partition = FetchPartition(high_watermark=5, replica_directory_id=UUID(int=7))
    partition.unknown_tagged_fields = [(9, b"z"), (4, b"y")]
    data = encode(FetchRequest(topics=[FetchTopic(partitions=[partition])]), 18)
    there = data.index(b"\x04\x00\x10" + UUID(int=7).bytes)
    assert data[there:].startswith(
        b"\x04\x00\x10" + UUID(int=7).bytes + b"\x01\x08" + bytes(7) + b"\x05\x04\x01y\x09\x01z"
    )


def test_records_are_a_slice_of_what_was_received() -> None:
    partition = PartitionProduceData(records=b"batch" * 10)
    frame = bytearray(encode(ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])]), 9))
    records = decode(ProduceRequest, frame, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview) and not records.readonly
    records[:5] = b"BATCH"
    assert b"BATCHbatch" in frame


def test_records_are_passed_on_and_not_copied() -> None:
    class Slice:
        def read(self) -> bytes:
            return b"from a file"

    piece, held = Slice(), memoryview(b"in memory")
    partitions = [
        PartitionData(partition_index=0, records=RecordsChunks([piece], 11)),
        PartitionData(partition_index=1, records=held),
        PartitionData(partition_index=2, records=None),
        PartitionData(partition_index=3, records=b""),
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    chunks = encode_chunks(response, 17)
    assert any(chunk is piece for chunk in chunks) and any(chunk is held for chunk in chunks)
    partitions[0].records = b"from a file"
    joined = b"".join(chunk.read() if chunk is piece else chunk for chunk in chunks)
    assert joined == encode(response, 17)
    partitions[0].records = RecordsChunks([piece], 11)
    assert joined == encode(response, 17)
    again = decode(FetchResponse, joined, 17).responses[0].partitions
    assert [p.records if p.records is None else bytes(received(p.records)) for p in again] == [
        b"from a file",
        b"in memory",
        None,
        b"",
    ]


def test_null_in_a_tagged_struct_is_not_its_default() -> None:
    for held in (None, ClassicMemberMetadata(), ClassicMemberMetadata(session_timeout_ms=5)):
        value = ConsumerGroupMemberMetadataValue(classic_member_metadata=held)
        assert decode(ConsumerGroupMemberMetadataValue, encode(value, 0), 0).classic_member_metadata == held


def test_a_message_is_a_dataclass_with_slots() -> None:
    message = FetchRequest(topics=[FetchTopic(topic="t")])
    assert message.replica_state.replica_id == -1
    assert dataclasses.replace(message, max_wait_ms=7).max_wait_ms == 7
    assert copy.deepcopy(message) == message != FetchRequest()
    assert FetchRequest().topics is not FetchRequest().topics
    assert repr(message) == "FetchRequest(topics=[FetchTopic(topic='t')])"
    with pytest.raises(TypeError):
        FetchRequest(no_such_field=1)  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(AttributeError):
        message.no_such_field = 1  # type: ignore[attr-defined]  # wrong on purpose
    with pytest.raises(TypeError):
        hash(message)


def test_the_table_of_apis_is_complete() -> None:
    assert len(API) == 91 and ApiKey.STOP_REPLICA not in API and 999 not in API
    fetch = API[ApiKey.FETCH]
    assert (fetch.request, fetch.response) == (FetchRequest, FetchResponse)
    assert (fetch.min_version, fetch.max_version, fetch.flexible_since) == (4, 18, 12)
    assert [fetch.request_header_version(11), fetch.request_header_version(12)] == [1, 2]
    assert [fetch.response_header_version(11), fetch.response_header_version(12)] == [0, 1]
    assert API[ApiKey.API_VERSIONS].response_header_version(5) == 0
    assert API[ApiKey.INIT_PRODUCER_ID].max_version == 5 and API[ApiKey.INIT_PRODUCER_ID].latest_unstable
    assert API[ApiKey.SASL_HANDSHAKE].flexible_since == -1
    assert API[ApiKey.METADATA].request is MetadataRequest
    assert "controller" in API[ApiKey.VOTE].listeners
