"""`odradek rebalance` on real brokers: shown, carried out, broken off and resumed, and no record is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.cli import errors
from odradek.cli.partition_moves import end_throttle, load_view, throttle_moves
from odradek.client.cluster import Cluster as Connected
from odradek.client.cluster import parse_bootstrap
from odradek.common.real_io import RealClock, RealNetwork
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import produce_all, read_all
from tests.support.nodes.cluster import Cluster
from tests.support.waiting import PATIENCE_S, eventually

RACKS = {1: "a", 2: "b", 3: "a", 4: "b"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"auto.leader.rebalance.enable": "false"}
    with Cluster(tmp_path_factory.mktemp("rebalance"), brokers=4, racks=["a", "b"], settings=settings) as running:
        yield running


def make(cluster: Cluster, topic: str, partitions: int, size: int) -> list[bytes]:
    """A topic whose partitions are all on the first two brokers; returns what was written."""
    placed = ",".join(["1:2"] * partitions)
    odradek(cluster.bootstrap_servers, "topics", "create", topic, "--replica-assignment", placed)
    values = [b"%03d" % number + os.urandom(size) for number in range(partitions * 5)]
    records = [(b"%d" % number, value) for number, value in enumerate(values)]
    produce_all(cluster.bootstrap_servers, topic, records, acks="all")
    return sorted(values)


def partitions(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    (shown,) = odradek(cluster.bootstrap_servers, "topics", "describe", topic, "--json").json
    assert "follower.replication.throttled.replicas" not in shown["configs"]
    return list(shown["partitions"])


def rebalance(cluster: Cluster, *options: object, code: int = 0) -> Any:
    return odradek(cluster.bootstrap_servers, "rebalance", "--watch", 0.2, *options, code=code)


def assert_even(cluster: Cluster, topic: str, written: list[bytes]) -> None:
    found = partitions(cluster, topic)
    assert all({RACKS[broker] for broker in each["replicas"]} == {"a", "b"} for each in found)
    each_holds = Counter(broker for each in found for broker in each["replicas"])
    assert set(each_holds.values()) <= {3, 4, 5} and each_holds.keys() == RACKS.keys()
    assert all(each["leader"] == each["replicas"][0] for each in found)
    assert all(sorted(each["isr"]) == sorted(each["replicas"]) for each in found)

    def values() -> list[bytes]:
        return sorted(message.value() or b"" for message in read_all(cluster.bootstrap_servers, topic, len(found)))

    # A new leader may learn a moment later how far consumers may read.
    eventually(lambda: len(values()) >= len(written), "as many records as were written are there")
    assert values() == written


def test_a_plan_is_shown_carried_out_and_then_nothing_is_left(cluster: Cluster, tmp_path: Path) -> None:
    written = make(cluster, "heap", 8, 1_000)
    file = tmp_path / "plan.json"
    options = ("--topic", "heap", "--file", file)
    shown = rebalance(cluster, *options)
    assert "LEADERS-PLANNED" in shown.out and "bytes are copied." in shown.out and "pass --execute" in shown.err
    found = rebalance(cluster, *options, "--json").json
    assert found["unevenness"]["after"] < found["unevenness"]["before"] and found["copied_bytes"] > 0
    assert [each["broker"] for each in found["brokers"]] == [1, 2, 3, 4]
    assert all(each["replicas"] == [1, 2] for each in partitions(cluster, "heap")), "nothing has moved yet"
    assert not file.exists()
    assert "--yes" in rebalance(cluster, *options, "--execute", code=errors.USAGE).err
    done = rebalance(cluster, *options, "--execute", "--yes", "--at-once", 3)
    assert "All is in place." in done.err and not file.exists()
    assert_even(cluster, "heap", written)
    assert "as even as they can be" in rebalance(cluster, *options).out
    assert rebalance(cluster, *options, "--json").json["changes"]["partitions"] == []


def begun(cluster: Cluster) -> bool:
    return bool(odradek(cluster.bootstrap_servers, "partitions", "status", "--json").json)


def test_an_interrupted_plan_is_resumed(cluster: Cluster, tmp_path: Path) -> None:
    written = make(cluster, "broken", 8, 40_000)
    file = tmp_path / "plan.json"
    options = ["--topic", "broken", "--file", str(file), "--watch", "0.2", "-b", cluster.bootstrap_servers]
    slowly = ["--execute", "--yes", "--at-once", "1", "--throttle", "1000"]
    command = [sys.executable, "-m", "odradek", "rebalance", *options, *slowly]
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Processes of tests that run in the background ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            # The move is so slow that it does not end meanwhile.
            eventually(lambda: begun(cluster), "something moves")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == errors.INTERRUPTED and "--resume" in said
    planned = {each["partition"]: each["replicas"] for each in json.loads(file.read_text())["partitions"]}
    assert "was broken off" in rebalance(cluster, *options[:4], "--execute", "--yes", code=errors.USAGE).err
    resumed = odradek(cluster.bootstrap_servers, "rebalance", "--resume", "--file", file, "--throttle", 100_000_000)
    assert "All is in place." in resumed.err and not file.exists()
    present = {each["partition"]: each["replicas"] for each in partitions(cluster, "broken")}
    assert planned and present == {**present, **planned}
    assert_even(cluster, "broken", written)


def test_an_invalid_plan_is_not_resumed(cluster: Cluster, tmp_path: Path) -> None:
    absent = odradek(
        cluster.bootstrap_servers, "rebalance", "--resume", "--file", tmp_path / "absent", code=errors.USAGE
    )
    assert "name a file that can be read" in absent.err


def test_a_refused_plan_can_be_resumed(cluster: Cluster, tmp_path: Path) -> None:
    """A broker that is not there gets no limit: the controller says why its partition stays."""
    odradek(cluster.bootstrap_servers, "topics", "create", "refused", "--replica-assignment", "1:2")
    file = tmp_path / "plan.json"
    moves = [{"topic": "refused", "partition": 0, "replicas": [1, 9]}]
    file.write_text(json.dumps({"version": 1, "partitions": moves}))
    refused = rebalance(cluster, "--resume", "--file", file, code=errors.FAILED).err
    assert "1 of 1 partitions were refused" in refused and f"--resume --file {file}" in refused and file.exists()
    moves[0]["replicas"] = [2, 1]
    file.write_text(json.dumps({"version": 1, "partitions": moves}))
    assert "All is in place." in rebalance(cluster, "--resume", "--file", file).err
    (partition,) = partitions(cluster, "refused")
    assert partition["replicas"] == [2, 1]


def test_limits_end_where_a_topic_was_deleted(cluster: Cluster) -> None:
    odradek(cluster.bootstrap_servers, "topics", "create", "limited", "--replica-assignment", "1:2")
    throttled: list[str] = []

    def describe() -> str:
        return odradek(cluster.bootstrap_servers, "topics", "describe", "limited", "--json").out

    async def work() -> None:
        async with Connected(RealNetwork(), RealClock(), parse_bootstrap(cluster.bootstrap_servers)) as connected:
            await throttle_moves(
                connected, await load_view(connected, topic="limited"), {("limited", 0): (1, 3)}, 1_000
            )
            throttled.append(await asyncio.to_thread(describe))
            await end_throttle(connected, [("absent", 0), ("limited", 0)])

    asyncio.run(work())
    assert "throttled.replicas" in throttled[0]
    partitions(cluster, "limited")  # no longer limited
    shown = odradek(cluster.bootstrap_servers, "configs", "describe", "--broker", 1).out
    assert "throttled.rate" not in shown
