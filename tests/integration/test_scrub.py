"""A bit that flips under a running broker is found by the scrub, and repaired from another replica before a reader."""

from __future__ import annotations

import urllib.request
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.processes import NodeProcess
from tests.support.clients.api_calls import Calls, name_of
from tests.support.clients.confluent import create_topic, read_all
from tests.support.nodes.cluster import Cluster, await_in_sync
from tests.support.nodes.node import Node, free_port
from tests.support.waiting import eventually

TOPIC = "kept"
COUNT = 60
SETTINGS: dict[str, object] = {"odradek.log.scrub.interval.ms": 100, "odradek.log.scrub.bytes.per.second": 100 << 20}


def value(number: int) -> bytes:
    return b"%05d" % number * 20_000


def fill(servers: str) -> None:
    """Produce some segments of a megabyte, with a batch for each record."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "batch.num.messages": 1, "linger.ms": 0})
    for number in range(COUNT):
        producer.produce(TOPIC, value(number))
    assert producer.flush(120) == 0


def flip_a_bit(directory: Path) -> tuple[Path, bytes]:
    """Flip a bit in the middle of the second segment, which the broker has written; return its path and old bytes."""
    path = sorted((directory / f"{TOPIC}-0").glob("*.log"))[1]
    before = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(len(before) // 2)
        file.write(bytes([before[len(before) // 2] ^ 1]))
    return path, before


def scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("odradek_scrub")}


def log_directory(node: NodeProcess) -> Path:
    return next(path.parent for path in node.plan.directory.rglob(f"{TOPIC}-0"))


def is_repaired(node: NodeProcess, path: Path, before: bytes) -> bool:
    return path.read_bytes() == before and "corrupt batches repaired from a replica" in node.log_text()


def all_values(servers: str) -> list[bytes | None]:
    return [message.value() for message in read_all(servers, TOPIC, 1, timeout_s=120)]


def test_a_flipped_bit_is_repaired_from_another_replica(tmp_path: Path) -> None:
    with Cluster(tmp_path, brokers=3, settings=SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3, config={"segment.bytes": str(1 << 20)})])[TOPIC].result(60)
        fill(cluster.bootstrap_servers)
        await_in_sync(cluster.brokers, TOPIC, partitions=1, copies=3)
        for node in cluster.brokers:  # the leader and both followers, one after the other
            path, before = flip_a_bit(log_directory(node))
            eventually(partial(is_repaired, node, path, before))
            assert "log directory offline" not in node.log_text()
        assert all_values(cluster.bootstrap_servers) == [value(number) for number in range(COUNT)]


def test_a_single_replica_says_so_once_and_counts_it(tmp_path: Path) -> None:
    port = free_port()
    listener = {"odradek.metrics.listener": f"127.0.0.1:{port}"}
    with Node(tmp_path, SETTINGS | listener) as node:
        create_topic(node.bootstrap, TOPIC, segment_bytes=1 << 20)
        fill(node.bootstrap)
        eventually(lambda: scrape(port)["odradek_scrub_segments_total"] > 0)
        assert scrape(port)["odradek_scrub_damage_total"] == 0
        path, _ = flip_a_bit(node.data_dir)
        eventually(lambda: scrape(port)["odradek_scrub_damage_total"] > 1)  # by two passes
        found = scrape(port)
        assert found["odradek_scrub_read_bytes_total"] > 0
        assert found["odradek_scrub_passes_total"] > 0
        assert 0 <= found["odradek_scrub_progress"] <= 1
        (line,) = [line for line in node.log_text().splitlines() if "damaged batch" in line]
        assert str(path) in line
        assert "restore the file from a copy" in line
        with Calls(node.port) as calls:  # not served, though this process wrote it
            offset, codes = 0, set[str]()
            while offset < COUNT and not codes - {"NONE"}:
                answer = calls.read(TOPIC, offset, max_bytes=1)
                codes.add(name_of(answer.error_code))
                offset += 1
        assert "CORRUPT_MESSAGE" in codes


def test_a_scrub_that_is_switched_off_reads_nothing(tmp_path: Path) -> None:
    port = free_port()
    off = {"odradek.log.scrub.enable": "false", "odradek.metrics.listener": f"127.0.0.1:{port}"}
    with Node(tmp_path, SETTINGS | off) as node:
        create_topic(node.bootstrap, TOPIC, segment_bytes=1 << 20)
        fill(node.bootstrap)
        assert scrape(port)["odradek_scrub_read_bytes_total"] == 0
