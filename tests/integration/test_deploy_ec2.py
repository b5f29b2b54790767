"""deploy/ec2-spot: a broker on a spot machine, the notice that it goes, and its volume on the next machine."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.clients.cli import odradek
from tests.support.clients.confluent import read_all
from tests.support.nodes.ec2 import RECIPE, ZONE, Machine, make_volume
from tests.support.nodes.node import Node, free_port
from tests.support.nodes.systemd_unit import Unit, settings_of
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
GROUPS = {"ODRADEK_PART": "consumer", "ODRADEK_GROUP": "billing", "ODRADEK_BOOTSTRAP": "a:9092"}


def done(process: subprocess.Popen[str]) -> str:
    """Wait until a script has ended with 0, and return its output."""
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    return said


def write(bootstrap: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for number in range(first, first + 100):
        producer.produce("orders", b"%d" % number, partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0


def test_a_volume_brings_its_broker_back_at_a_new_address(tmp_path: Path) -> None:
    steady = Node(tmp_path / "steady", {"broker.rack": f"{ZONE}.on-demand", "offsets.topic.replication.factor": 1})
    root = tmp_path / "ec2"
    root.mkdir()
    disk = make_volume(root, "vol-0abc", 2)
    with steady:
        port, probes = str(free_port()), f"127.0.0.1:{free_port()}"
        variables = {
            "ODRADEK_PART": "broker",
            "ODRADEK_CLUSTER": "orders",
            "ODRADEK_CLUSTER_ID": odradek(steady.bootstrap, "cluster", "id").out.strip(),
            "ODRADEK_VOTERS": f"1@127.0.0.1:{steady.controller_port}",
            "ODRADEK_PORT": port,
            "ODRADEK_PROBES": probes,
        }
        admin = AdminClient({"bootstrap.servers": steady.bootstrap})

        def leaders() -> set[int]:
            return {each.leader for each in admin.list_topics("orders").topics["orders"].partitions.values()}

        def copies() -> set[int]:
            return {len(each.isrs) for each in admin.list_topics("orders").topics["orders"].partitions.values()}

        def broker_2() -> tuple[str, str]:
            brokers = odradek(steady.bootstrap, "cluster", "brokers", "--json").json
            return next((each["host"], each["rack"]) for each in brokers if each["broker"] == 2)

        with Machine(root, "127.0.0.1", "m7g.large") as first, contextlib.ExitStack() as stack:
            done(first.run("boot.sh", **variables))
            assert (root / "started").read_text().split() == ["odradek-spot-notice", "odradek"]
            unit = stack.enter_context(Unit(root, "odradek.service", probes))
            assert unit.process is not None
            (root / "pid").write_text(str(unit.process.pid))
            assert broker_2() == ("127.0.0.1", f"{ZONE}.m7g.large")
            odradek(steady.bootstrap, "topics", "create", "orders", "--replica-assignment", "2:1,1:2")
            eventually(lambda: leaders() == {1, 2} and copies() == {2})
            write(steady.bootstrap, 0)

            waiting = first.run("notice.sh", **variables)
            stack.callback(waiting.kill)
            first.metadata["spot/instance-action"] = json.dumps({"action": "terminate"})
            assert unit.process.wait(PATIENCE_S) == 0
            unit.process = None
            assert "is drained" in done(waiting)
            eventually(lambda: leaders() == {1})
            assert not (root / "volumes" / "vol-0abc" / "attached").exists()
        write(steady.bootstrap, 100)
        kept = {path: path.stat().st_ino for path in disk.rglob("*.log")}
        assert kept
        with Machine(root, "127.0.0.2", "c7g.xlarge") as second:
            done(second.run("boot.sh", **variables))
            with Unit(root, "odradek.service", probes) as unit:
                eventually(lambda: copies() == {2})
                assert broker_2() == ("127.0.0.2", f"{ZONE}.c7g.xlarge")
                # It fetched what it missed into the files that it had.
                assert kept == {path: path.stat().st_ino for path in kept}
                odradek(steady.bootstrap, "partitions", "elect", "--all")
                eventually(lambda: leaders() == {1, 2})
                found = read_all(steady.bootstrap, "orders", 2)
                assert sorted(int(message.value() or b"") for message in found) == list(range(200))
                assert unit.terminate() == 0


def test_a_machine_waits_until_a_volume_is_free(tmp_path: Path) -> None:
    disk = make_volume(tmp_path, "vol-1", 7)
    taken = disk.parent / "attached"
    taken.mkdir()
    words = {
        "ODRADEK_PART": "broker",
        "ODRADEK_CLUSTER": "orders",
        "ODRADEK_CLUSTER_ID": "x",
        "ODRADEK_VOTERS": "1@a:1",
    }
    with Machine(tmp_path, "127.0.0.1", "m7g.large", market="on-demand") as machine:
        booting = machine.run("boot.sh", **words)
        assert booting.stdout is not None
        assert "no free volume" in booting.stdout.readline()
        taken.rmdir()
        done(booting)
    settings = (tmp_path / "etc" / "server.properties").read_text().splitlines()
    assert {"node.id=7", f"broker.rack={ZONE}.on-demand"} <= set(settings)
    assert (tmp_path / "started").read_text().split() == ["odradek"]


def test_a_machine_that_boots_again_has_its_volume_and_starts(tmp_path: Path) -> None:
    disk = make_volume(tmp_path, "vol-1", 7)
    make_volume(tmp_path, "vol-2", 8)
    with Machine(tmp_path, "127.0.0.1", "m7g.large") as machine:
        done(machine.run("user-data.sh"))
        (disk / "written").touch()
        for _ in range(2):
            (tmp_path / "started").unlink()
            done(machine.reboot())
            assert (tmp_path / "started").read_text().split() == ["odradek-spot-notice", "odradek"]
            assert (tmp_path / "var" / "odradek" / "written").exists()
            assert "node.id=7\n" in (tmp_path / "etc" / "server.properties").read_text()
    assert not (tmp_path / "volumes" / "vol-2" / "attached").exists()
    assert (tmp_path / "etc" / "volume").read_text() == "vol-1\n"


def test_no_node_starts_without_its_volume(tmp_path: Path) -> None:
    condition = settings_of((RECIPE / "volume.conf").read_text())
    assert condition == {"ConditionPathIsMountPoint": ["/var/lib/odradek"]}
    make_volume(tmp_path, "vol-1", 7)
    with Machine(tmp_path, "127.0.0.1", "m7g.large") as machine:
        mount = tmp_path / "bin" / "mount"
        mount.write_text("#!/bin/sh\nexit 32\n")
        broken = machine.run("user-data.sh")
        broken.communicate(timeout=PATIENCE_S)
        assert broken.returncode == 32
    assert (tmp_path / "disabled").read_text().split() == ["odradek"]
    assert not (tmp_path / "started").exists()


def test_a_consumer_reads_in_its_market(tmp_path: Path) -> None:
    with Machine(tmp_path, "127.0.0.1", "m7g.large") as machine:
        done(machine.run("boot.sh", **GROUPS))
    settings = (tmp_path / "etc" / "consumer.properties").read_text().splitlines()
    assert settings[1:] == ["group.id=billing", "client.id=i-1", f"client.rack={ZONE}.m7g.large"]


def test_user_data_sets_what_the_boot_reads() -> None:
    given = set(re.findall(r"export (\w+)=", (RECIPE / "user-data.sh").read_text()))
    read = set(re.findall(r"\$\{?(ODRADEK_\w+)(?!:-)\b", (RECIPE / "boot.sh").read_text()))
    defaults = set(re.findall(r"\$\{(ODRADEK_\w+):-", (RECIPE / "boot.sh").read_text()))
    assert given == read - defaults
    assert json.loads((RECIPE / "iam-policy.json").read_text())["Statement"]
    assert subprocess.run(["/bin/sh", "-n", RECIPE / "user-data.sh"], check=False).returncode == 0
