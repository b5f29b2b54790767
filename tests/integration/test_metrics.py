"""Metrics over HTTP: the counters, in the format that Prometheus reads, and errors for other requests."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from tests.support.clients.confluent import produce_all, read_all
from tests.support.nodes.node import Node, free_port
from tests.support.nodes.scrapes import Labels, scrape

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, int]]:
    port = free_port()
    with Node(tmp_path_factory.mktemp("metrics"), {"odradek.metrics.listener": f"127.0.0.1:{port}"}) as node:
        yield node, port


def test_produced_and_fetched_records_are_counted(scraped: tuple[Node, int]) -> None:
    node, port = scraped
    produce_all(node.bootstrap, "counted", [(None, b"v" * 100)] * 50)
    assert len(read_all(node.bootstrap, "counted")) == 50
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=90) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
    assert families["odradek_produced_records"].samples[0].value == 50
    assert families["odradek_fetched_bytes"].samples[0].value > 5000
    ends = {(s.labels["topic"], s.labels["partition"]): s.value for s in families["odradek_log_end_offset"].samples}
    assert ends["counted", "0"] == 50
    assert any(s.labels["api"] == "Produce" and s.value >= 1 for s in families["odradek_requests"].samples)


def test_the_page_has_the_names_and_kinds_of_a_scrape(scraped: tuple[Node, int]) -> None:
    node, port = scraped
    produce_all(node.bootstrap, "named", [(None, b"v")])
    assert len(read_all(node.bootstrap, "named")) == 1
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=90) as answer:
        kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", answer.read().decode(), re.MULTILINE))
    page = (ROOT / "docs" / "metrics.md").read_text()
    described = dict(re.findall(r"^\| `(\S+)` \| (\w+) \|", page, re.MULTILINE))
    # A family without samples is in a scrape, too.
    assert kinds == described


def test_the_phases_of_requests_are_histograms(scraped: tuple[Node, int]) -> None:
    node, port = scraped
    produce_all(node.bootstrap, "timed", [(None, b"v")])
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "timed", "fetch.wait.max.ms": 200})
    consumer.assign([TopicPartition("timed", 0, 1)])
    while of_api(scrape(f"127.0.0.1:{port}"), "Fetch", "remote", "sum") < 0.2:
        assert consumer.poll(0.1) is None, "nothing follows the record"
    consumer.close()
    found = scrape(f"127.0.0.1:{port}")
    for api in ("Produce", "Fetch", "Metadata"):
        times = {phase: of_api(found, api, phase, "sum") for phase in ("queue", "local", "remote", "send", "total")}
        assert times["total"] > 0 and times["local"] > 0
        assert sum(times.values()) == pytest.approx(2 * times["total"]), "phases are parts of the total"
        assert of_api(found, api, "throttle", "count") == of_api(found, api, "total", "count") > 0
    assert of_api(found, "Produce", "total", "bucket", le="+Inf") == of_api(found, "Produce", "total", "count")
    labels = frozenset({("api", "Metadata"), ("listener", "broker")})
    assert found["odradek_request_size_bytes_count"][labels] == found["odradek_response_size_bytes_count"][labels] > 0
    assert found["odradek_loop_cpu_seconds_total"][frozenset()] > 0


def of_api(found: dict[str, dict[Labels, float]], api: str, phase: str, what: str, **more: str) -> float:
    labels = {"api": api, "phase": phase, "listener": "broker", **more}
    return found[f"odradek_request_seconds_{what}"].get(frozenset(labels.items()), 0)


def test_other_paths_and_methods_are_refused_and_silence_is_not_waited_for(scraped: tuple[Node, int]) -> None:
    _, port = scraped
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=90)
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", data=b"x", timeout=90)
    with socket.create_connection(("127.0.0.1", port)) as flood:
        flood.sendall(b"x" * 20_000)
        assert b"431" in flood.recv(1000)
