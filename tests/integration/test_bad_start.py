"""A node that cannot start says why in one line each, without a traceback, and leaves the data as it was."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.nodes.forked import forks, node_environment
from tests.support.nodes.node import Node

TIMEOUT_S = 120  # without a network, the look-up of a host may take half a minute


def start_and_fail(*arguments: str, cwd: Path, code: int | None = None, forked: bool = True) -> str:
    """Run `odradek broker`, which must refuse in time, with the exit code; returns all that it printed.

    It is forked from a process that has imported all of it, unless the test is about the command itself.
    """
    command = [sys.executable, "-m", "odradek", "broker", *arguments]
    with tempfile.TemporaryFile() as output:
        if forked:
            ended = forks().start(command, node_environment(), output, folder=cwd).wait(TIMEOUT_S)
        else:
            ended = subprocess.run(
                command, cwd=cwd, stdout=output, stderr=output, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S
            ).returncode
        output.seek(0)
        printed = output.read().decode()
    assert ended not in (0, -9), f"started, or was killed:\n{printed}"
    assert code in (None, ended), printed
    assert "Traceback" not in printed, printed
    return printed


def overrides(node: Node, **changed: object) -> list[str]:
    settings = node.overrides | {key.replace("__", "."): value for key, value in changed.items()}
    return [part for key, value in settings.items() for part in ("--override", f"{key}={value}")]


def test_all_wrong_settings_are_named_at_once(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    wrong = {
        "num.partitions": "many",
        "log.segment.bytes": "-1",
        "process.roles": "king",
        "max.connections.per.ip.overrides": "here",
    }
    config.write_text("node.id=1\n" + "".join(f"{key}={value}\n" for key, value in wrong.items()))
    printed = start_and_fail("--config", str(config), cwd=tmp_path, forked=False)
    for key in wrong:
        assert key in printed, printed


def test_a_missing_configuration_file(tmp_path: Path) -> None:
    printed = start_and_fail("--config", str(tmp_path / "nowhere.properties"), cwd=tmp_path)
    assert "nowhere.properties" in printed


def test_an_unknown_key_warns_with_the_nearest_name(tmp_path: Path) -> None:
    with Node(tmp_path / "node", {"log.retention.mss": 1000}) as node:
        assert "log.retention.ms" in node.log_text().replace("log.retention.mss", "")


def test_a_port_in_use(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the port is kept for who asks so for it
        taken.bind(("127.0.0.1", node.port))
        taken.listen()
        printed = start_and_fail(*overrides(node), cwd=tmp_path)
    assert str(node.port) in printed


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
@pytest.mark.parametrize("key", ["listeners", "odradek.metrics.listener"])
def test_a_host_that_is_not_ours(tmp_path: Path, host: str, key: str) -> None:
    node = Node(tmp_path / "node")
    ours = f"127.0.0.1:{node.port}"
    listeners = str(node.overrides["listeners"]).replace(ours, f"{host}:{node.port}") if key == "listeners" else None
    settings = {key: listeners or f"{host}:{node.port}"}
    printed = start_and_fail(*overrides(node, **settings), code=5, cwd=tmp_path)
    (line,) = [line for line in printed.splitlines() if line.startswith("odradek: ")]
    assert key in line
    assert f"{host}:{node.port}: " in line
    assert "name a" in line or "name one" in line


def test_two_nodes_on_one_directory(own_node: Node, tmp_path: Path) -> None:
    other = Node(tmp_path / "other")
    arguments = overrides(other, log__dirs=own_node.data_dir)
    printed = start_and_fail(*arguments, cwd=tmp_path)
    line = printed.strip().splitlines()[-1]
    assert str(own_node.data_dir) in line
    assert f"process {own_node.pid} uses this log directory" in line
    produce_all(own_node.bootstrap, "still-served", [(None, b"v")])


def test_the_directory_of_another_node_or_cluster(tmp_path: Path) -> None:
    first = Node(tmp_path / "first")
    with first:
        create_topic(first.bootstrap, "theirs")
        produce_all(first.bootstrap, "theirs", [(None, b"kept")])
    printed = start_and_fail(*overrides(first, node__id=7), cwd=tmp_path)
    assert "7" in printed
    assert "1" in printed

    second = Node(tmp_path / "second")
    with second:
        pass
    printed = start_and_fail(*overrides(first, log__dirs=f"{first.data_dir},{second.data_dir}"), cwd=tmp_path)
    assert "different clusters" in printed

    with first:
        assert [message.value() for message in read_all(first.bootstrap, "theirs")] == [b"kept"]


def test_a_data_directory_that_is_a_file_or_cannot_be_made(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a directory")
    for place in (in_the_way, in_the_way / "below"):
        printed = start_and_fail(*overrides(node, log__dirs=place), cwd=tmp_path)
        assert str(place) in printed
