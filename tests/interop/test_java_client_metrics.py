"""Kafka's Java clients push their metrics to a broker (KIP-714), compressed, and the broker shows them at /metrics."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.record.compression import GZIP, LZ4, SNAPPY, ZSTD
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic
from tests.support.nodes.apache_kafka import TOOL_JVM_OPTIONS, java_command, require_kafka, run_tool
from tests.support.nodes.node import Node, free_port
from tests.support.nodes.scrapes import scrape
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("java") / "PushMetrics.java"
TOOL = "org.apache.kafka.tools.ClientMetricsCommand"
# The client logs each request that it sends, and each response.
LOGGING = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.NetworkClient=debug"
OFFERED = {ZSTD, LZ4, GZIP, SNAPPY}
PRODUCER, CONSUMER = "java-producer", "java-consumer"


class Clients:
    """The Java producer and the Java consumer, while they run.

    Attributes:
        instances: client.id → the client instance id that the broker gave it.
    """

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        assert process.stdout is not None and process.stdin is not None
        self.process = process
        self.log = log
        self.instances = {name: process.stdout.readline().strip() for name in (PRODUCER, CONSUMER)}
        assert all(self.instances.values()), log.read_text()[-3000:]

    def accepted(self, client_id: str) -> list[int]:
        """The codecs of the pushes of a client that were answered without an error."""
        lines = [line for line in self.log.read_text().splitlines() if f"clientId={client_id}, correlationId=" in line]
        said = "\n".join(lines)
        sent = re.findall(r"Sending PUSH_TELEMETRY .*correlationId=(\d+),.*\bcompressionType=(\d+)", said)
        answered = re.findall(r"Received PUSH_TELEMETRY .*correlationId=(\d+),.*\berrorCode=(\d+)", said)
        errors = {number: int(code) for number, code in answered}
        return [int(codec) for number, codec in sent if errors.get(number) == 0]

    def end(self) -> None:
        """Close the clients, which push for a last time."""
        assert self.process.stdin is not None
        self.process.stdin.write("end\n")
        self.process.stdin.flush()
        assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()[-3000:]


@contextmanager
def clients(node: Node, topic: str, log: Path) -> Iterator[Clients]:
    command = java_command(str(PROGRAM), [node.bootstrap, topic], (*TOOL_JVM_OPTIONS, LOGGING))
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True)
    with process:
        try:
            yield Clients(process, log)
        finally:
            process.kill()


def shown(address: str, instance: str) -> dict[str, str]:
    """Metric → client.id, of the metrics that a client instance has pushed."""
    return {
        of["metric"]: of["client_id"]
        for labels in scrape(address).get("odradek_client_metric", {})
        if (of := dict(labels))["client"] == instance
    }


def test_java_clients_push_compressed_metrics(tmp_path: Path) -> None:
    require_kafka()
    address = f"127.0.0.1:{free_port()}"
    with Node(tmp_path / "node", {"odradek.metrics.listener": address}) as node:
        create_topic(node.bootstrap, "measured")
        wanted = ("--metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer.", "--match", "client_id=java-.*")
        alter = ["--bootstrap-server", node.bootstrap, "--alter", "--name", "java", "--interval", 100, *wanted]
        run_tool(TOOL, alter)
        # A client that gets no subscription asks again after five minutes.
        eventually(lambda: "java" in odradek(node.bootstrap, "client-metrics", "list").out)
        with clients(node, "measured", tmp_path / "clients.log") as running:
            for client_id, instance in running.instances.items():
                found = eventually(lambda instance=instance: shown(address, instance), running.log.read_text)
                kind = client_id.removeprefix("java-")
                assert set(found.values()) == {client_id}
                assert all(metric.startswith(f"org.apache.kafka.{kind}.") for metric in found), found
                codecs = eventually(lambda name=client_id: running.accepted(name), running.log.read_text)
                assert set(codecs) <= OFFERED, "each push is compressed"
            assert len(set(running.instances.values())) == 2
            assert scrape(address)["odradek_client_metrics_pushes_total"][frozenset()] >= 2
            running.end()
            for instance in running.instances.values():
                eventually(lambda instance=instance: not shown(address, instance), "a client that has ended is gone")
