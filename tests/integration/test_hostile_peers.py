"""Peers that mean no harm and do some: other protocols, broken lengths, half-open connections, absurd waits and sizes.

Each gets its right answer or one line in the node's log; everybody else is served.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import ProduceResponse
from tests.conftest import assert_no_traceback
from tests.support.clients.api_calls import batch, fresh_name
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

MEBIBYTE = 2**20
INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
PROMISES = 200
CHIRPS: dict[str, list[bytes]] = {}
# Longer than a busy machine lets a process stand still.
# The processor seconds that a request of another client may cost the node, with all work that a hostile peer has left.
CHIRP_CPU_S = 5
# Each of those whose pace matters stands a chance in each of them, and none where the node closes what is not idle.
TURNS = 5


@pytest.fixture(scope="module")
def topic(node: Node) -> str:
    name = fresh_name("hostile")
    create_topic(node.bootstrap, name)
    return name


@pytest.fixture(scope="module")
def canary(node: Node) -> Iterator[str]:
    """A topic that somebody else writes to after each test; at the end a stock client finds all of it."""
    name = fresh_name("canary")
    create_topic(node.bootstrap, name)
    written: list[bytes] = []
    CHIRPS[name] = written
    yield name
    assert written and [message.value() for message in read_all(node.bootstrap, name)] == written


@pytest.fixture(autouse=True)
def everybody_else_is_served(node: Node, canary: str) -> Iterator[None]:
    """Check after each test that the node accepts another client's record at once, and that its log has no stack."""
    yield
    chirp = str(len(CHIRPS[canary])).encode()
    before = node.cpu_s()
    assert produced(node, canary, timeout_ms=60_000, value=chirp) == ErrorCode.NONE
    assert node.cpu_s() - before < CHIRP_CPU_S
    CHIRPS[canary].append(chirp)
    assert_no_traceback(node)


def lines_about(node: Node, port: int, *, known: int) -> list[str]:
    """The node's log lines about a peer after its first `known` characters, once there are any."""
    return eventually(lambda: [line for line in node.log_text()[known:].splitlines() if f"127.0.0.1:{port}" in line])


def say(node: Node, words: bytes, to_port: int = 0) -> tuple[bytes, list[str]]:
    """(the bytes that are answered until the connection ends, the lines of the log about it)."""
    known = len(node.log_text())  # a peer of before may have had the same port
    with socket.create_connection(("127.0.0.1", to_port or node.port), timeout=PATIENCE_S) as peer:
        port = peer.getsockname()[1]
        peer.sendall(words)
        answer = b""
        try:
            while piece := peer.recv(65_536):
                answer += piece
        except ConnectionError:
            pass
    return answer, lines_about(node, port, known=known)


TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(180))
OTHER_PROTOCOLS = {
    "TLS": (TLS_HELLO, "speaks TLS"),
    "HTTP GET": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "speaks HTTP"),
    "HTTP POST": (b"POST /topics HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", "speaks HTTP"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "speaks HTTP"),
    "SSH": (b"SSH-2.0-OpenSSH_9.6\r\n", "bytes, above socket.request.max.bytes"),
    "a length of -1": (struct.pack(">i", -1), "negative length -1"),
    "a length of -2^31": (struct.pack(">i", INT32_MIN), "negative length -2147483648"),
    "a length of 2^31-1": (struct.pack(">i", INT32_MAX) + bytes(100), "2147483647 bytes, above"),
    "one byte above the limit": (struct.pack(">i", 104_857_601), "104857601 bytes, above"),
    "an empty frame": (bytes(4), "has no header"),
    "a frame of seven bytes": (struct.pack(">i", 7) + bytes(7), "has no header"),
    "an unknown API": (struct.pack(">ihhih", 10, 12_345, 0, 1, -1), "12345"),
    "a negative API": (struct.pack(">ihhih", 10, -7, 0, 1, -1), "-7"),
    "a version of 32767": (struct.pack(">ihhihB", 11, ApiKey.METADATA, 32_767, 1, -1, 0), "32767"),
    "a version of -1": (struct.pack(">ihhih", 10, ApiKey.PRODUCE, -1, 1, -1), "-1"),
    "a client id longer than its frame": (struct.pack(">ihhih", 10, ApiKey.METADATA, 0, 1, 32_767), ""),
    "a body that is cut": (struct.pack(">ihhihi", 14, ApiKey.METADATA, 0, 1, -1, 5), ""),
    "an array of 2^31-1": (struct.pack(">ihhihi", 14, ApiKey.METADATA, 0, 1, -1, INT32_MAX), "2147483647"),
}


@pytest.mark.parametrize("what", OTHER_PROTOCOLS)
def test_bytes_that_are_no_request_close_the_connection_with_one_line(node: Node, what: str) -> None:
    words, reason = OTHER_PROTOCOLS[what]
    answer, said = say(node, words)
    assert answer == b""
    assert len(said) == 1, said
    assert "connection closed" in said[0] and reason in said[0], said


@pytest.mark.parametrize("what", ["TLS", "HTTP GET", "a length of 2^31-1", "an unknown API", "an array of 2^31-1"])
def test_the_controller_listener_is_as_strict(node: Node, what: str) -> None:
    words, _ = OTHER_PROTOCOLS[what]
    answer, said = say(node, words, node.controller_port)
    assert answer == b""
    assert len(said) == 1 and "connection closed" in said[0] and "CONTROLLER" in said[0], said


def test_promises_of_a_hundred_megabytes_cost_nothing(node: Node) -> None:
    before = node.memory_bytes()
    peers = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(PROMISES)]
    try:
        for peer in peers:
            peer.sendall(struct.pack(">i", 100 * MEBIBYTE))
        for peer in peers:
            peer.sendall(b"\x00\x00")
        with Wire(node.port) as wire:
            wire.request(ApiKey.METADATA, 9, MetadataRequest(topics=[]))
        grown = node.memory_bytes() - before
        assert grown < 40 * MEBIBYTE, f"{grown / MEBIBYTE:.0f} MiB for {PROMISES} promises"
    finally:
        for peer in peers:
            peer.close()


def test_a_large_frame_that_stops_half_way_gives_its_memory_back(node: Node) -> None:
    before = node.memory_bytes()
    for _ in range(8):
        with socket.create_connection(("127.0.0.1", node.port)) as peer:
            peer.sendall(struct.pack(">i", 90 * MEBIBYTE))
            for _ in range(30):
                peer.sendall(bytes(MEBIBYTE))
    eventually(lambda: node.memory_bytes() - before < 80 * MEBIBYTE)


# -- half-open connections ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that ends idle connections after two seconds."""
    with Node(tmp_path_factory.mktemp("impatient"), {"connections.max.idle.ms": 2000}) as running:
        yield running
        assert_no_traceback(running)


def closed_within(peer: socket.socket, seconds: float) -> bool:
    peer.settimeout(seconds)
    try:
        return peer.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("half", [b"", b"\x00\x00", struct.pack(">i", 1000), struct.pack(">i", 1000) + bytes(500)])
def test_a_silent_peer_is_disconnected(impatient: Node, half: bytes) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port)) as peer:
        peer.sendall(half)
        assert closed_within(peer, PATIENCE_S), "a connection that a vanished peer left would stay for ever"


def test_a_slow_sender_is_not_idle(impatient: Node) -> None:
    words = b"".join(bytes(piece) for piece in _metadata_frame())

    def is_answered() -> bool:
        with socket.create_connection(("127.0.0.1", impatient.port), timeout=PATIENCE_S) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in words:
                peer.sendall(bytes((byte,)))
                time.sleep(5 / len(words))
            return len(peer.recv(4)) == 4

    assert in_one_of_many_turns(is_answered), "bytes came all the time, so it is answered"


def in_one_of_many_turns(goes_well: Callable[[], bool]) -> bool:
    """Whether an action succeeds while neither this process nor the node pauses for two seconds."""
    for _ in range(TURNS):
        with contextlib.suppress(ConnectionError):
            if goes_well():
                return True
    return False


@pytest.fixture(scope="module")
def big_topic(impatient: Node) -> str:
    """20 MB, more than the sockets between us and a client hold."""
    name = fresh_name("big")
    create_topic(impatient.bootstrap, name)
    produce_all(impatient.bootstrap, name, [(None, bytes(800_000))] * 25)
    return name


def fetch_all(wire: Wire, topic: str) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=40 * MEBIBYTE)
    wire.send(
        ApiKey.FETCH,
        11,
        FetchRequest(max_bytes=40 * MEBIBYTE, topics=[FetchTopic(topic=topic, partitions=[partition])]),
    )


def test_a_reader_that_does_not_read_is_closed_and_lets_the_files_go(impatient: Node, big_topic: str) -> None:
    with Wire(impatient.port) as wire:
        for _ in range(5):
            fetch_all(wire, big_topic)
        eventually(lambda: not is_held(impatient, wire))
        taken = 0
        try:
            while piece := wire.socket.recv(MEBIBYTE):
                taken += len(piece)
        except ConnectionError:
            pass
        assert taken < 5 * 20_000_000, "it was waited for longer than connections.max.idle.ms"


def is_held(node: Node, wire: Wire) -> bool:
    """Whether the node's end of a connection is established, as the system says."""
    ends = [f"0100007F:{port:04X}" for port in (node.port, wire.socket.getsockname()[1])]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return any(row[1:4] == [*ends, "01"] for row in rows)


def test_a_slow_reader_is_not_idle(impatient: Node, big_topic: str) -> None:
    def reads_all() -> bool:
        with Wire(impatient.port) as wire:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
            fetch_all(wire, big_topic)
            with wire.socket.makefile("rb") as answer:
                (size,) = struct.unpack(">i", answer.read(4))
                for _ in range(size // (2 * MEBIBYTE)):
                    if len(answer.read(2 * MEBIBYTE)) < 2 * MEBIBYTE:
                        return False
                    time.sleep(0.4)
            return True

    assert in_one_of_many_turns(reads_all)


def _metadata_frame() -> list[bytes]:
    body = struct.pack(">hhih", ApiKey.METADATA, 1, 5, -1) + struct.pack(">i", 0)
    return [struct.pack(">i", len(body)), body]


def test_a_peer_that_shuts_its_half_down_ends_its_waiting_fetch(node: Node, topic: str) -> None:
    for _ in range(50):
        with Wire(node.port) as wire:
            wire.send(ApiKey.FETCH, 12, waiting_fetch(topic, max_wait_ms=INT32_MAX))
            wire.socket.shutdown(socket.SHUT_WR)
            assert wire.is_closed_by_peer()


# -- absurd numbers ---------------------------------------------------------------------------------------------------


def waiting_fetch(topic: str, *, max_wait_ms: int, offset: int = 0, **fields: Any) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=INT32_MAX)
    settings = {"min_bytes": INT32_MAX, "max_bytes": INT32_MAX, **fields}
    return FetchRequest(max_wait_ms=max_wait_ms, topics=[FetchTopic(topic=topic, partitions=[partition])], **settings)


def test_a_fetch_that_waits_for_days_is_answered_when_records_come(node: Node) -> None:
    name = fresh_name("days")
    create_topic(node.bootstrap, name)
    with Wire(node.port) as wire:
        sent = wire.send(ApiKey.FETCH, 12, waiting_fetch(name, max_wait_ms=INT32_MAX, min_bytes=1))
        produce_all(node.bootstrap, name, [(None, b"at last")])
        answer = wire.receive(ApiKey.FETCH, 12, sent)
        assert answer.responses[0].partitions[0].high_watermark == 1


def test_a_node_stops_though_fetches_wait_for_days(tmp_path: Path) -> None:
    with Node(tmp_path / "node") as node:
        create_topic(node.bootstrap, "t")
        wires = [Wire(node.port) for _ in range(20)]
        for wire in wires:
            wire.send(ApiKey.FETCH, 12, waiting_fetch("t", max_wait_ms=INT32_MAX))
        time.sleep(0.2)
        assert node.stop() == 0, "and fails where it takes much longer than stops do"
        for wire in wires:
            wire.close()
        assert_no_traceback(node)


def produced(
    node: Node, topic: str, *, timeout_ms: int, acks: int = -1, partition: int = 0, value: bytes = b"v"
) -> int:
    """The error code of a Produce of one record."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch(value))])
    with Wire(node.port) as wire:
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])
        answer: ProduceResponse = wire.request(ApiKey.PRODUCE, 9, request)
        return answer.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("timeout_ms", [-1, INT32_MIN, 0, 1, INT32_MAX])
def test_any_timeout_of_a_produce_is_taken(node: Node, topic: str, timeout_ms: int) -> None:
    assert produced(node, topic, timeout_ms=timeout_ms) == ErrorCode.NONE


@pytest.mark.parametrize(("acks", "code"), [(2, "INVALID_REQUIRED_ACKS"), (-2, "INVALID_REQUIRED_ACKS")])
def test_acks_that_do_not_exist_are_refused(node: Node, topic: str, acks: int, code: str) -> None:
    assert ErrorCode(produced(node, topic, timeout_ms=1000, acks=acks)).name == code


@pytest.mark.parametrize("partition", [-1, INT32_MIN, INT32_MAX])
def test_partitions_that_do_not_exist_are_refused(node: Node, topic: str, partition: int) -> None:
    assert produced(node, topic, timeout_ms=1000, partition=partition) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


ABSURD_FETCHES: dict[str, tuple[dict[str, Any], str]] = {
    "an offset of 2^63-1": ({"fetch_offset": INT64_MAX}, "OFFSET_OUT_OF_RANGE"),
    "an offset of -2^63": ({"fetch_offset": INT64_MIN}, "OFFSET_OUT_OF_RANGE"),
    "a leader epoch of 2^31-1": ({"current_leader_epoch": INT32_MAX}, "UNKNOWN_LEADER_EPOCH"),
    "no room at all": ({"partition_max_bytes": INT32_MIN}, "NONE"),
    "a partition of -1": ({"partition": -1}, "UNKNOWN_TOPIC_OR_PARTITION"),
}


@pytest.mark.parametrize("what", ABSURD_FETCHES)
def test_absurd_fetches_get_the_right_answer(node: Node, topic: str, what: str) -> None:
    fields, code = ABSURD_FETCHES[what]
    partition = FetchPartition(**{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, **fields})
    request = FetchRequest(
        max_wait_ms=INT32_MIN,
        min_bytes=INT32_MIN,
        max_bytes=INT32_MIN,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    with Wire(node.port) as wire:
        answer = wire.request(ApiKey.FETCH, 12, request)
    assert ErrorCode(answer.responses[0].partitions[0].error_code).name == code


@pytest.mark.parametrize(("session_id", "epoch"), [(INT32_MAX, INT32_MAX), (-1, 1), (0, INT32_MAX), (INT32_MIN, 0)])
def test_fetch_sessions_that_never_were_are_refused_or_begun(node: Node, session_id: int, epoch: int) -> None:
    with Wire(node.port) as wire:
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=session_id, session_epoch=epoch)
        code = ErrorCode(wire.request(ApiKey.FETCH, 12, request).error_code)
    assert code in (ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert epoch == 0 or code is not ErrorCode.NONE


@pytest.mark.parametrize("session_ms", [INT32_MIN, -1, 0, INT32_MAX])
def test_session_timeouts_of_members_have_bounds(node: Node, session_ms: int) -> None:
    request = JoinGroupRequest(
        group_id=fresh_name("g"),
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=INT32_MAX,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    with Wire(node.port) as wire:
        _await_coordinator(wire)
        assert wire.request(ApiKey.JOIN_GROUP, 9, request).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def _await_coordinator(wire: Wire) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    eventually(lambda: not wire.request(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code)


@pytest.mark.parametrize("key_type", [-128, 3, 127])
def test_coordinators_of_unknown_kinds_are_refused(node: Node, key_type: int) -> None:
    with Wire(node.port) as wire:
        answer = wire.request(
            ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
        )
    codes = {answer.error_code, *(each.error_code for each in answer.coordinators)} - {0}
    assert codes == {ErrorCode.INVALID_REQUEST}


def _create(name: str, timeout_ms: int) -> tuple[ApiKey, int, object]:
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[wanted], timeout_ms=timeout_ms)


def _grow(name: str, timeout_ms: int) -> tuple[ApiKey, int, object]:
    wanted = CreatePartitionsTopic(name=name, count=INT32_MIN)
    return ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=[wanted], timeout_ms=timeout_ms)


def _trim(name: str, timeout_ms: int) -> tuple[ApiKey, int, object]:
    part = DeleteRecordsPartition(partition_index=0, offset=INT64_MIN)
    wanted = DeleteRecordsTopic(name=name, partitions=[part])
    return ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=[wanted], timeout_ms=timeout_ms)


@pytest.mark.parametrize("timeout_ms", [INT32_MIN, -1, 0, INT32_MAX])
@pytest.mark.parametrize("make", [_create, _grow, _trim], ids=["create topics", "create partitions", "delete records"])
def test_absurd_timeouts_of_admin_requests_are_answered(
    node: Node, topic: str, make: Callable[[str, int], tuple[ApiKey, int, object]], timeout_ms: int
) -> None:
    name = fresh_name("timeout") if make is _create else topic
    api_key, version, request = make(name, timeout_ms)
    with Wire(node.port) as wire:
        assert wire.request(api_key, version, request) is not None
