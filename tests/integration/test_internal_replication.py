"""INTERNAL in plain text beside EXTERNAL with TLS: records of clients cross EXTERNAL once, and replicas fetch them over
INTERNAL."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients.confluent import produce_all, read_all
from tests.support.nodes.two_sided import BOTH, Relay, TwoSided
from tests.support.waiting import eventually

RECORDS, RECORD_BYTES = 100, 20_000
WRITTEN = RECORDS * RECORD_BYTES
# The largest share of headers, TLS, metadata and requests of replicas in 2 MB of records.
BESIDE = 0.2


class Counted(TwoSided):
    """A cluster in which clients and nodes reach each listener of each node through a relay that counts bytes."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        targets = {(node.node_id, "INTERNAL"): node.plan.port for node in self.brokers}
        targets |= {(node.node_id, "EXTERNAL"): self.ports[node.node_id] for node in self.brokers}
        self.relays = {key: Relay(port) for key, port in targets.items()}
        self.advertise({key: ("127.0.0.1", relay.port) for key, relay in self.relays.items()})

    def crossed(self) -> dict[str, int]:
        """The bytes that have crossed each listener of all nodes so far, both ways."""
        return {name: sum(each.byte_count for (_, of), each in self.relays.items() if of == name) for name in BOTH}

    def has_clients(self) -> bool:
        """Whether a connection to EXTERNAL is open."""
        return not all(each.is_idle for (_, name), each in self.relays.items() if name == "EXTERNAL")

    def close(self) -> None:
        for each in self.relays.values():
            each.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Counted]:
    with contextlib.closing(Counted(tmp_path)) as cluster, cluster:
        yield cluster


def write_and_read(cluster: Counted) -> dict[str, int]:
    """Write and read as a client of EXTERNAL; return the bytes over each listener until all nodes have the records."""
    bootstrap, client = f"127.0.0.1:{cluster.ports[1]}", cluster.certificates.client()
    admin = AdminClient({"bootstrap.servers": bootstrap, **client})
    admin.create_topics([NewTopic("t", 3, 3, config={"min.insync.replicas": "3"})])["t"].result(60)

    def is_whole() -> bool:
        partitions = admin.list_topics("t", timeout=60).topics["t"].partitions
        return len(partitions) == 3 and all(len(each.isrs) == 3 for each in partitions.values())

    eventually(is_whole)
    # A leader that does not know its partition yet has the client send a batch twice.
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **client})
    for partition in range(3):
        producer.produce("t", b"", partition=partition)
    assert producer.flush(60) == 0
    chance, before = random.Random(1), cluster.crossed()
    given: dict[str, Any] = {key.replace(".", "_"): text for key, text in client.items()}
    values = [chance.randbytes(RECORD_BYTES) for _ in range(RECORDS)]
    produce_all(bootstrap, "t", [(None, value) for value in values], acks="all", **given)
    after = cluster.crossed()
    found = [each.value() or b"" for each in read_all(bootstrap, "t", 3, **given)]
    assert sorted(found) == sorted([*values, b"", b"", b""])
    return {name: after[name] - before[name] for name in BOTH}


def test_replication_stays_on_the_internal_listener(cluster: Counted) -> None:
    crossed = write_and_read(cluster)
    assert WRITTEN <= crossed["EXTERNAL"] < WRITTEN * (1 + BESIDE)
    assert 2 * WRITTEN <= crossed["INTERNAL"] < 2 * WRITTEN * (1 + BESIDE)
    eventually(lambda: not cluster.has_clients())
    before = cluster.crossed()
    cluster[3].stop()
    cluster[3].start()
    eventually(lambda: cluster.crossed()["INTERNAL"] > before["INTERNAL"] + 10_000)
    # Not one byte crosses it: there is no client, and no node is a client of it.
    assert cluster.crossed()["EXTERNAL"] == before["EXTERNAL"]
