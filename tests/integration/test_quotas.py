"""Quotas of clients: the API that sets them, and the response and the wait of a client that exceeds one."""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from odradek.cli import errors
from odradek.common.errors import ErrorCode
from odradek.common.numbers import INT32_MAX
from odradek.protocol.apis import ApiKey
from odradek.protocol.framing import encode_request
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.protocol.messages.write_txn_markers_request import WriteTxnMarkersRequest
from odradek.server.network.quota_metrics import quota_families
from odradek.testing.faults import NetworkLinks
from odradek.testing.node_thread import NodeThread
from tests.support.clients.api_calls import (
    Calls,
    batch,
    bytes_of,
    fetch_request,
    fetch_topic,
    fresh_name,
    produce_request,
)
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic
from tests.support.clients.quotas import FETCH, PRODUCE, alter, entry, quotas_set, set_quotas
from tests.support.nodes.node import free_port
from tests.support.nodes.permissions import allow_rules, remove_authorizer
from tests.support.waiting import eventually

pytestmark = pytest.mark.only_ours

PAGE = Path(__file__).resolve().parents[2] / "docs" / "quotas.md"
EXACT, DEFAULT, ANY = 0, 1, 2
# The largest difference between the node's clock and ours. A wait is measured from before the request that causes it.
SLACK_S = 0.01


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    node = NodeThread(1, NetworkLinks())
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{free_port()},CONTROLLER://127.0.0.1:{free_port()}"
    node.begin(None, [f"log.dirs={tmp_path_factory.mktemp('node')}", listeners]).result(120)
    try:
        yield node
    finally:
        node.stop()


@pytest.fixture
def port(node: NodeThread) -> int:
    return next(spec.port for spec in node.broker.specs.values() if spec.scope == "broker")


def described(calls: Calls, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    asked = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    return calls.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest(components=asked, strict=strict))


def entities(answer: Any) -> list[dict[str, str | None]]:
    assert not answer.error_code, answer.error_message
    return [{part.entity_type: part.entity_name for part in each.entity} for each in answer.entries]


def seconds_until_served(calls: Calls) -> float:
    """The seconds until a connection answers a small request."""
    began = time.monotonic()
    calls.request(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    return time.monotonic() - began


def test_quotas_are_set_described_and_removed(port: int) -> None:
    alice, her_app, everybody = {"user": "alice"}, {"user": "alice", "client-id": "app"}, {"client-id": None}
    some: list[dict[str, str | None]] = [dict(each) for each in (alice, her_app, everybody, {"ip": "10.0.0.1"})]
    with Calls(port) as calls:
        kinds: list[dict[str, float | None]] = [{PRODUCE: 1000.0}, {FETCH: 5.0}, {PRODUCE: 7.0, FETCH: 8.0}]
        kinds.append({"connection_creation_rate": 100.0})
        made = alter(calls, *(entry(*pair) for pair in zip(some, kinds, strict=True)), version=0)
        assert [(each.error_code, each.error_message) for each in made] == [(0, None)] * 4

        assert entities(described(calls, ("user", EXACT, "alice"))) == [alice, her_app]
        assert entities(described(calls, ("user", EXACT, "alice"), strict=True)) == [alice]
        assert entities(described(calls, ("client-id", DEFAULT, None))) == [everybody]
        assert entities(described(calls, ("client-id", ANY, None))) == [her_app, everybody]
        assert entities(described(calls, ("ip", ANY, None))) == [{"ip": "10.0.0.1"}]
        assert entities(described(calls)) == some
        found = described(calls, ("client-id", DEFAULT, None)).entries[0].values
        assert [(each.key, each.value) for each in found] == [(FETCH, 8.0), (PRODUCE, 7.0)]

        alter(calls, entry(some[0], {PRODUCE: None}), validate_only=True)
        assert len(entities(described(calls))) == 4
        wrong = alter(calls, entry(some[0], {PRODUCE: -1.0}), entry(some[1], {FETCH: None}))
        assert [each.error_code for each in wrong] == [ErrorCode.INVALID_REQUEST, 0]
        removed = [entry(parts, dict.fromkeys(of)) for parts, of in zip(some, kinds, strict=True)]
        assert {each.error_code for each in alter(calls, *removed)} == {0}
        assert entities(described(calls)) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "alice")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_means_nothing_is_refused(
    port: int, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    with Calls(port) as calls:
        answer = described(calls, *components)
        assert (answer.error_code, bool(answer.error_message), answer.entries) == (code, True, [])


@pytest.mark.parametrize("version", [3, 7, 13])
def test_a_producer_above_its_quota_is_answered_and_waits(port: int, version: int) -> None:
    mine = fresh_name("app")
    set_quotas(port, {"client-id": mine}, producer_byte_rate=10_000)
    with Calls(port, client_id=mine) as calls, Calls(port) as other:
        topic = other.create_topic()
        fields: dict[str, Any] = {"topic_id": other.topic_id(topic)} if version >= 13 else {}
        asked = produce_request(topic, batch(b"x" * 14_000), acks=1, **fields)
        began = time.monotonic()
        answer = calls.request(ApiKey.PRODUCE, version, asked)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert 400 < answer.throttle_time_ms < 500
        waiting = calls.send(ApiKey.PRODUCE, version, asked)
        assert seconds_until_served(other) < 60  # another client has no wait
        assert calls.receive(ApiKey.PRODUCE, version, waiting).throttle_time_ms > 400
        assert time.monotonic() - began > answer.throttle_time_ms / 1000 - SLACK_S
        other.produce(topic, batch(b"x" * 14_000))
    set_quotas(port, {"client-id": mine}, producer_byte_rate=None)


def test_each_request_is_counted_by_its_own_client_id(port: int) -> None:
    """Several clients share one connection, and quotas change while it is open."""
    slow, fast = fresh_name("app"), fresh_name("app")
    set_quotas(port, {"client-id": slow}, producer_byte_rate=10_000)
    with Calls(port) as calls:
        asked = produce_request(calls.create_topic(), batch(b"x" * 11_000), acks=1)

        def wait_ms(number: int, client_id: str) -> int:
            calls.socket.sendall(b"".join(encode_request(ApiKey.PRODUCE, 9, number, client_id, asked)))
            return int(calls.receive(ApiKey.PRODUCE, 9, number).throttle_time_ms)

        assert wait_ms(101, fast) == 0
        assert 0 < wait_ms(102, slow) < 200
        assert wait_ms(103, fast) == 0
        set_quotas(port, {"client-id": fast}, producer_byte_rate=10_000)
        assert 0 < wait_ms(104, fast) < 200
        set_quotas(port, {"client-id": slow}, producer_byte_rate=None)
        assert wait_ms(105, slow) == 0
    set_quotas(port, {"client-id": fast}, producer_byte_rate=None)


def test_a_wait_for_years_has_room_in_the_answer(port: int) -> None:
    mine = fresh_name("app")
    set_quotas(port, {"client-id": mine}, producer_byte_rate=1)
    with Calls(port) as calls:
        topic = calls.create_topic()
    waits_ms = []
    for _ in range(4):
        with Calls(port, client_id=mine) as calls:
            asked = produce_request(topic, batch(b"x" * 900_000), acks=1)
            waits_ms.append(calls.request(ApiKey.PRODUCE, 9, asked).throttle_time_ms)
    assert waits_ms[0] > 899_000_000
    assert waits_ms[-1] == INT32_MAX
    set_quotas(port, {"client-id": mine}, producer_byte_rate=None)


def test_long_names_of_clients_are_not_kept(node: NodeThread, port: int) -> None:
    """One client could have 10,000 of 32 KB remembered, and shown in the metrics."""
    asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    start = "x" * 32_000
    with quotas_set(port, {"client-id": None}, producer_byte_rate=1e9), Calls(port) as calls:
        for number in range(3):
            calls.socket.sendall(
                b"".join(encode_request(ApiKey.API_VERSIONS, 3, 100 + number, f"{start}{number}", asked))
            )
            calls.receive(ApiKey.API_VERSIONS, 3, 100 + number)
        names = [name for (_, name), _ in node.broker.dispatcher.quotas.produce.accounts() if name and name[0] == "x"]
        assert len(names) == 3
        assert max(map(len, names)) < 400


def test_a_producer_that_asks_for_no_answer_waits_as_well(port: int) -> None:
    mine = fresh_name("app")
    with Calls(port) as other:
        topic = other.create_topic()
    set_quotas(port, {"client-id": mine, "user": "ANONYMOUS"}, producer_byte_rate=10_000)
    with Calls(port, client_id=mine) as calls:
        began = time.monotonic()
        for _ in range(3):
            calls.send(ApiKey.PRODUCE, 9, produce_request(topic, batch(b"x" * 5000), acks=0))
        seconds_until_served(calls)
        assert time.monotonic() - began > 0.5 - SLACK_S
        set_quotas(port, {"client-id": mine, "user": "ANONYMOUS"}, producer_byte_rate=None)
        calls.send(ApiKey.PRODUCE, 9, produce_request(topic, batch(b"x" * 500_000), acks=0))
        assert seconds_until_served(calls) < 60


@pytest.mark.parametrize("in_session", [False, True])
def test_a_consumer_above_its_quota_waits_for_its_records(node: NodeThread, port: int, in_session: bool) -> None:
    mine = fresh_name("app")
    with Calls(port) as other:
        topic = other.create_topic()
        other.fill(topic, 40, 1000)
    set_quotas(port, {"client-id": mine}, consumer_byte_rate=10_000)
    with Calls(port, client_id=mine) as calls:
        read = fetch_topic(topic, {0: 0}, max_bytes=2**20)
        epoch, session = (0, 0) if in_session else (-1, 0)

        def fetch() -> Any:
            nonlocal epoch, session
            answer = calls.request(ApiKey.FETCH, 12, fetch_request(read, session_id=session, session_epoch=epoch))
            if in_session:
                assert answer.session_id == (session or answer.session_id)
                epoch, session = (epoch + 1, answer.session_id) if answer.session_id else (0, 0)
            return answer

        first = fetch()
        size_bytes = len(bytes_of(first.responses[0].partitions[0].records))
        assert 8_000 < size_bytes <= 10_000, "a window's worth, and no more"
        assert first.throttle_time_ms == 0
        began, throttled = time.monotonic(), first
        while not throttled.throttle_time_ms:
            began, before, throttled = time.monotonic(), throttled, fetch()
        assert (throttled.responses, throttled.error_code, throttled.session_id) == ([], 0, session)
        assert throttled.throttle_time_ms <= 1001
        # Records that were withheld are not counted, and arrive after the wait.
        after = fetch()
        assert time.monotonic() - began > throttled.throttle_time_ms / 1000 - SLACK_S
        assert after.throttle_time_ms == 0
        got, wanted = (bytes_of(each.responses[0].partitions[0].records) for each in (after, before))
        assert got == wanted
        follower = calls.request(ApiKey.FETCH, 12, fetch_request(read, replica_id=1))
        assert follower.throttle_time_ms == 0
    set_quotas(port, {"client-id": mine}, consumer_byte_rate=None)


def test_a_throttled_fetch_leaves_no_session_behind(node: NodeThread, port: int) -> None:
    mine, sessions = fresh_name("app"), node.broker.services.fetch_sessions
    set_quotas(port, {"client-id": mine}, consumer_byte_rate=0)
    with Calls(port) as other:
        topic = other.create_topic()
    before = len(sessions)
    with Calls(port, client_id=mine) as calls:
        answer = calls.request(ApiKey.FETCH, 12, fetch_request(fetch_topic(topic, {0: 0}), session_epoch=0))
        assert (answer.session_id, answer.responses, answer.throttle_time_ms > 0) == (0, [], True)
    assert len(sessions) == before
    set_quotas(port, {"client-id": mine}, consumer_byte_rate=None)


def test_an_idle_client_saves_up_as_many_windows_as_kafkas(port: int) -> None:
    mine = fresh_name("app")
    set_quotas(port, {"client-id": mine}, producer_byte_rate=20_000)
    with Calls(port, client_id=mine) as calls:
        asked = produce_request(calls.create_topic(), batch(b"x" * 18_000), acks=1)
        assert calls.request(ApiKey.PRODUCE, 9, asked).throttle_time_ms == 0
        began = time.monotonic()
        # More than one window, and less than ten.
        eventually(lambda: time.monotonic() - began > 2)
        assert [calls.request(ApiKey.PRODUCE, 9, asked).throttle_time_ms for _ in range(2)] == [0, 0]
    set_quotas(port, {"client-id": mine}, producer_byte_rate=None)


def test_a_request_under_way_keeps_no_memory_while_a_quota_waits(node: NodeThread, port: int) -> None:
    mine = fresh_name("app")
    set_quotas(port, {"client-id": mine}, consumer_byte_rate=1)
    memory = node.broker.dispatcher.memory
    with Calls(port, client_id=mine) as calls, Calls(port) as other:
        topic = other.create_topic()
        other.produce(topic, batch(b"x" * 2_000))
        assert calls.fetch(fetch_topic(topic, {0: 0})).responses
        first = calls.send(ApiKey.FETCH, 12, fetch_request(fetch_topic(topic, {0: 1}), max_wait_ms=60_000))
        produced = produce_request(topic, batch(b"x" * 20_000))
        frame = b"".join(encode_request(ApiKey.PRODUCE, 9, 2, mine, produced))
        calls.socket.sendall(frame[:6_000])
        eventually(lambda: memory.held_bytes > 0)
        other.produce(topic, batch(b"x" * 1_000))
        assert calls.receive(ApiKey.FETCH, 12, first).throttle_time_ms > 1_000_000
        calls.socket.sendall(frame[6_000:])
        assert calls.receive(ApiKey.PRODUCE, 9, 2).responses[0].partition_responses[0].error_code == 0
        eventually(lambda: memory.held_bytes == 0)
    set_quotas(port, {"client-id": mine}, consumer_byte_rate=None)


@pytest.mark.parametrize("key", [ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.LIST_GROUPS, ApiKey.CREATE_TOPICS])
def test_a_client_waits_for_the_time_that_its_requests_took(node: NodeThread, port: int, key: ApiKey) -> None:
    """Handlers that decide at once, that go on, and that ask the controller."""
    mine = fresh_name("app")
    requests: dict[ApiKey, tuple[int, Any]] = {
        ApiKey.API_VERSIONS: (3, ApiVersionsRequest(client_software_name="a", client_software_version="1")),
        ApiKey.METADATA: (12, MetadataRequest(topics=None)),
        ApiKey.LIST_GROUPS: (4, ListGroupsRequest()),
        ApiKey.CREATE_TOPICS: (5, CreateTopicsRequest()),
    }
    set_quotas(port, {"client-id": mine}, request_percentage=0.1)
    with Calls(port, client_id=mine) as calls, Calls(port) as other:
        began, wait_ms = time.monotonic(), 0
        while not wait_ms:
            began = time.monotonic()
            wait_ms = calls.request(key, *requests[key]).throttle_time_ms
        assert wait_ms <= 1000
        seconds_until_served(calls)
        assert time.monotonic() - began > wait_ms / 1000 - SLACK_S
        assert other.request(key, *requests[key]).throttle_time_ms == 0
        broker = node.broker
        families = quota_families(broker.dispatcher.quotas, broker.gateway.mutations.ledger)
        shown = {family.name: family for family in families}
    waited = {dict(each.labels)["client_id"]: each.value for each in shown["odradek_request_throttle_seconds"].samples}
    assert waited[mine] >= wait_ms / 1000
    set_quotas(port, {"client-id": mine}, request_percentage=None)


def test_a_client_that_connects_for_each_request_has_to_wait(port: int) -> None:
    mine = fresh_name("app")
    set_quotas(port, {"client-id": mine}, request_percentage=0.1)
    wait_ms = 0
    for _ in range(500):  # ten use up the quota
        with Calls(port, client_id=mine) as calls:
            wait_ms = calls.request(ApiKey.LIST_GROUPS, 4, ListGroupsRequest()).throttle_time_ms
        if wait_ms:
            break
    assert 0 < wait_ms <= 1000
    set_quotas(port, {"client-id": mine}, request_percentage=None)


@pytest.mark.parametrize("key", [ApiKey.SASL_HANDSHAKE, ApiKey.WRITE_TXN_MARKERS, ApiKey.OFFSET_FOR_LEADER_EPOCH])
def test_exempt_requests_out_of_place_are_counted(node: NodeThread, port: int, key: ApiKey) -> None:
    """The requests are login messages at a wrong time, and requests of brokers from a client that is none."""
    mine = fresh_name("app")
    requests: dict[ApiKey, tuple[int, Any]] = {
        ApiKey.SASL_HANDSHAKE: (1, SaslHandshakeRequest(mechanism="PLAIN")),
        ApiKey.WRITE_TXN_MARKERS: (1, WriteTxnMarkersRequest()),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (4, OffsetForLeaderEpochRequest(replica_id=2)),
    }
    set_quotas(port, {"client-id": mine}, request_percentage=0.1)
    ledger = node.broker.dispatcher.quotas.request
    allow_rules(node)
    try:
        with Calls(port, client_id=mine) as calls:
            waits = 0
            for _ in range(3000):  # ten use up the quota
                calls.request(key, *requests[key])
                waits = max(each.throttle_count for (_, client_id), each in ledger.accounts() if client_id == mine)
                if waits:
                    break
            assert waits
    finally:
        remove_authorizer(node)
    set_quotas(port, {"client-id": mine}, request_percentage=None)


def test_topics_beyond_the_mutation_quota_are_refused(port: int) -> None:
    mine = fresh_name("app")
    set_quotas(port, {"client-id": mine}, controller_mutation_rate=0.01)
    names = [fresh_name() for _ in range(2)]

    def ask(key: ApiKey, version: int, request: Any) -> Any:
        with Calls(port, client_id=mine) as calls:  # the one before is muted
            return calls.request(key, version, request)

    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
    created = ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    # The first may go into debt: 2 partitions, of which there was a ninth.
    assert [each.error_code for each in created.topics] == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert 100_000 < created.throttle_time_ms <= 189_001
    more = CreatePartitionsTopic(name=names[0], count=3, assignments=None)
    grown = CreatePartitionsRequest(topics=[more], timeout_ms=30_000)
    strict = ask(ApiKey.CREATE_PARTITIONS, 3, grown)
    assert (strict.results[0].error_code, strict.throttle_time_ms > 0) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, True)
    deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name=names[0])], timeout_ms=30_000)
    strict = ask(ApiKey.DELETE_TOPICS, 6, deleted)
    assert (strict.responses[0].error_code, strict.throttle_time_ms > 0) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, True)
    # Clients that do not know the error get what they ask for, and wait the longer.
    old = ask(ApiKey.CREATE_PARTITIONS, 2, grown)
    assert (old.results[0].error_code, old.throttle_time_ms > created.throttle_time_ms) == (0, True)
    older = ask(ApiKey.DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=[names[0]], timeout_ms=30_000))
    assert (older.responses[0].error_code, older.throttle_time_ms > old.throttle_time_ms + 200_000) == (0, True)
    set_quotas(port, {"client-id": mine}, controller_mutation_rate=None)


def test_topics_that_come_to_be_by_use_are_paid_for(port: int) -> None:
    """The client that requests a topic first pays for it, and has to request the next one again."""
    mine, first, second = fresh_name("app"), fresh_name(), fresh_name()
    set_quotas(port, {"client-id": mine}, controller_mutation_rate=0.01)

    def found(calls: Calls, name: str) -> Any:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        answer = calls.request(ApiKey.METADATA, 12, asked)
        return answer.topics[0].error_code, answer.throttle_time_ms

    with Calls(port, client_id=mine) as calls, Calls(port) as other:
        assert found(calls, first) == (0, 0)
        for _ in range(2):
            assert found(calls, second) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
        assert found(other, second) == (0, 0)
        assert found(calls, second) == (0, 0)
    set_quotas(port, {"client-id": mine}, controller_mutation_rate=None)


def test_a_client_that_changed_too_much_waits(port: int) -> None:
    mine = fresh_name("app")
    set_quotas(port, {"client-id": mine}, controller_mutation_rate=2)
    with Calls(port, client_id=mine) as calls:
        topic = CreatableTopic(name=fresh_name(), num_partitions=23, replication_factor=1)
        began = time.monotonic()
        created = calls.request(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert (created.topics[0].error_code, 0 < created.throttle_time_ms <= 501) == (0, True)
        seconds_until_served(calls)
        assert time.monotonic() - began > created.throttle_time_ms / 1000 - SLACK_S
    set_quotas(port, {"client-id": mine}, controller_mutation_rate=None)


@pytest.mark.parametrize("name", ["127.0.0.1", None])
def test_an_address_connects_no_faster_than_its_quota(node: NodeThread, port: int, name: str | None) -> None:
    with Calls(port) as operator:
        alter(operator, entry({"ip": name}, {"connection_creation_rate": 1.0}))
        served = 0
        for connection in [Calls(port) for _ in range(40)]:
            with connection, contextlib.suppress(ConnectionError):
                connection.send(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
                connection.receive(ApiKey.METADATA, 12)
                served += 1
        # Ten seconds' worth at once.
        assert 10 <= served < 40
        assert node.broker.dispatcher.connections.throttled_count >= 40 - served
        alter(operator, entry({"ip": name}, {"connection_creation_rate": None}))
    with Calls(port) as calls:
        seconds_until_served(calls)


def test_the_command_sets_lists_and_removes_quotas(port: int) -> None:
    where = f"127.0.0.1:{port}"
    odradek(where, "quotas", "set", "--user", "carol", "--client-id", "app", f"{PRODUCE}=1048576", f"{FETCH}=5")
    odradek(where, "quotas", "set", "--default", "user", "request_percentage=200")
    odradek(where, "quotas", "set", "--ip", "10.1.2.3", "connection_creation_rate=5", "--json")
    rows = odradek(where, "quotas", "list").rows
    assert ["carol", "app", "-", PRODUCE, "1048576"] in rows
    assert ["<default>", "-", "-", "request_percentage", "200"] in rows
    assert ["-", "-", "10.1.2.3", "connection_creation_rate", "5"] in rows
    assert odradek(where, "quotas", "list", "--client-id", "app", "--json").json == [
        {"entity": {"client-id": "app", "user": "carol"}, "quotas": {FETCH: 5.0, PRODUCE: 1048576.0}}
    ]
    odradek(where, "quotas", "remove", "--user", "carol", "--client-id", "app", FETCH)
    assert ["carol", "app", "-", FETCH, "5"] not in odradek(where, "quotas", "list").rows
    odradek(where, "quotas", "remove", "--user", "carol", code=errors.NOT_FOUND)
    for entity in (["--user", "carol", "--client-id", "app"], ["--default", "user"], ["--ip", "10.1.2.3"]):
        odradek(where, "quotas", "remove", *entity)
    assert odradek(where, "quotas", "list", "--json").json == []


def test_the_commands_of_the_page_run(port: int) -> None:
    where = f"127.0.0.1:{port}"
    block = re.search(r"```\n(odradek quotas .*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    for line in block[1].splitlines():
        odradek(where, *shlex.split(line)[1:])
    left = odradek(where, "quotas", "list").rows[1:]
    assert sorted(row[:3] for row in left) == [["-", "<default>", "-"], ["alice", "-", "-"], ["alice", "nightly", "-"]]
    for entity in (["--user", "alice"], ["--user", "alice", "--client-id", "nightly"], ["--default", "client-id"]):
        odradek(where, "quotas", "remove", *entity)


@pytest.mark.parametrize(
    "words",
    [
        [f"{PRODUCE}=1"],
        ["--user", "a", "speed=1"],
        ["--user", "User:a", f"{PRODUCE}=1"],
        ["--user", "a", f"{PRODUCE}=-1"],
        ["--user", "a", f"{PRODUCE}"],
        ["--user", "a", "--default", "user", f"{PRODUCE}=1"],
        ["--default", "group", f"{PRODUCE}=1"],
        ["--user", "a", "--ip", "::1", f"{PRODUCE}=1"],
    ],
)
def test_the_command_says_what_is_no_quota(words: list[str]) -> None:
    odradek("127.0.0.1:1", "quotas", "set", *words, code=errors.USAGE)


def test_a_stock_client_keeps_to_its_quotas(port: int) -> None:
    bootstrap, topic, mine = f"127.0.0.1:{port}", fresh_name(), fresh_name("app")
    create_topic(bootstrap, topic)
    rate, total = 400_000, 1_200_000
    set_quotas(port, {"client-id": mine}, producer_byte_rate=rate, consumer_byte_rate=rate)
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": mine, "batch.size": 50_000, "linger.ms": 5})
    began = time.monotonic()
    for _ in range(total // 1000):
        producer.produce(topic, b"x" * 1000)
    assert producer.flush(120) == 0
    # A second's worth is free at the beginning, and the last wait comes behind the last records; a connection may have
    # one request beyond its quota, and a batch is at most 50,000 bytes.
    overdraft_s = 2 * 50_000 / rate
    assert time.monotonic() - began > total / rate - 1 - overdraft_s

    settings = {"bootstrap.servers": bootstrap, "client.id": mine, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    began, count = time.monotonic(), 0
    while count < total // 1000:
        for message in consumer.consume(1000, timeout=1):
            assert message.error() is None
            count += 1
    assert time.monotonic() - began > total / rate - 2 - overdraft_s
    consumer.close()
    set_quotas(port, {"client-id": mine}, producer_byte_rate=None, consumer_byte_rate=None)
