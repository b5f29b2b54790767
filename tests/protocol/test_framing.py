"""Frames cut anywhere come out whole; lengths that lie cost nothing; headers have the right version."""

from __future__ import annotations

import struct
from random import Random

import pytest

from odradek.common.errors import ProtocolError
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import decode
from odradek.protocol.framing import (
    FrameReader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
    peek_request,
)
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse


def test_frames_come_out_as_they_went_in_however_they_are_cut() -> None:
    rng = Random(3)
    frames = [rng.randbytes(rng.choice((0, 1, 30, 4092, 4093, 70_000))) for _ in range(60)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    for most in (1, 7, 1000, 100_000):
        reader, got, at = FrameReader(1 << 20), [], 0
        limit = min(len(stream), 300_000 if most < 100 else len(stream))
        while at < limit:
            count = rng.randint(1, most)
            reader.feed(stream[at : min(at + count, limit)])
            at += count
            while (frame := reader.next_frame()) is not None:
                got.append(frame)
        assert [bytes(frame) for frame in got] == frames[: len(got)]
        assert limit < len(stream) or len(got) == len(frames)


def test_a_large_claim_gets_room_only_as_bytes_arrive() -> None:
    reader = FrameReader(100 << 20)
    reader.feed((90 << 20).to_bytes(4, "big") + bytes(5000))
    assert reader.next_frame() is None
    assert len(reader.get_buffer()) < 20_000


@pytest.mark.parametrize("length", [-1, 1001, 0x47455420, -(1 << 31)])
def test_a_length_beyond_the_limit_is_refused(length: int) -> None:
    reader = FrameReader(1000)
    reader.feed(struct.pack(">i", length))
    with pytest.raises(ProtocolError, match="at most 1000"):
        reader.next_frame()


@pytest.mark.parametrize("version", [0, 8, 9, 13])
def test_a_request_and_its_response_go_there_and_back(version: int) -> None:
    reader = FrameReader(1 << 20)
    for piece in encode_request(ApiKey.METADATA, version, 77, "me", MetadataRequest(topics=[])):
        reader.feed(piece)
    frame = reader.next_frame()
    assert frame is not None and peek_request(frame) == (3, version, 77)
    header, body = decode_request_header(frame)
    assert (header.client_id, header.correlation_id) == ("me", 77)
    assert decode(MetadataRequest, frame, version, body) == MetadataRequest(topics=[])
    for piece in encode_response(ApiKey.METADATA, version, 77, MetadataResponse(controller_id=3)):
        reader.feed(piece)
    answer = reader.next_frame()
    assert answer is not None
    answered, body = decode_response_header(ApiKey.METADATA, version, answer)
    assert answered.correlation_id == 77
    assert decode(MetadataResponse, answer, version, body).topics == []


def test_api_versions_is_answered_with_the_oldest_header() -> None:
    (frame,) = encode_response(ApiKey.API_VERSIONS, 3, 5, ApiVersionsResponse(error_code=35))
    assert frame[:10] == len(frame[4:]).to_bytes(4, "big") + b"\0\0\0\x05\0\x23"


def test_a_header_that_is_short_or_of_no_api_is_refused() -> None:
    for raw in (b"", b"\0\x03\0\0\0\0\0", b"\x03\xe7\0\0\0\0\0\x01\xff\xff", b"\0\x03\0\x09\0\0\0\x01\xff\xff"):
        with pytest.raises(ProtocolError):
            decode_request_header(raw)
