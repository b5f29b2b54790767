"""Two copiers in one group, killed with -9 again and again, as is the broker: the copy equals its source, once each."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.support.clients.confluent import create_topic
from tests.support.models.exactly_once import COPIER, committed_values, copy_cluster, fill_source
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S

PARTITIONS = 3
COPIERS = 2
MORE = 2_000


# Members of the newer protocol that are killed are waited for so long, as those of the older one.
SESSION_MS = 6000
PROTOCOLS = pytest.mark.parametrize("protocol", ["consumer", pytest.param("classic", marks=pytest.mark.slow)])


def start_copier(folder: Path, bootstrap: str, number: int, protocol: str) -> subprocess.Popen[bytes]:
    with (folder / f"copier-{number}.log").open("ab") as out:
        arguments = [bootstrap, "source", "copy", COPIER % number, protocol]
        command = [sys.executable, "-m", "tests.support.clients.copier", *arguments]
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def copy_under_kills(
    bootstrap: str,
    folder: Path,
    kill_a_node: Callable[[], None],
    *,
    protocol: str,
    records: int,
    kills: int,
    seed: int,
) -> None:
    """Copy `source` into `copy`, which are there; nodes and copiers are killed in turn, before the copy is whole."""
    random = Random(seed)
    expected = fill_source(bootstrap, "source", PARTITIONS, records)
    copiers = [start_copier(folder, bootstrap, number, protocol) for number in range(COPIERS)]
    try:
        for number in range(kills):
            time.sleep(random.uniform(0.5, 2.0))
            while number == kills - 1 and committed_values(bootstrap, "copy", PARTITIONS) == expected:
                # All is copied, and the last kill would prove nothing.
                for partition, more in fill_source(bootstrap, "source", PARTITIONS, MORE, start=records).items():
                    expected[partition] += more
                records += MORE
            if number % 2:
                kill_a_node()
            else:
                victim = random.randrange(COPIERS)
                copiers[victim].kill()
                copiers[victim].wait()
                copiers[victim] = start_copier(folder, bootstrap, victim, protocol)
        copied, grew_s = -1, time.monotonic()
        while (found := committed_values(bootstrap, "copy", PARTITIONS)) != expected:
            for number in range(PARTITIONS):
                assert found[number] == expected[number][: len(found[number])], f"partition {number}"
            if (count := sum(map(len, found.values()))) > copied:
                copied, grew_s = count, time.monotonic()
            assert time.monotonic() < grew_s + PATIENCE_S, f"{copied} of {records} are copied, and no more since"
            time.sleep(0.5)
    finally:
        for copier in copiers:
            copier.kill()
            copier.wait()


def copy_on_one_node(node: Node, folder: Path, *, protocol: str, records: int, kills: int, seed: int) -> None:
    session_ms = {"group.consumer.min.session.timeout.ms": SESSION_MS, "group.consumer.session.timeout.ms": SESSION_MS}
    node.stop()
    node.overrides |= session_ms | {"group.consumer.heartbeat.interval.ms": 1000}
    node.overrides["group.consumer.min.heartbeat.interval.ms"] = 1000
    node.start()
    for topic in ("source", "copy"):
        create_topic(node.bootstrap, topic, PARTITIONS)

    def kill_the_node() -> None:
        node.kill()
        node.start()

    copy_under_kills(node.bootstrap, folder, kill_the_node, protocol=protocol, records=records, kills=kills, seed=seed)


@pytest.mark.timeout(600)
@PROTOCOLS
def test_a_copy_equals_its_source(own_node: Node, tmp_path: Path, protocol: str) -> None:
    copy_on_one_node(own_node, tmp_path, protocol=protocol, records=4_000, kills=4, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@PROTOCOLS
def test_a_large_copy_equals_its_source(own_node: Node, tmp_path: Path, protocol: str) -> None:
    copy_on_one_node(own_node, tmp_path, protocol=protocol, records=100_000, kills=40, seed=2)


def copy_on_three_brokers(folder: Path, *, protocol: str, records: int, kills: int, seed: int) -> None:
    """Coordinators, leaders and the partitions of one transaction are on different brokers, each killed in its turn."""
    with copy_cluster(folder / "cluster", PARTITIONS) as cluster:
        copy_under_kills(
            cluster.bootstrap,
            folder,
            cluster.kill_next,
            protocol=protocol,
            records=records,
            kills=kills,
            seed=seed,
        )


@pytest.mark.timeout(600)
def test_a_copy_over_three_brokers_equals_its_source(tmp_path: Path) -> None:
    copy_on_three_brokers(tmp_path, protocol="classic", records=8_000, kills=4, seed=3)


@pytest.mark.slow
@pytest.mark.timeout(900)
@PROTOCOLS
def test_a_large_copy_over_three_brokers_equals_its_source(tmp_path: Path, protocol: str) -> None:
    copy_on_three_brokers(tmp_path, protocol=protocol, records=100_000, kills=30, seed=4)
