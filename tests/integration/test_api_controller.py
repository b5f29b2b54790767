"""Requests of nodes to the controller, on its own listener: registration, heartbeats, envelopes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from odradek.protocol import codec
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.framing import LENGTH_BYTES, decode_response_header, encode_request
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from odradek.protocol.messages.controller_registration_request import ControllerRegistrationRequest
from odradek.protocol.messages.controller_registration_request import Feature as ControllerFeature
from odradek.protocol.messages.controller_registration_request import Listener as ControllerListener
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.default_principal_data import DefaultPrincipalData
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.envelope_request import EnvelopeRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from tests.support.clients.api_calls import Calls, fresh_name, name_of, one
from tests.support.nodes.node import Node

pytestmark = pytest.mark.only_ours
CONTROLLERS = 2
PRINCIPAL = b"\0\0" + codec.encode(DefaultPrincipalData(type="User", name="alice"), 0)
LOCALHOST = bytes((127, 0, 0, 1))


@pytest.fixture
def controller(node: Node) -> Iterator[Calls]:
    with Calls(node.controller_port) as connection:
        yield connection


@pytest.fixture
def cluster_id(node: Node) -> str:
    with Calls(node.port) as calls:
        return str(calls.request(ApiKey.METADATA, 12, MetadataRequest(topics=[])).cluster_id)


def supported(connection: Calls) -> dict[str, tuple[int, int]]:
    answer = connection.request(
        ApiKey.API_VERSIONS, 4, ApiVersionsRequest(client_software_name="t", client_software_version="1")
    )
    return {each.name: (each.min_version, each.max_version) for each in answer.supported_features}


def registration(connection: Calls, cluster_id: str, broker_id: int, **fields: Any) -> BrokerRegistrationRequest:
    """A broker that listens nowhere and stays fenced: it is never caught up."""
    features = supported(connection)
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=uuid4(),
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=1)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in features.items()
        ],
        **fields,
    )


class TestBrokers:
    @pytest.mark.parametrize("version", range(5))
    def test_a_broker_registers_and_beats_in_every_version(
        self, controller: Calls, cluster_id: str, version: int
    ) -> None:
        broker_id = 100 + version
        request = registration(controller, cluster_id, broker_id)
        answer = controller.request(ApiKey.BROKER_REGISTRATION, version, request)
        assert (answer.error_code, answer.broker_epoch > 0) == (0, True)
        for beat in range(3):
            heartbeat = BrokerHeartbeatRequest(
                broker_id=broker_id, broker_epoch=answer.broker_epoch, current_metadata_offset=0
            )
            heard = controller.request(ApiKey.BROKER_HEARTBEAT, beat, heartbeat)
            assert (heard.error_code, heard.is_caught_up, heard.is_fenced) == (0, False, True)

    def test_one_of_another_cluster_is_refused(self, controller: Calls) -> None:
        request = registration(controller, "another-cluster-of-22", 90)
        answer = controller.request(ApiKey.BROKER_REGISTRATION, 4, request)
        assert name_of(answer.error_code) == "INCONSISTENT_CLUSTER_ID"

    def test_an_id_in_use_is_refused_while_its_owner_lives(self, controller: Calls, cluster_id: str) -> None:
        request = registration(controller, cluster_id, 1, log_dirs=[uuid4()])
        answer = controller.request(ApiKey.BROKER_REGISTRATION, 4, request)
        assert name_of(answer.error_code) == "DUPLICATE_BROKER_REGISTRATION"

    @pytest.mark.parametrize(
        ("broker_id", "broker_epoch", "error"), [(1, 0, "STALE_BROKER_EPOCH"), (77, 0, "STALE_BROKER_EPOCH")]
    )
    def test_an_unknown_broker_is_refused(
        self, controller: Calls, broker_id: int, broker_epoch: int, error: str
    ) -> None:
        request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        assert name_of(controller.request(ApiKey.BROKER_HEARTBEAT, 2, request).error_code) == error
        ids = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        assert name_of(controller.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, ids).error_code) == error

    def test_blocks_of_producer_ids_do_not_overlap(self, controller: Calls, cluster_id: str) -> None:
        request = registration(controller, cluster_id, 91)
        broker_epoch = controller.request(ApiKey.BROKER_REGISTRATION, 4, request).broker_epoch
        ids = AllocateProducerIdsRequest(broker_id=91, broker_epoch=broker_epoch)
        blocks = [controller.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, ids) for _ in range(3)]
        assert not any(block.error_code for block in blocks)
        assert [block.producer_id_start - blocks[0].producer_id_start for block in blocks] == [0, 1000, 2000]

    @pytest.mark.parametrize("version", [2, 3])
    def test_in_sync_sets_are_changed_by_the_leader_alone(self, controller: Calls, version: int) -> None:
        partition = PartitionData(partition_index=0, leader_epoch=0, partition_epoch=0)
        if version == 2:
            partition.new_isr = [1]
        else:
            partition.new_isr_with_epochs = [BrokerState(broker_id=1)]
        topic = TopicData(topic_id=UUID(int=12345), partitions=[partition])
        request = AlterPartitionRequest(broker_id=1, broker_epoch=0, topics=[topic])
        answer = controller.request(ApiKey.ALTER_PARTITION, version, request)
        assert name_of(answer.error_code) == "STALE_BROKER_EPOCH"


class TestControllers:
    def test_a_controller_registers_itself_at_start(self, controller: Calls, node: Node) -> None:
        answer = controller.request(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(endpoint_type=CONTROLLERS))
        assert [(each.broker_id, each.port) for each in answer.brokers] == [(1, node.controller_port)]

    def test_another_registers(self, controller: Calls) -> None:
        request = ControllerRegistrationRequest(
            controller_id=55,
            incarnation_id=uuid4(),
            listeners=[ControllerListener(name="CONTROLLER", host="127.0.0.1", port=5)],
            features=[
                ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported(controller).items()
            ],
        )
        assert controller.request(ApiKey.CONTROLLER_REGISTRATION, 0, request).error_code == 0
        answer = controller.request(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(endpoint_type=CONTROLLERS))
        assert (55, "127.0.0.1", 5) in [(each.broker_id, each.host, each.port) for each in answer.brokers]

    def test_one_without_our_features_is_refused(self, controller: Calls) -> None:
        request = ControllerRegistrationRequest(
            controller_id=56, incarnation_id=uuid4(), listeners=[ControllerListener(name="C", host="h", port=5)]
        )
        answer = controller.request(ApiKey.CONTROLLER_REGISTRATION, 0, request)
        assert name_of(answer.error_code) == "UNSUPPORTED_VERSION"


def sealed(key: ApiKey, version: int, request: Any, **fields: Any) -> EnvelopeRequest:
    data = b"".join(encode_request(key, version, 42, "forwarded", request))[LENGTH_BYTES:]
    given: dict[str, Any] = {"request_principal": PRINCIPAL, "client_host_address": LOCALHOST, "request_data": data}
    return EnvelopeRequest(**(given | fields))


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


class TestEnvelope:
    @pytest.mark.parametrize("version", range(2, 8))
    def test_the_inner_request_is_answered_in_its_own_version(self, controller: Calls, version: int) -> None:
        name = fresh_name()
        request = sealed(ApiKey.CREATE_TOPICS, version, creation(name))
        answer = controller.request(ApiKey.ENVELOPE, 0, request)
        assert answer.error_code == 0
        header, offset = decode_response_header(ApiKey.CREATE_TOPICS, version, answer.response_data)
        inner: Any = codec.decode(API[ApiKey.CREATE_TOPICS].response, answer.response_data, version, offset)
        assert header.correlation_id == 42
        assert (one(inner.topics).name, one(inner.topics).error_code) == (name, 0)

    def test_an_answer_with_an_error_is_an_answer(self, controller: Calls) -> None:
        request = sealed(ApiKey.CREATE_TOPICS, 7, creation("no/name"))
        answer = controller.request(ApiKey.ENVELOPE, 0, request)
        _, offset = decode_response_header(ApiKey.CREATE_TOPICS, 7, answer.response_data)
        inner: Any = codec.decode(API[ApiKey.CREATE_TOPICS].response, answer.response_data, 7, offset)
        assert name_of(one(inner.topics).error_code) == "INVALID_TOPIC_EXCEPTION"

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"request_principal": None}, "PRINCIPAL_DESERIALIZATION_FAILURE"),
            ({"request_principal": b"\0\7what"}, "PRINCIPAL_DESERIALIZATION_FAILURE"),
            ({"request_principal": PRINCIPAL[:-2]}, "PRINCIPAL_DESERIALIZATION_FAILURE"),
            ({"client_host_address": b"abcde"}, "INVALID_REQUEST"),
            ({"request_data": b""}, "INVALID_REQUEST"),
            ({"request_data": b"\0\x13\0\x07\0\0\0\1garbage that is not a request"}, "INVALID_REQUEST"),
        ],
    )
    def test_a_broken_one_is_refused(self, controller: Calls, fields: dict[str, Any], error: str) -> None:
        request = sealed(ApiKey.CREATE_TOPICS, 7, creation(fresh_name()), **fields)
        assert name_of(controller.request(ApiKey.ENVELOPE, 0, request).error_code) == error

    def test_only_what_brokers_forward_may_be_inside(self, controller: Calls) -> None:
        beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=0)
        for key, version, request in (
            (ApiKey.BROKER_HEARTBEAT, 2, beat),
            (ApiKey.ENVELOPE, 0, sealed(ApiKey.BROKER_HEARTBEAT, 2, beat)),
            (ApiKey.METADATA, 12, MetadataRequest(topics=[])),
        ):
            answer = controller.request(ApiKey.ENVELOPE, 0, sealed(key, version, request))
            assert name_of(answer.error_code) == "INVALID_REQUEST", key

    def test_many_wait_for_their_commits_at_once_and_are_answered_in_order(self, controller: Calls) -> None:
        names = [fresh_name() for _ in range(20)]
        sent = [controller.send(ApiKey.ENVELOPE, 0, sealed(ApiKey.CREATE_TOPICS, 7, creation(name))) for name in names]
        for correlation_id, name in zip(sent, names, strict=True):
            answer = controller.receive(ApiKey.ENVELOPE, 0, correlation_id)
            _, offset = decode_response_header(ApiKey.CREATE_TOPICS, 7, answer.response_data)
            inner: Any = codec.decode(API[ApiKey.CREATE_TOPICS].response, answer.response_data, 7, offset)
            assert (one(inner.topics).name, one(inner.topics).error_code) == (name, 0)
