"""A whole rack dies: six brokers on two racks, two copies of everything, and no record is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.testing.processes import ProcessCluster
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import produce_all, read_all
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 12
RACK_A = (1, 3, 5)


def test_every_partition_is_served_from_the_other_rack(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, brokers=6, controllers=1, racks=["a", "b"]) as cluster:
        bootstrap = cluster.bootstrap_servers

        def tried() -> Any:
            ran = odradek(bootstrap, "topics", "describe", "--topic", "racked", "--json", code=None)
            return ran.json[0]["partitions"] if ran.code == 0 else None

        def described() -> list[dict[str, Any]]:
            partitions: list[dict[str, Any]] = eventually(
                tried
            )  # the broker that is asked may not have heard of it yet
            return partitions

        create = ("topics", "create", "--topic", "racked", "--partitions", PARTITIONS, "--replication-factor", 2)
        odradek(bootstrap, *create)
        # Brokers hear of it one after the other.
        eventually(lambda: {partition["leader"] for partition in described()} == {1, 2, 3, 4, 5, 6})
        for partition in described():
            assert len({broker % 2 for broker in partition["replicas"]}) == 2, "one copy on each rack"
        written = [(b"%d" % number, b"before") for number in range(300)]
        produce_all(bootstrap, "racked", written, acks="all")
        for node_id in RACK_A:
            cluster[node_id].kill()
        eventually(lambda: not any(partition["leader"] in (*RACK_A, -1) for partition in described()))
        later = [(b"%d" % number, b"after") for number in range(300)]
        produce_all(bootstrap, "racked", later, acks="all")
        found = [(message.key(), message.value()) for message in read_all(bootstrap, "racked", PARTITIONS)]
        assert sorted(map(str, found)) == sorted(map(str, [*written, *later]))
        for node_id in RACK_A:
            cluster[node_id].start()
        eventually(lambda: all(len(partition["isr"]) == 2 for partition in described()))
        odradek(bootstrap, "partitions", "elect", "--all")
        eventually(lambda: all(partition["leader"] == partition["replicas"][0] for partition in described()))
