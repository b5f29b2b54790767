"""Probes of real nodes: `/livez`, `/readyz` and `/drained` while a cluster starts, falls behind and drains."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from odradek.testing.processes import NodeProcess
from tests.support.clients.cli import odradek
from tests.support.nodes.cluster import Cluster, await_in_sync
from tests.support.nodes.scrapes import ANY_PORT, metrics_address
from tests.support.waiting import PATIENCE_S, eventually

TOPIC = "orders"


def get_page(node: NodeProcess, path: str) -> tuple[int, dict[str, Any]]:
    """(status, answer) of a page; OSError before the node listens."""
    try:
        with urllib.request.urlopen(f"http://{metrics_address(node)}{path}", timeout=PATIENCE_S) as page:
            return page.status, json.loads(page.read())
    except urllib.error.HTTPError as error:
        with error:
            assert error.headers["Content-Type"] == "application/json"
            return error.code, json.loads(error.read())


def failing(node: NodeProcess) -> list[str]:
    status, said = get_page(node, "/readyz")
    assert (status == 200) is said["ready"] is (not said["failing"])
    return list(said["failing"])


def not_in_sync(node: NodeProcess) -> list[str]:
    return list(get_page(node, "/readyz")[1]["conditions"]["in_sync"].get("partitions", []))


def set_brokers(cluster: Cluster, node_id: int, key: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(key, value or "", incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node_id), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def make(cluster: Cluster) -> None:
    """Broker 3 follows in partition 0, where it can be held back, and leads partition 1."""
    held_back = "follower.replication.throttled.replicas=0:3"
    created = ("topics", "create", "--topic", TOPIC, "--replica-assignment", "1:2:3,3:1:2", "--config", held_back)
    odradek(cluster.bootstrap_servers, *created)


def test_probes_follow_a_cluster_from_its_start_to_a_drain(tmp_path: Path) -> None:
    settings = {**ANY_PORT, "replica.fetch.max.bytes": 1024}
    cluster = Cluster(tmp_path, settings=settings)
    try:
        first = cluster[1]
        first.launch()
        # Alone of three it finds no quorum: it lives, and says what it waits for.
        assert eventually(lambda: failing(first)) == ["registered", "unfenced", "caught_up", "serving"]
        assert get_page(first, "/livez") == (200, {"live": True})
        for node_id in (2, 3):
            cluster[node_id].launch()
        for node in cluster.brokers:
            node.await_ready()
            eventually(lambda node=node: not failing(node), f"{node.node_id} is ready")

        make(cluster)
        await_in_sync(cluster.brokers, TOPIC, partitions=2, copies=3)
        set_brokers(cluster, 3, "follower.replication.throttled.rate", "1")
        cluster[3].stop()
        producer = Producer({"bootstrap.servers": cluster[1].bootstrap, "linger.ms": 0})
        for _ in range(3):
            producer.produce(TOPIC, b"x" * 100_000, partition=0)
            assert producer.flush(PATIENCE_S) == 0
        cluster[3].start()
        eventually(lambda: not_in_sync(cluster[3]) == [f"{TOPIC}-0"], "the one that is held back is not ready")
        assert failing(cluster[3]) == ["in_sync"]
        eventually(lambda: failing(cluster[2]) == [], "only the replica itself is not ready")
        set_brokers(cluster, 3, "follower.replication.throttled.rate", None)
        eventually(lambda: failing(cluster[3]) == [], "it has caught up")
        odradek(cluster.bootstrap_servers, "partitions", "elect", "--all")

        eventually(lambda: get_page(cluster[3], "/drained")[1]["leads"] >= 1, "it leads again")
        status, said = get_page(cluster[3], "/drained")
        assert (status, said["drained"], said["draining"]) == (503, False, False)
        assert said["movable"] == said["leads"]
        odradek(cluster.bootstrap_servers, "drain", "3")
        eventually(lambda: get_page(cluster[3], "/drained")[0] == 200, "it is drained")
        _, said = get_page(cluster[3], "/drained")
        assert said == {"drained": True, "draining": True, "leads": 0, "movable": 0}
        eventually(lambda: failing(cluster[3]) == [], "a broker that leads nothing is ready")

        cluster[3].kill()
        cluster[2].kill()
        eventually(lambda: "caught_up" in failing(first), "the quorum is lost")
        assert get_page(first, "/livez")[0] == 200
    finally:
        cluster.kill()
