"""Quotas in a cluster: in force on every broker, counted by the active controller, and never between brokers."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.testing import Cluster
from tests.support.clients.api_calls import Calls, batch, fresh_name, produce_request
from tests.support.clients.confluent import create_topic
from tests.support.clients.quotas import quotas_set, set_quotas
from tests.support.waiting import eventually

pytestmark = pytest.mark.only_ours


def port_of(cluster: Cluster, node_id: int) -> int:
    return int(cluster.address(node_id).rpartition(":")[2])


def waits_of(port: int, client_id: str, topic: str) -> bool:
    """Whether a broker makes a client wait that sends a Produce, which need not lead the partition."""
    with Calls(port, client_id=client_id) as calls:
        answer = calls.request(ApiKey.PRODUCE, 9, produce_request(topic, batch(b"x" * 1000)))
        return bool(answer.throttle_time_ms > 0)


def test_quotas_hold_on_every_broker_and_not_between_them(odradek_cluster: Any) -> None:
    cluster: Cluster = odradek_cluster
    topic, mine = fresh_name(), fresh_name("app")
    create_topic(cluster.bootstrap_servers, topic, copies=3)
    ports = [port_of(cluster, node_id) for node_id in cluster.node_ids]
    set_quotas(ports[0], {"client-id": mine}, producer_byte_rate=1, controller_mutation_rate=0.001)
    for port in ports:
        eventually(lambda port=port: waits_of(port, mine, topic))

    # A broker that is not the active controller passes the request on.
    other = next(node_id for node_id in cluster.node_ids if node_id != cluster.controller())
    topics = [CreatableTopic(name=fresh_name(), num_partitions=1, replication_factor=1) for _ in range(2)]
    asked = CreateTopicsRequest(topics=topics, timeout_ms=30_000)
    with Calls(port_of(cluster, other), client_id=mine) as calls:
        answer = calls.request(ApiKey.CREATE_TOPICS, 7, asked)
    assert [each.error_code for each in answer.topics] == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert answer.throttle_time_ms > 100_000
    by_use = MetadataRequest(topics=[MetadataRequestTopic(name=fresh_name())], allow_auto_topic_creation=True)
    with Calls(port_of(cluster, other), client_id=mine) as calls:
        assert calls.request(ApiKey.METADATA, 12, by_use).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with Calls(port_of(cluster, other)) as calls:
        assert calls.request(ApiKey.METADATA, 12, by_use).topics[0].error_code == 0

    # With 100 bytes per second for all the followers would need half an hour.
    writer, leader = fresh_name("app"), port_of(cluster, cluster.leader(topic))
    slow_readers = quotas_set(ports[0], {"user": None}, consumer_byte_rate=100)
    fast_writer = quotas_set(ports[0], {"user": None, "client-id": writer}, producer_byte_rate=10_000_000)
    with slow_readers, fast_writer, Calls(leader, client_id=writer) as calls:
        for _ in range(4):
            assert calls.produce(topic, batch(b"x" * 50_000), acks=-1).error_code == 0
