"""`odradek plan` as a command: its settings start a node, and clients take them."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from odradek.cli import app, errors
from odradek.settings.properties import parse_properties
from tests.support.clients.confluent import create_topic, read_all
from tests.support.nodes.node import Node


@pytest.mark.parametrize("profile", ["resilience", "throughput", "payload"])
def test_settings_are_taken_by_a_node_and_its_clients(profile: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    size = 3_000_000 if profile == "payload" else 10_000
    options = ["--size", str(size), "--rate", "100", "--outlive", "0", "--profile", profile, "--out", str(settings)]
    assert app.run(["plan", *options]) == errors.OK
    broker = parse_properties((settings / "broker.properties").read_text())
    with Node(tmp_path / "node", broker) as node:
        create_topic(node.bootstrap, "planned", 1)
        client = {"bootstrap.servers": node.bootstrap}
        producer = Producer({**parse_properties((settings / "librdkafka-producer.properties").read_text()), **client})
        failed: list[object] = []
        producer.produce("planned", b"x" * size, on_delivery=lambda error, message: failed.append(error))
        producer.flush()
        assert failed == [None]
        reading = parse_properties((settings / "librdkafka-consumer.properties").read_text())
        Consumer({**reading, **client, "group.id": "planned"}).close()
        (message,) = read_all(node.bootstrap, "planned")
        assert len(message.value() or b"") == size


def test_a_plan_is_a_table_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["plan", "--size", "10KB", "--rate", "3000", "--latency", "100ms", "--retention", "2d"]) == errors.OK
    shown = capsys.readouterr().out
    assert "at least 3.0 MB" in shown and "docs/benchmarks-cluster.md" in shown
    assert "# broker.properties\nnum.partitions=3\ndefault.replication.factor=3\nmin.insync.replicas=2\n" in shown


@pytest.mark.parametrize(
    ("option", "value"),
    [("--size", "10 parsecs"), ("--size", "0"), ("--latency", "1"), ("--retention", "3M"), ("--retention", "soon")],
)
def test_invalid_amounts(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"--size": "1KB", "--rate": "1"} | {option: value}
    assert app.run(["plan", *(word for pair in given.items() for word in pair)]) == errors.USAGE
    assert f"{option} {value}: give a number above 0 with one of " in capsys.readouterr().err
