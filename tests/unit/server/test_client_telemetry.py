"""Client metrics (KIP-714): which pushed metrics are stored, and which subscriptions match a client."""

from __future__ import annotations

import random
import struct
from types import MappingProxyType
from uuid import UUID

import pytest

from odradek.common.errors import ErrorCode
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import ResourceType
from odradek.server.telemetry.otlp import FIELDS_PER_POINT, OtlpError, Point, read_points
from odradek.server.telemetry.store import (
    LONGEST_CLIENT_ID,
    LONGEST_SERIES,
    MAX_CLIENTS,
    Client,
    ClientTelemetry,
    TelemetryConfig,
)
from odradek.server.telemetry.subscriptions import Resources, Subscription, selectors_of
from odradek.server.telemetry.subscriptions import subscription_of as subscription_of_resources
from odradek.settings.client_metrics import client_metrics_problems
from tests.support.clients.otlp import attribute, gauge, metrics_data, number, total

ME = UUID(int=7)


def store(max_series: int = 100) -> ClientTelemetry:
    return ClientTelemetry(TelemetryConfig(max_series=max_series), lambda: ME, is_on=True)


def shown(telemetry: ClientTelemetry, now_ms: int = 0) -> dict[str, float]:
    family = next(iter(telemetry.families(now_ms)))
    return {dict(each.labels)["metric"] + dict(each.labels)["attributes"]: each.value for each in family.samples}


def test_gauges_and_sums_are_read_with_their_attributes() -> None:
    data = metrics_data(
        gauge("org.apache.kafka.producer.node.request.latency.avg", number(1.5, attribute("node_id", 3))),
        total("org.apache.kafka.producer.connection.creation.total", number(7), number(-2), is_delta=True),
        total("seen", number(9, attribute("topic", "orders"), attribute("a", "b")), is_delta=False),
    )
    assert read_points(data, 100) == [
        Point("org.apache.kafka.producer.node.request.latency.avg", (("node_id", "3"),), 1.5, False),
        Point("org.apache.kafka.producer.connection.creation.total", (), 7, True),
        Point("org.apache.kafka.producer.connection.creation.total", (), -2, True),
        Point("seen", (("a", "b"), ("topic", "orders")), 9, False),
    ]
    assert len(read_points(data, 2)) == 2
    assert read_points(b"", 10) == []
    assert read_points(data, 0) == [], "a limit of 0 refuses no push"


def test_bytes_that_are_no_metrics_are_refused() -> None:
    good = metrics_data(gauge("a.b", number(1.5, attribute("k", "v"))))
    drawn = random.Random(3)
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(drawn.randrange(1, 4)):
            data[drawn.randrange(len(data))] = drawn.randrange(256)
        try:
            read_points(bytes(data[: drawn.randrange(len(data) + 1)]), 100)
        except OtlpError:
            continue
    for bad in (b"\x0a\x7f", b"\x0b", b"\xff" * 11, good[:-1], struct.pack(">q", -1)):
        with pytest.raises(OtlpError):
            read_points(bad, 100)


def test_deltas_are_summed_up_and_gauges_replaced() -> None:
    telemetry = store()
    client = telemetry.client(ME, "app")
    client.last_get_ms = client.last_push_ms = 0
    telemetry.store(client, [Point("sum", (), 2, True), Point("gauge", (), 5, False)])
    telemetry.store(client, [Point("sum", (), 3, True), Point("gauge", (("a", "b"),), 6, False)])
    assert shown(telemetry) == {"sum": 5, "gauge": 5, "gaugea=b": 6}


def test_series_and_clients_are_bounded_and_silent_ones_go() -> None:
    telemetry = store(max_series=3)
    client = telemetry.client(ME, "app")
    client.last_get_ms, client.interval_ms = 0, 10_000
    telemetry.store(client, [Point(f"m{each}", (), each, False) for each in range(5)])
    assert len(shown(telemetry, 30_000)) == 3 and telemetry.left_out == 2
    assert shown(telemetry, 30_001) == {}
    again = telemetry.client(ME, "app")
    again.last_get_ms = 30_001
    telemetry.store(again, [Point("m", (), 1, False)])
    assert shown(telemetry, 30_001) == {"m": 1}, "those that went have made room"
    for each in range(MAX_CLIENTS):
        telemetry.client(UUID(int=100 + each), "crowd").last_get_ms = 30_001
    assert shown(telemetry, 30_001) == {}
    clients = {family.name: family for family in telemetry.families(30_001)}["odradek_client_metrics_clients"]
    assert clients.samples[0].value == MAX_CLIENTS


def test_a_client_asks_and_pushes_no_more_often_than_its_interval() -> None:
    client = Client(interval_ms=1000)
    assert client.may_subscribe(0) and client.may_push(0)
    client.last_get_ms = 0
    assert not client.may_subscribe(899) and client.may_subscribe(900)
    assert client.may_push(1)
    client.last_push_ms = 1
    assert not client.may_push(900) and client.may_push(901)
    client.last_error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert client.may_subscribe(2)


def test_long_names_fill_no_memory() -> None:
    telemetry = store()
    client = telemetry.client(ME, "c" * 30_000)
    client.last_get_ms = 0
    longest = "n" * LONGEST_SERIES
    points = [Point(longest, (), 1, False), Point(longest + "n", (), 1, False), Point("a", (("k", longest),), 1, False)]
    telemetry.store(client, points)
    telemetry.store(client, points)
    assert shown(telemetry) == {longest: 1} and telemetry.left_out == 4
    assert len(client.client_id) == LONGEST_CLIENT_ID


def test_a_client_evicted_during_its_push_takes_no_room() -> None:
    telemetry = store(max_series=3)
    for each in range(5):
        client = telemetry.client(UUID(int=each), "app")
        assert not shown(telemetry, 10_000), "it has never asked, and is forgotten"
        telemetry.store(client, [Point("m", (), 1, False)])
    known = telemetry.client(ME, "app")
    known.last_get_ms = 10_000
    telemetry.store(known, [Point("m", (), 7, False)])
    assert shown(telemetry, 10_000) == {"m": 7}


def test_metrics_that_no_exporter_shows_are_not_kept() -> None:
    telemetry = ClientTelemetry(TelemetryConfig(), lambda: ME, is_on=False)
    client = telemetry.client(ME, "app")
    telemetry.store(client, [Point("m", (), 1, False)])
    assert telemetry.pushes == 1 and not client.series


def test_a_push_of_too_many_fields_is_refused() -> None:
    attributes = [attribute("", "")] * FIELDS_PER_POINT
    few = metrics_data(gauge("a", number(1, *attributes[:20])))
    assert len(read_points(few, 1)) == 1
    with pytest.raises(OtlpError, match="more fields"):
        read_points(metrics_data(gauge("a", number(1, *attributes))), 1)


def test_settings_of_client_metrics_are_found_once_for_an_image() -> None:
    resources, known = Resources(), image(two={"metrics": "b"}, one={"metrics": "a"})
    found = resources.of(known)
    assert [dict(each) for each in found] == [{"metrics": "a"}, {"metrics": "b"}]
    assert resources.of(known) is found and resources.of(image()) == []


def subscription_of(known: MetadataImage, client: dict[str, str]) -> Subscription:
    return subscription_of_resources(Resources().of(known), client)


def image(**resources: dict[str, str]) -> MetadataImage:
    configs = {(int(ResourceType.CLIENT_METRICS), name): settings for name, settings in resources.items()}
    return MetadataImage(configs=MappingProxyType(configs))


def test_subscriptions_add_up_for_a_client_that_they_match() -> None:
    app = selectors_of(ME, "app-1", "librdkafka 2.5", "10.0.0.1", 4711)
    rdkafka = "client_software_name=librdkafka,client_source_port=47.."
    known = image(
        one={"metrics": "org.a,org.b", "interval.ms": "5000", "match": "client_id=app-.*"},
        two={"metrics": "org.b, org.c", "interval.ms": "60000", "match": rdkafka},
        other={"metrics": "org.d", "match": "client_id=app"},
        nothing={"metrics": "", "interval.ms": "100"},
        bad={"metrics": "org.e", "match": "client_id=(("},
    )
    found = subscription_of(known, app)
    assert (found.metrics, found.interval_ms) == (("org.a", "org.b", "org.c"), 5000)
    assert subscription_of(known, app) == found
    assert subscription_of(known, {**app, "client_instance_id": "x"}).subscription_id != found.subscription_id
    unasked = subscription_of(image(), app)
    assert (unasked.metrics, unasked.interval_ms) == ((), 300_000)
    assert subscription_of(image(all={"metrics": "*,org.a"}), app).metrics == ("*",)


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"match": "client_id=a.*,client_software_name=x"}, 0),
        ({"match": "client_id"}, 1),
        ({"match": "user=x"}, 1),
        ({"match": "client_id=(,client_source_port=1"}, 1),
        ({"interval.ms": "99"}, 1),
        ({"interval": "1000"}, 1),
    ],
)
def test_settings_that_select_nothing_are_refused(settings: dict[str, str], count: int) -> None:
    assert len(client_metrics_problems("x", settings)) == count
