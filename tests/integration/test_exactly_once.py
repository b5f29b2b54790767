"""Two copiers in one group, killed with -9 again and again, as is the broker: the copy equals its source, once each."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.support.clients import create_topic
from tests.support.exactly_once import committed_values, fill_source
from tests.support.node import Node

PARTITIONS = 3
COPIERS = 2


def start_copier(folder: Path, node: Node, number: int) -> subprocess.Popen[bytes]:
    with (folder / f"copier-{number}.log").open("ab") as out:
        command = [sys.executable, "-m", "tests.support.copier", node.bootstrap, "source", "copy", f"copier-{number}"]
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def copy_under_kills(node: Node, folder: Path, *, records: int, kills: int, seed: int) -> None:
    random = Random(seed)
    create_topic(node.bootstrap, "source", PARTITIONS)
    create_topic(node.bootstrap, "copy", PARTITIONS)
    expected = fill_source(node.bootstrap, "source", PARTITIONS, records)
    copiers = [start_copier(folder, node, number) for number in range(COPIERS)]
    try:
        for number in range(kills):
            time.sleep(random.uniform(0.5, 2.0))
            if number % 2:
                node.kill()
                node.start()
            else:
                victim = random.randrange(COPIERS)
                copiers[victim].kill()
                copiers[victim].wait()
                copiers[victim] = start_copier(folder, node, victim)
        deadline = time.monotonic() + 60 + records / 500
        while (found := committed_values(node.bootstrap, "copy", PARTITIONS)) != expected:
            for number in range(PARTITIONS):
                assert found[number] == expected[number][: len(found[number])], f"partition {number}"
            copied = sum(map(len, found.values()))
            assert time.monotonic() < deadline, f"{copied} of {records} are copied"
            time.sleep(0.5)
    finally:
        for copier in copiers:
            copier.kill()
            copier.wait()


def test_a_copy_equals_its_source(own_node: Node, tmp_path: Path) -> None:
    copy_under_kills(own_node, tmp_path, records=10_000, kills=6, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_large_copy_equals_its_source(own_node: Node, tmp_path: Path) -> None:
    copy_under_kills(own_node, tmp_path, records=100_000, kills=40, seed=2)
