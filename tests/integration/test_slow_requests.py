"""A node's log in JSON, and its lines for slow requests."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from odradek.testing.processes import NodeProcess
from tests.support.clients.cli import odradek
from tests.support.nodes.cluster import Cluster, await_in_sync
from tests.support.nodes.scrapes import ANY_PORT, metrics_address, scrape
from tests.support.waiting import PATIENCE_S, eventually

SLOW_MS = 300


def slow(node: NodeProcess, api: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in node.log_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "a request was slow" and line["api"] == api]


def test_a_producer_that_waited_for_a_replica_is_logged_in_json(tmp_path: Path) -> None:
    settings = {**ANY_PORT, "odradek.log.format": "json", "odradek.request.slow.ms": SLOW_MS}
    with Cluster(tmp_path, brokers=2, settings=settings) as cluster:
        created = ("topics", "create", "--topic", "orders", "--replica-assignment", "1:2")
        odradek(cluster.bootstrap_servers, *created)
        await_in_sync(cluster.brokers, "orders", partitions=1, copies=2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "shop", "linger.ms": 0})
        producer.produce("orders", b"first")
        assert producer.flush(PATIENCE_S) == 0
        cluster[2].pause()
        try:
            producer.produce("orders", b"waits")
            waiting = frozenset[tuple[str, str]]()
            eventually(lambda: scrape(metrics_address(cluster[1]))["odradek_produces_waiting"][waiting] == 1)
            # The pause itself makes the request slow: it is no wait for something to happen.
            time.sleep(2 * SLOW_MS / 1000)
        finally:
            cluster[2].resume()
        assert producer.flush(PATIENCE_S) == 0
        eventually(lambda: slow(cluster[1], "Produce"), "the line is written")
        line = slow(cluster[1], "Produce")[-1]
        assert line["waited_for"] == "the in-sync replicas 1,2 of orders-0"
        assert line["remote_ms"] > SLOW_MS and line["total_ms"] >= line["remote_ms"]
        assert (line["client_id"], line["principal"], line["level"]) == ("shop", "User:ANONYMOUS", "WARNING")
        texts = [text for text in cluster[1].log_text().splitlines() if " INFO " in text or " WARNING " in text]
        assert texts == [], "the whole log is in JSON"
