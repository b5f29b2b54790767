"""Requests that only brokers may send to brokers, sent by clients: each gets the right error and changes nothing.

One node with a listener for clients beside the one for brokers, as in a cluster that is open to unknown clients.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.server.handlers import HANDLERS
from tests.support.clients.api_calls import Calls, batch, fresh_name
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node, free_port

FOR_CONTROLLERS_ALONE = sorted(
    {each.api_key for each in HANDLERS if "controller" in each.listeners}
    - {each.api_key for each in HANDLERS if "broker" in each.listeners}
)


@pytest.fixture(scope="module")
def inside() -> int:
    return free_port()


@pytest.fixture(scope="module")
def open_node(tmp_path_factory: pytest.TempPathFactory, inside: int) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("open"))
    node.overrides |= {
        "listeners": f"CLIENTS://127.0.0.1:{node.port},INSIDE://127.0.0.1:{inside},"
        f"CONTROLLER://127.0.0.1:{node.controller_port}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    with node:
        yield node


@pytest.fixture
def topic(open_node: Node) -> str:
    with Calls(open_node.port) as calls:
        name = calls.create_topic()
        calls.produce(name, batch(b"one"))
        return name


def fetch_as_broker(port: int, topic: str, version: int) -> PartitionData:
    """A Fetch as broker 1 would send it, which is this node itself."""
    with Calls(port) as calls:
        asked = FetchTopic(topic=topic, partitions=[FetchPartition(fetch_offset=0, partition_max_bytes=1000)])
        asked.topic_id = calls.topic_id(topic)
        request = FetchRequest(max_wait_ms=0, topics=[asked], session_epoch=-1)
        if version >= 15:
            request.replica_state = ReplicaState(replica_id=1, replica_epoch=2**40)
        else:
            request.replica_id = 1
        answer: FetchResponse = calls.request(ApiKey.FETCH, version, request)
        return answer.responses[0].partitions[0]


@pytest.mark.parametrize("version", [4, 11, 12, 14, 15, 18])
def test_a_clients_fetch_with_a_replica_id(open_node: Node, topic: str, inside: int, version: int) -> None:
    reported = fetch_as_broker(open_node.port, topic, version)
    assert ErrorCode(reported.error_code) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not reported.records
    # On the listener of brokers it is handled, and refused as no replica: a leader does not follow itself.
    assert ErrorCode(fetch_as_broker(inside, topic, version).error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", [4, 5])
def test_a_clients_batched_add_partitions(open_node: Node, topic: str, version: int) -> None:
    name = fresh_name("txn")
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=name, producer_id=1, topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    )
    with Calls(open_node.port) as calls:
        answer = calls.request(
            ApiKey.ADD_PARTITIONS_TO_TXN, version, AddPartitionsToTxnRequest(transactions=[transaction])
        )
        assert ErrorCode(answer.error_code) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not answer.results_by_transaction
        listed = calls.request(ApiKey.LIST_TRANSACTIONS, 0, ListTransactionsRequest())
        assert name not in [each.transactional_id for each in listed.transaction_states]


@pytest.mark.parametrize("api_key", FOR_CONTROLLERS_ALONE, ids=lambda key: ApiKey(key).name)
def test_a_controllers_request_closes_a_clients_connection(open_node: Node, api_key: ApiKey) -> None:
    """Apache Kafka has no response for it on that listener, either; ApiVersions does not list it."""
    spec = API[api_key]
    with Calls(open_node.port) as calls:
        reported = calls.request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        assert api_key not in {each.api_key for each in reported.api_keys}
    with Wire(open_node.port) as wire:
        wire.send(api_key, spec.max_version, spec.request())
        assert wire.is_closed_by_peer()
    assert "Traceback" not in open_node.log_text()
