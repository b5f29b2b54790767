"""The bytes of peers: frames, requests, responses, and the records of internal logs."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from odradek.common.errors import ApiError, ProtocolError
from odradek.coordinator.group.classic.subscription import subscribed_topics
from odradek.protocol.apis import API, ApiKey, message_class
from odradek.protocol.codec import decode, encode
from odradek.protocol.declare import Message
from odradek.protocol.framing import (
    FrameReader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
    peek_request,
)
from odradek.protocol.messages import index
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
from odradek.server.network.request_reader import (
    FIRST_BUFFER_BYTES,
    MAX_USED_BYTES,
    BufferPool,
    RequestReader,
    new_scratch,
)
from tests.fuzz.engine import Target
from tests.protocol.values import make

MAX_FRAME_BYTES = 400_000
STYLES = ("default", "low", "high", "random", "random", "random", "plain")
KEYS = sorted(API)
RECORD_KINDS = ("metadata", *(kind.value for kind in CoordinatorKind))
_SCRATCH = new_scratch()


# -- frames ---------------------------------------------------------------------------------------------------------


def generate_stream(rng: Random) -> bytes:
    """Four bytes that seed the cuts, then frames: mostly small ones, some beyond the scratch buffer."""
    frames = [rng.randbytes(4)]
    for _ in range(rng.randrange(8)):
        size = rng.choice((0, 1, 3, 8, 40, 300, 300, 70_000 if rng.random() < 0.2 else 9))
        if rng.random() < 0.02:
            size = rng.randrange(300_000, MAX_FRAME_BYTES + 1)
        frames.append(struct.pack(">i", size) + rng.randbytes(size))
    if rng.random() < 0.2:
        frames.append(struct.pack(">i", rng.choice((-1, -(2**31), 2**31 - 1, MAX_FRAME_BYTES + 1, 0x47455420))))
    return b"".join(frames)


def split_plainly(stream: bytes) -> tuple[list[bytes], bool]:
    """The expected (frames, whether a length is wrong) of splitting a stream, by the simplest code."""
    frames: list[bytes] = []
    position = 0
    while len(stream) - position >= 4:
        (length,) = struct.unpack_from(">i", stream, position)
        if not 0 <= length <= MAX_FRAME_BYTES:
            return frames, True
        if len(stream) - position - 4 < length:
            break
        frames.append(stream[position + 4 : position + 4 + length])
        position += 4 + length
    return frames, False


class _Peer:
    """One connection that receives a stream in pieces; keeps its frames as they were handed out."""

    def __init__(self, stream: bytes, used: BufferPool) -> None:
        self.stream = stream
        self.inbound = RequestReader(_SCRATCH, MAX_FRAME_BYTES, used)
        self.sent = 0
        self.got: list[Any] = []
        self.refused = False

    @property
    def done(self) -> bool:
        return self.refused or self.sent == len(self.stream)

    def receive(self, most: int) -> None:
        room = self.inbound.buffer()
        assert len(room) > 0, "a socket must never be read into nothing"
        count = min(len(room), most, len(self.stream) - self.sent)
        room[:count] = self.stream[self.sent : self.sent + count]
        self.sent += count
        try:
            self.got += self.inbound.received(count)
        except ProtocolError:
            self.refused = True
        assert self.inbound.held_bytes <= max(2 * FIRST_BUFFER_BYTES, 2 * self.sent, MAX_USED_BYTES)


def run_stream(data: bytes) -> None:
    rng = Random(data[:4])
    used = BufferPool()
    one, other = _Peer(data[4:], used), _Peer(data[4:], used)
    most = rng.choice((1, 5, 100, 5000, 300_000)) if len(data) < 20_000 else rng.choice((5000, 100_000, 300_000))
    while not (one.done and other.done):
        peer = one if other.done or (not one.done and rng.random() < 0.5) else other
        peer.receive(rng.randint(1, most))
        if peer.got and rng.random() < 0.3 and len(peer.got) > 1:
            # A buffer may be used again once its handler is done with it, and only then.
            peer.got[0] = bytes(peer.got[0])
    expected, wrong = split_plainly(data[4:])
    for peer in (one, other):
        assert peer.refused == wrong, f"refused {peer.refused}, a wrong length is there: {wrong}"
        assert wrong or [bytes(frame) for frame in peer.got] == expected
        assert expected[: len(peer.got)] == [bytes(frame) for frame in peer.got]
    _read_with_client(data[4:], expected, wrong, most, rng)


def _read_with_client(stream: bytes, expected: list[bytes], wrong: bool, most: int, rng: Random) -> None:
    reader, got, position, refused = FrameReader(MAX_FRAME_BYTES), [], 0, False
    try:
        while position < len(stream):
            count = rng.randint(1, most)
            reader.feed(stream[position : position + count])
            position += count
            while (frame := reader.next_frame()) is not None:
                got.append(frame)
    except ProtocolError:
        refused = True
    assert refused == wrong
    assert [bytes(frame) for frame in got] == expected


# -- requests and responses -----------------------------------------------------------------------------------------


def _versions_of(key: int) -> range:
    spec = API[ApiKey(key)]
    return range(max(spec.min_version, 0), max(spec.max_version, 0) + 1)


def _message(cls: type[Message], version: int, rng: Random) -> Any:
    return make(cls, version, version in cls.FLEXIBLE, rng.choice(STYLES), rng)


def generate_request(rng: Random) -> bytes:
    key = rng.choice(KEYS)
    version = rng.choice(_versions_of(key))
    message = _message(API[key].request, version, rng)
    pieces = encode_request(key, version, rng.randrange(2**31), rng.choice((None, "", "client")), message)
    return b"".join(bytes(piece) for piece in pieces)[4:]


def run_request(data: bytes) -> None:
    try:
        key, version, _ = peek_request(data)
        header, body = decode_request_header(data)
        assert (header.request_api_key, header.request_api_version) == (key, version)
        if version in API[ApiKey(key)].request.VERSIONS:
            _again(API[ApiKey(key)].request, data, version, body)
    except (ProtocolError, ApiError):
        return


def generate_response(rng: Random) -> bytes:
    key = rng.choice(KEYS)
    version = rng.choice(_versions_of(key))
    pieces = encode_response(key, version, rng.randrange(2**31), _message(API[key].response, version, rng))
    return struct.pack(">hh", key, version) + b"".join(bytes(piece) for piece in pieces)[4:]


def run_response(data: bytes) -> None:
    if len(data) < 4:
        return
    key, version = struct.unpack_from(">hh", data)
    if key not in API or version not in API[ApiKey(key)].response.VERSIONS:
        return
    try:
        _, body = decode_response_header(key, version, data[4:])
        _again(API[ApiKey(key)].response, data[4:], version, body)
    except (ProtocolError, ApiError):
        return


def _again(cls: type[Message], data: bytes, version: int, offset: int) -> None:
    """A decoded message can be encoded, and means the same when it is decoded again. Raises ProtocolError."""
    message = decode(cls, data, version, offset)
    once = encode(message, version)
    assert len(once) <= 2 * len(data) + 64, "what is written is about what was read"
    assert encode(decode(cls, once, version), version) == once


# -- records of internal logs ---------------------------------------------------------------------------------------


def generate_stored(rng: Random) -> bytes:
    """A byte that says which log, a length, a key, a value; the metadata log has values only."""
    kind = rng.randrange(len(RECORD_KINDS) + 1)
    if kind == len(RECORD_KINDS):
        cls = message_class("consumer_protocol_subscription")
        version = rng.choice(list(cls.VERSIONS.versions()))
        return bytes((kind, 0)) + struct.pack(">h", version) + encode(_message(cls, version, rng), version)
    if kind == 0:
        cls = message_class(rng.choice(sorted(index.METADATA_RECORDS.values())))
        version = rng.choice(list(cls.VERSIONS.versions()))
        return bytes((0, 0)) + encode_metadata_record(_message(cls, version, rng), version)
    name = RECORD_KINDS[kind].upper()
    keys, values = getattr(index, f"{name}_KEYS"), getattr(index, f"{name}_VALUES")
    type_id = rng.choice(sorted(keys))
    key = encode_coordinator_key(_message(message_class(keys[type_id]), 0, rng))
    cls = message_class(values[type_id])
    version = rng.choice(list(cls.VERSIONS.versions()))
    value = encode_coordinator_value(_message(cls, version, rng), version)
    return bytes((kind, len(key) & 0xFF)) + key + value


def run_stored(data: bytes) -> None:
    if len(data) < 2:
        return
    kind, body = data[0] % (len(RECORD_KINDS) + 1), data[2:]
    try:
        if kind == len(RECORD_KINDS):
            subscribed_topics([body, body])
        elif kind == 0:
            record, version = decode_metadata_record(body)
            assert decode_metadata_record(encode_metadata_record(record, version))[1] == version
        else:
            log, key = CoordinatorKind(RECORD_KINDS[kind]), body[: data[1]]
            decode_coordinator_key(log, key)
            decode_coordinator_value(log, coordinator_type_id(key), body[data[1] :])
    except (ProtocolError, ApiError):
        return


TARGETS = (
    Target("frames", generate_stream, run_stream, (b"\x00\x00\x00\x00", b"GET ", b"\x16\x03\x01\x02")),
    Target("requests", generate_request, run_request, (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08", b"\x7f\xff")),
    Target("responses", generate_response, run_response, (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08")),
    Target("stored_records", generate_stored, run_stored, (b"\xff\xff\xff\xff\x0f", b"\x00\x01")),
)
