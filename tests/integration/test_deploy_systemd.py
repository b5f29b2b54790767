"""deploy/systemd: systemd reads the units, and their commands start and stop real nodes."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from odradek.cli.errors import BAD_CONFIG, USAGE
from tests.support.clients.cli import odradek
from tests.support.nodes.host_process import KINDS, MOST_BROKERS, HostProcess, ports_in_a_row
from tests.support.nodes.node import free_port
from tests.support.nodes.systemd_unit import BIN, UNITS, Unit, settings_of
from tests.support.waiting import PATIENCE_S, eventually

VOLUME = "../ec2-spot/volume.conf"
NOTICE = "../ec2-spot/odradek-spot-notice.service"
FAST = "group.initial.rebalance.delay.ms=0\noffsets.topic.num.partitions=4\noffsets.topic.replication.factor=1\n"


def write_settings(root: Path, name: str, changes: dict[str, str]) -> None:
    """The properties that `deploy/systemd` ships, with some changed, where the unit reads them."""
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc" / "cluster.env").write_text("CLUSTER_ID=4L6g3nShT-eMCtK--X86sw\n")
    shipped = (UNITS / "server.properties").read_text().replace("/var/lib", str(root / "var"))
    settings = dict(line.split("=", 1) for line in shipped.splitlines() if not line.startswith("#"))
    lines = [f"{key}={value}\n" for key, value in (settings | changes).items() if value]
    (root / "etc" / name).write_text("".join(lines) + FAST)


@pytest.mark.parametrize(
    "file", ["odradek.service", "odradek@.service", "odradek-host.service", "odradek.target", NOTICE]
)
def test_systemd_has_nothing_to_say_about_the_units(file: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / Path(file).name.replace("@", "@1")
    unit.write_text((UNITS / file).read_text().replace("/opt/odradek/bin", str(BIN)))
    (tmp_path / "odradek.target").write_text((UNITS / "odradek.target").read_text())
    (tmp_path / "odradek.service.d").mkdir()
    (tmp_path / "odradek.service.d" / "volume.conf").write_text((UNITS / VOLUME).read_text())
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    about_ours = [line for line in done.stderr.splitlines() if "odradek" in line]
    assert not about_ours
    assert done.returncode == 0, done.stderr


def test_the_unit_starts_and_stops_a_node(tmp_path: Path) -> None:
    port, controller = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
    changes = {
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    }
    write_settings(tmp_path, "server.properties", changes)
    with Unit(tmp_path, "odradek.service", f"127.0.0.1:{free_port()}") as unit:
        # It serves when systemd holds it for started: the first request is answered.
        odradek(f"127.0.0.1:{port}", "topics", "create", "orders")
        assert unit.exec_stop() == 0
        assert unit.exec_stop(main_pid="") == 0  # as after a node that ended by itself
        assert unit.terminate() == 0
        unit.start()
        assert "orders" in odradek(f"127.0.0.1:{port}", "topics", "list").out
        assert unit.terminate() == 0


def test_a_host_of_two_nodes_hands_over_what_one_of_them_leads(tmp_path: Path) -> None:
    ports, controller = {1: free_port(), 2: free_port()}, free_port()
    for number, port in ports.items():
        listener = f"PLAINTEXT://127.0.0.1:{port}"
        changes = {
            "process.roles": "broker,controller" if number == 1 else "broker",
            "node.id": str(number),
            "listeners": f"{listener},CONTROLLER://127.0.0.1:{controller}" if number == 1 else listener,
            "advertised.listeners": listener,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(tmp_path / "var" / "odradek" / str(number)),
        }
        write_settings(tmp_path, f"{number}.properties", changes)
    probes = {number: f"127.0.0.1:{free_port()}" for number in ports}
    first, second = (Unit(tmp_path, "odradek@.service", probes[number], str(number)) for number in ports)
    with first, second:
        bootstrap = f"127.0.0.1:{ports[1]}"
        odradek(bootstrap, "topics", "create", "orders", "--replica-assignment", "2:1,1:2")
        admin = AdminClient({"bootstrap.servers": bootstrap})

        def leaders() -> set[int]:
            return {each.leader for each in admin.list_topics("orders").topics["orders"].partitions.values()}

        def copies() -> set[int]:
            return {len(each.isrs) for each in admin.list_topics("orders").topics["orders"].partitions.values()}

        eventually(lambda: leaders() == {1, 2} and copies() == {2})
        assert second.exec_stop() == 0
        assert second.process is not None and second.process.poll() is None
        eventually(lambda: leaders() == {1}, "the one that stops leads nothing before it gets its signal")
        assert second.terminate() == 0
        # A process that is not there, and a probe that nothing answers.
        wrong = ("drain", "--process", 2**22 + 1, "--timeout", 1, "--probes")
        assert "no such process" in odradek(bootstrap, *wrong, probes[1], code=USAGE).err
        assert "odradek.metrics.listener" in odradek(bootstrap, *wrong, probes[2], code=BAD_CONFIG).err
        assert odradek(bootstrap, "drain", 1, "--process", 1, code=USAGE).err
        assert odradek(bootstrap, "drain", code=USAGE).err
        assert first.terminate() == 0


@pytest.mark.parametrize("file", ["odradek.service", "odradek@.service"])
def test_settings_that_cannot_be_are_not_tried_again(file: str, tmp_path: Path) -> None:
    name = "server.properties" if file == "odradek.service" else "1.properties"
    write_settings(tmp_path, name, {"node.id": "one"})
    unit = Unit(tmp_path, file, f"127.0.0.1:{free_port()}", "1")
    # systemd tries again after a failed ExecStartPre with any status: the node itself has to fail.
    assert unit.settings["ExecStartPre"][0].startswith("-")
    done = subprocess.run(unit.command("ExecStart"), env=unit.environment, capture_output=True, timeout=PATIENCE_S)
    assert str(done.returncode) in unit.settings["RestartPreventExitStatus"][0].split(), done.stderr
    assert done.returncode == BAD_CONFIG


def test_the_unit_of_a_host_starts_reloads_and_stops_its_brokers(tmp_path: Path) -> None:
    settings = settings_of((UNITS / "odradek-host.service").read_text())
    one = settings_of((UNITS / "odradek.service").read_text())
    own = {"Description", "Environment", "EnvironmentFile", "ExecStart", "ExecReload", "TimeoutStopSec", "TasksMax"}
    differing = {key for key in settings.keys() | one.keys() if settings.get(key) != one.get(key)}
    assert differing == own | {"ExecStartPre", "ExecStop"}  # the host formats, and its brokers hand over by themselves
    assert settings["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    command = settings["ExecStart"][0].replace("/opt/odradek/bin", str(BIN)).replace("/etc/odradek", str(tmp_path))
    command = command.replace("/var/lib/odradek", str(tmp_path)).replace("$ODRADEK_HOST", "--cores 1")
    with ports_in_a_row(MOST_BROKERS * len(KINDS) + 1) as port:
        shipped = (UNITS / "host.properties").read_text()
        for old, new in ((":9092", f":{port}"), (":19092", f":{port + 4}"), (":9400", f":{port + 8}")):
            shipped = shipped.replace(old, new)
        shipped = shipped.replace("//a:", "//127.0.0.1:").replace("//:", "//127.0.0.1:")
        (tmp_path / "host.properties").write_text(shipped)
        address = str(tmp_path / "notices")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices, HostProcess(tmp_path, port) as host:
            host.disks = [tmp_path / "host"]
            host.config.write_text(shipped)
            notices.bind("\0" + address)
            notices.settimeout(PATIENCE_S)
            host.run(command.split(), NOTIFY_SOCKET=f"@{address}")
            assert notices.recv(100) == b"READY=1"  # of the host alone, not of its brokers
            odradek(host.bootstrap, "topics", "create", "orders", "--replication-factor", 1)
            assert host.process is not None
            host.process.send_signal(signal.SIGHUP)
            eventually(lambda: host.do("status", "--json").json["rolls"] == 1, host.said)
            assert host.end() == 0
            assert notices.recv(100) == b"STOPPING=1"


def test_the_units_differ_in_the_instance_alone() -> None:
    one, several = (settings_of((UNITS / name).read_text()) for name in ("odradek.service", "odradek@.service"))
    assert several.pop("PartOf") == ["odradek.target"]
    assert several["EnvironmentFile"].pop() == "-/etc/odradek/%i.env"
    plain = {
        key: [re.sub(r" %i|/%i$|%i$", "", value.replace("%i.properties", "server.properties")) for value in values]
        for key, values in several.items()
    }
    assert plain.pop("Environment") == ["ODRADEK_PROBES=127.0.0.1:940"]
    assert one.pop("Environment") == ["ODRADEK_PROBES=127.0.0.1:9404"]
    assert several.pop("WantedBy") == ["odradek.target"]
    assert plain.pop("WantedBy") and one.pop("WantedBy")
    assert plain == one
