"""Client metrics (KIP-714): the subscriptions, the pushes, and the metrics that a node shows from them."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from confluent_kafka import Producer

from odradek.cli import errors
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from odradek.protocol.messages.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse
from odradek.protocol.messages.push_telemetry_request import PushTelemetryRequest
from odradek.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from tests.support.clients.api_calls import Calls, name_of
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic
from tests.support.clients.otlp import attribute, gauge, metrics_data, number, total
from tests.support.nodes.node import Node, free_port
from tests.support.nodes.scrapes import scrape
from tests.support.waiting import PATIENCE_S, eventually

MAX_BYTES = 10_000
INTERVAL_MS = 100


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, str]]:
    address = f"127.0.0.1:{free_port()}"
    settings = {"odradek.metrics.listener": address, "telemetry.max.bytes": MAX_BYTES}
    with Node(tmp_path_factory.mktemp("telemetry"), settings) as node:
        yield node, address


@pytest.fixture
def calls(shown: tuple[Node, str]) -> Iterator[Calls]:
    with Calls(shown[0].port) as connection:
        yield connection


def subscribe(node: Node, name: str, *settings: str) -> None:
    odradek(node.bootstrap, "client-metrics", "set", name, *settings)


def get_subscription(calls: Calls, instance: UUID = UUID(int=0)) -> GetTelemetrySubscriptionsResponse:  # noqa: B008 - a constant
    answer: GetTelemetrySubscriptionsResponse = calls.request(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, GetTelemetrySubscriptionsRequest(client_instance_id=instance)
    )
    return answer


def push(
    calls: Calls, instance: UUID, subscription: int, data: bytes, codec: int = NONE, *, terminating: bool = False
) -> str:
    request = PushTelemetryRequest(
        client_instance_id=instance,
        subscription_id=subscription,
        terminating=terminating,
        compression_type=codec,
        metrics=data,
    )
    return name_of(calls.request(ApiKey.PUSH_TELEMETRY, 0, request).error_code)


def values(address: str, instance: UUID) -> dict[tuple[str, str], float]:
    """(metric, attributes) -> value."""
    return {
        (of["metric"], of["attributes"]): value
        for labels, value in scrape(address).get("odradek_client_metric", {}).items()
        if (of := dict(labels))["client"] == str(instance)
    }


def test_clients_are_invited_only_where_metrics_are_shown(shown: tuple[Node, str], calls: Calls) -> None:
    said = {each.api_key for each in calls.request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).api_keys}
    assert {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY} <= said


def test_a_client_without_a_subscription_is_asked_for_nothing(calls: Calls) -> None:
    answer = get_subscription(calls)
    assert name_of(answer.error_code) == "NONE" and answer.requested_metrics == []
    assert answer.client_instance_id.version == 4 and answer.delta_temporality
    assert (answer.push_interval_ms, answer.telemetry_max_bytes) == (300_000, MAX_BYTES)
    assert answer.accepted_compression_types == [ZSTD, LZ4, GZIP, SNAPPY]
    again = get_subscription(calls, answer.client_instance_id)
    assert name_of(again.error_code) == "THROTTLING_QUOTA_EXCEEDED"


def test_pushed_metrics_are_shown_until_the_client_ends(shown: tuple[Node, str], calls: Calls) -> None:
    node, address = shown
    subscribe(node, "pushed", "metrics=org.apache", f"interval.ms={INTERVAL_MS}")
    eventually(lambda: get_subscription(calls).requested_metrics == ["org.apache"])
    answer = get_subscription(calls)
    assert answer.push_interval_ms == INTERVAL_MS
    me, subscription = answer.client_instance_id, answer.subscription_id
    sent = total("org.apache.sent", number(5), is_delta=True)
    data = metrics_data(sent, gauge("org.apache.avg", number(1.5, attribute("node_id", 1))))
    assert push(calls, me, subscription, data) == "NONE"
    for codec in (ZSTD, LZ4, GZIP, SNAPPY):
        # A push is refused until the interval is over.
        eventually(lambda codec=codec: push(calls, me, subscription, compress(codec, data), codec) == "NONE")
    assert values(address, me) == {("org.apache.sent", ""): 25, ("org.apache.avg", "node_id=1"): 1.5}
    assert scrape(address)["odradek_client_metrics_pushes_total"][frozenset()] >= 5

    assert push(calls, me, subscription, data, terminating=True) == "NONE"
    assert push(calls, me, subscription, data) == "INVALID_REQUEST"
    assert values(address, me) == {}
    odradek(node.bootstrap, "client-metrics", "remove", "pushed")
    eventually(lambda: get_subscription(calls).requested_metrics == [])


def test_pushes_are_refused_as_on_kafka(shown: tuple[Node, str], calls: Calls) -> None:
    answer = get_subscription(calls)
    me, subscription = answer.client_instance_id, answer.subscription_id
    good = metrics_data(gauge("a", number(1)))
    assert push(calls, UUID(int=0), subscription, good) == "INVALID_REQUEST"

    def first_push(data: bytes, codec: int = NONE, off_by: int = 0) -> str:
        fresh = get_subscription(calls)
        return push(calls, fresh.client_instance_id, fresh.subscription_id + off_by, data, codec)

    assert first_push(good, off_by=1) == "UNKNOWN_SUBSCRIPTION_ID"
    assert first_push(good, 9) == "UNSUPPORTED_COMPRESSION_TYPE"
    assert first_push(bytes(MAX_BYTES + 1)) == "TELEMETRY_TOO_LARGE"
    assert first_push(good[:-1]) == "INVALID_RECORD"
    assert first_push(good, ZSTD) == "INVALID_RECORD"
    assert first_push(compress(GZIP, bytes(1_000_000)), GZIP) == "INVALID_RECORD"
    assert push(calls, me, subscription, good) == "NONE"
    assert push(calls, me, subscription, good) == "THROTTLING_QUOTA_EXCEEDED"


def test_librdkafka_pushes_what_it_is_asked_for(shown: tuple[Node, str]) -> None:
    node, address = shown
    subscribe(node, "stock", "metrics=*", "interval.ms=100", "match=client_id=stock")
    create_topic(node.bootstrap, "pushed")
    producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": "stock"})
    producer.produce("pushed", b"v")
    assert producer.flush(PATIENCE_S) == 0

    def metrics() -> set[str]:
        producer.poll(0)
        found = scrape(address).get("odradek_client_metric", {})
        return {of["metric"] for labels in found if (of := dict(labels))["client_id"] == "stock"}

    assert eventually(metrics)
    assert any("producer" in name for name in metrics())


def test_the_command_lists_sets_and_removes(shown: tuple[Node, str]) -> None:
    bootstrap = shown[0].bootstrap
    set_up = ("metrics=org.a,org.b", "match=client_id=app.*")
    assert odradek(bootstrap, "client-metrics", "set", "mine", *set_up).out == "mine: match, metrics set\n"
    listed = {"name": "mine", "metrics": "org.a,org.b", "interval.ms": "300000", "match": "client_id=app.*"}
    eventually(lambda: listed in odradek(bootstrap, "client-metrics", "list", "--json").json)
    assert ["mine", "org.a,org.b", "300000", "client_id=app.*"] in odradek(bootstrap, "client-metrics", "list").rows
    assert "Illegal client" in odradek(bootstrap, "client-metrics", "set", "mine", "match=user=x", code=None).err
    assert "none of" in odradek(bootstrap, "client-metrics", "set", "mine", "metric=x", code=errors.USAGE).err
    assert odradek(bootstrap, "client-metrics", "remove", "mine").out == "mine removed\n"
    eventually(lambda: odradek(bootstrap, "client-metrics", "remove", "mine", code=None).code == errors.NOT_FOUND)
