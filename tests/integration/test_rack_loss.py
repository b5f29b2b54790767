"""A whole rack dies: six brokers on two racks, two copies of everything, and nobody loses anything."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from odradek.testing.processes import ProcessCluster
from tests.support.cli import odradek
from tests.support.clients import produce_all, read_all

pytestmark = pytest.mark.timeout(240)

PARTITIONS = 12
RACK_A = (1, 3, 5)


def test_every_partition_is_served_from_the_other_rack(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, brokers=6, controllers=1, racks=["a", "b"]) as cluster:
        bootstrap = cluster.bootstrap_servers

        def described() -> list[dict[str, Any]]:
            (topic,) = odradek(bootstrap, "topics", "describe", "--topic", "racked", "--json").json
            partitions: list[dict[str, Any]] = topic["partitions"]
            return partitions

        create = ("topics", "create", "--topic", "racked", "--partitions", PARTITIONS, "--replication-factor", 2)
        odradek(bootstrap, *create)
        for partition in described():
            assert len({broker % 2 for broker in partition["replicas"]}) == 2, "one copy on each rack"
        assert {partition["leader"] for partition in described()} == {1, 2, 3, 4, 5, 6}
        written = [(b"%d" % number, b"before") for number in range(300)]
        produce_all(bootstrap, "racked", written, acks="all")
        for node_id in RACK_A:
            cluster[node_id].kill()
        deadline = time.monotonic() + 60
        while any(partition["leader"] in (*RACK_A, -1) for partition in described()):
            assert time.monotonic() < deadline, described()
            time.sleep(0.1)
        later = [(b"%d" % number, b"after") for number in range(300)]
        produce_all(bootstrap, "racked", later, acks="all")
        found = [(message.key(), message.value()) for message in read_all(bootstrap, "racked", PARTITIONS)]
        assert sorted(map(str, found)) == sorted(map(str, [*written, *later]))
        for node_id in RACK_A:
            cluster[node_id].start()
        while any(len(partition["isr"]) < 2 for partition in described()):
            assert time.monotonic() < deadline + 60, described()
            time.sleep(0.1)
        odradek(bootstrap, "partitions", "elect", "--all")
        assert all(partition["leader"] == partition["replicas"][0] for partition in described())
