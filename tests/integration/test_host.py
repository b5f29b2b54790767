"""`odradek host`: several brokers on one machine as one thing to start, watch, restart and stop."""

from __future__ import annotations

import json
import os
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.errors import BAD_CONFIG, FAILED
from tests.support.clients.cli import odradek, run_here
from tests.support.clients.confluent import produce_all, read_all
from tests.support.nodes.host_process import KINDS, MOST_BROKERS, HostProcess, ports_in_a_row
from tests.support.waiting import PATIENCE_S, eventually

PORTS = len(KINDS) * MOST_BROKERS + 1
RECORDS: list[tuple[bytes | None, bytes | None]] = [(None, b"%d" % number) for number in range(50)]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostProcess]:
    with ports_in_a_row(PORTS) as first, HostProcess(tmp_path / "h1", first) as made:
        yield made


def page(host: HostProcess, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{host.pages}{path}", timeout=PATIENCE_S) as answer:
        found: bytes = answer.read()
    return found


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that has lost its parent may remain as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_brokers_of_a_machine_start_die_roll_and_stop_as_one(host: HostProcess) -> None:
    host.start("--cores", 2)
    first, second = host.brokers()
    assert [first["node"], second["node"]] == [1, 2]
    assert [each["directories"] for each in (first, second)] == [
        [str(disk / f"broker-{number}")] for number, disk in enumerate(host.disks, 1)
    ]
    assert first["controller"] and not second["controller"]
    port = int(host.bootstrap.rpartition(":")[2])
    assert second["listeners"] == {"PLAINTEXT": f"127.0.0.1:{port + 1}"}
    assert first["memory_bytes"] > 1_000_000 and first["core"] is None and first["cpu_seconds"] > 0
    rows = host.do("status").rows
    assert rows[0][:3] == ["NODE", "STATE", "PID"] and rows[2][:3] == ["2", "ready", str(second["pid"])]

    targets = json.loads(page(host, "/targets"))
    assert [(each["targets"], each["labels"]) for each in targets] == [
        ([each["pages"]], {"node": str(each["node"])}) for each in (first, second)
    ]
    for each in targets:
        with urllib.request.urlopen(f"http://{each['targets'][0]}/metrics", timeout=PATIENCE_S) as scraped:
            assert b"odradek_requests_total" in scraped.read()
    assert b'odradek_host_broker_ready{node="2"} 1.0' in page(host, "/metrics")
    eventually(lambda: json.loads(page(host, "/readyz")) == {"ready": True, "failing": {}})

    odradek(host.bootstrap, "topics", "create", "orders", "--partitions", 2, "--replication-factor", 2)
    produce_all(host.bootstrap, "orders", RECORDS, acks="all")

    os.kill(second["pid"], signal.SIGKILL)
    eventually(lambda: host.brokers()[1]["restarts"] == 1 and host.brokers()[1]["state"] == "ready", host.said)
    assert b'broker died node_id=2 how="was killed by SIGKILL after' in host.said()

    with host.config.open("a") as file:
        file.write("message.max.bytes=2000000\n")
    before = host.brokers()
    assert "2 brokers were restarted and are ready" in host.do("roll").out
    eventually(lambda: [each["state"] for each in host.brokers()] == ["ready", "ready"], host.said)
    after = host.brokers()
    assert not {each["pid"] for each in before} & {each["pid"] for each in after}
    assert after[1]["restarts"] == 1  # a roll is none
    assert "message.max.bytes=2000000" in (host.disks[1] / "broker-2.properties").read_text()
    assert len(read_all(host.bootstrap, "orders", 2)) == len(RECORDS)

    said = host.said().splitlines()
    assert all(line.startswith((b"[1] ", b"[2] ", b"20", b"The host")) for line in said)
    assert any(line.startswith(b"[2] ") and b"ready node_id=2" in line for line in said)
    assert host.do("stop").out == "stopped\n"
    assert host.process is not None and host.process.wait(PATIENCE_S) == 0
    assert all(is_gone(each["pid"]) for each in after)
    assert host.said().count(b"server.broker stopped node_id=") >= 2
    assert "no host runs" in host.do("status", code=FAILED).err


def test_a_broker_does_not_outlive_a_host_that_was_killed(host: HostProcess) -> None:
    host.start("--cores", 1, "--pin")
    (broker,) = host.brokers()
    assert os.sched_getaffinity(broker["pid"]) == {broker["core"]}
    before = _files(host)
    assert "another `odradek host` runs" in _second(host, "--cores", 2, "--override", "message.max.bytes=2000000")
    assert _files(host) == before
    host.end(signal.SIGKILL)
    eventually(lambda: is_gone(broker["pid"]))
    assert "no host runs" in host.do("status", code=FAILED).err


def _files(host: HostProcess) -> dict[Path, bytes]:
    """The files that a start writes: those at the top of each disk, and the directory of broker 2, which is new."""
    files = [path for disk in host.disks for path in disk.glob("*") if path.is_file()]
    new = [path for disk in host.disks for path in disk.glob("broker-2/*")]
    return {path: path.read_bytes() for path in [*files, *new]}


def _second(host: HostProcess, *arguments: object) -> str:
    data = [word for disk in host.disks for word in ("--data", disk)]
    return run_here("host", *arguments, "--config", host.config, *data, code=BAD_CONFIG).err


@pytest.mark.slow  # test_host_disks has the short forms
def test_a_host_starts_with_a_replaced_disk(host: HostProcess) -> None:
    """As in docs/operations.md: without the option the start fails, and with it the broker fetches its replicas."""
    host.start("--cores", 2)
    odradek(host.bootstrap, "topics", "create", "orders", "--replica-assignment", "1:2")
    produce_all(host.bootstrap, "orders", RECORDS, acks="all")
    assert host.end() == 0
    lost = host.disks[1]
    shutil.rmtree(lost)
    host.launch("--cores", 2)
    assert host.process is not None and host.process.wait(PATIENCE_S) == BAD_CONFIG
    assert b"--replace-disk" in host.said() and not lost.exists()
    host.start("--cores", 2, "--replace-disk")
    assert host.brokers()[1]["directories"] == [str(lost / "broker-2")]

    def in_sync() -> bool:
        (topic,) = odradek(host.bootstrap, "topics", "describe", "orders", "--json").json
        return sorted(topic["partitions"][0]["isr"]) == [1, 2]

    eventually(in_sync)
    assert sum(path.stat().st_size for path in lost.glob("broker-2/orders-0/*.log")) > 0
    assert len(read_all(host.bootstrap, "orders")) == len(RECORDS)
    assert host.end() == 0
    host.start("--cores", 2)
    assert [each["node"] for each in host.brokers()] == [1, 2], "the option is for one start"


def test_settings_that_no_broker_can_have_end_the_host(host: HostProcess) -> None:
    with host.config.open("a") as file:
        file.write("num.partitions=many\n")
    host.launch("--cores", 1)
    assert host.process is not None and host.process.wait(PATIENCE_S) == BAD_CONFIG
    assert b"num.partitions" in host.said()


@pytest.mark.slow
def test_a_host_grows_and_another_one_joins_its_cluster(host: HostProcess, tmp_path: Path) -> None:
    host.start("--cores", 2)
    odradek(host.bootstrap, "topics", "create", "orders", "--partitions", 6, "--replication-factor", 2)
    produce_all(host.bootstrap, "orders", RECORDS, acks="all")
    assert host.end() == 0
    host.start("--cores", 3, "--rebalance")
    assert [each["node"] for each in host.brokers()] == [1, 2, 3]
    eventually(lambda: b"All is in place" in host.said(), host.said)

    def replicas() -> list[set[int]]:
        found: list[dict[str, Any]] = odradek(host.bootstrap, "topics", "describe", "--json").json
        return [set(part["replicas"]) for topic in found for part in topic["partitions"] if topic["topic"] == "orders"]

    assert any(3 in each for each in replicas())
    with ports_in_a_row(PORTS) as first, HostProcess(tmp_path / "h2", first, disks=1, broker_host="h2") as other:
        other.start("--cores", 2, "--join", host.bootstrap)
        assert [(each["node"], each["controller"]) for each in other.brokers()] == [(101, True), (102, False)]
        brokers = odradek(host.bootstrap, "cluster", "brokers", "--json").json
        assert len({each["machine"] for each in brokers}) == 2

        def voters() -> set[int]:
            found = odradek(host.bootstrap, "cluster", "quorum", "--json").json["replicas"]
            return {each["node"] for each in found if each["role"] != "observer"}

        eventually(lambda: voters() == {1, 101})
        odradek(host.bootstrap, "topics", "create", "spread", "--partitions", 4, "--replication-factor", 2)
        assert len(read_all(other.bootstrap, "orders", 6)) == len(RECORDS)
        # Its stored plan is enough for a start without an address and a number of cores.
        assert other.end() == 0
        other.start()
        assert [each["node"] for each in other.brokers()] == [101, 102]
    data = [word for disk in host.disks for word in ("--data", disk)]
    assert host.end() == 0
    assert (
        "partitions plan --without 3"
        in run_here("host", "--cores", 2, "--config", host.config, *data, code=BAD_CONFIG).err
    )
