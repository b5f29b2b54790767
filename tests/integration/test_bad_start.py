"""A node that cannot start says why in one line each, without a traceback, and leaves the data as it was."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clients import create_topic, produce_all, read_all
from tests.support.node import Node, free_port


def start_and_fail(*arguments: str, cwd: Path) -> str:
    """Run `odradek broker`, which must refuse in time; returns all that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "odradek", "broker", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
    )
    printed = done.stdout + done.stderr
    assert done.returncode not in (0, -9), f"started, or was killed:\n{printed}"
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
    printed = start_and_fail("--config", str(config), cwd=tmp_path)
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
        taken.bind(("127.0.0.1", node.port))
        taken.listen()
        printed = start_and_fail(*overrides(node), cwd=tmp_path)
    assert str(node.port) in printed


def test_two_nodes_on_one_directory(own_node: Node, tmp_path: Path) -> None:
    other = Node(tmp_path / "other")
    arguments = overrides(other, log__dirs=own_node.data_dir)
    printed = start_and_fail(*arguments, cwd=tmp_path)
    assert str(own_node.data_dir) in printed
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """An 24 MB file system of its own."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("mounting a small file system needs root")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this machine does not let us mount")
    return place


def test_a_full_disk_refuses_writes_and_keeps_serving_reads(tmp_path: Path, small_disk: Path) -> None:
    try:
        with Node(tmp_path / "node", {"log.dirs": small_disk / "data", "log.segment.bytes": 4 << 20}) as node:
            create_topic(node.bootstrap, "fills")
            stored = [message.value() for message in produce_all(node.bootstrap, "fills", [(None, b"first")])]
            with pytest.raises(AssertionError):
                produce_all(
                    node.bootstrap, "fills", [(None, os.urandom(900_000)) for _ in range(40)], message_timeout_ms=8000
                )
            assert "Traceback" not in node.log_text(), node.log_text()[-3000:]
            assert node.process is not None
            if node.process.poll() is None:
                messages = read_all(node.bootstrap, "fills")
                assert messages[0].value() == stored[0]
            else:
                node.process = None
                assert "space" in node.log_text()
    finally:
        subprocess.run(["umount", "-l", str(small_disk)], check=False)


def test_nothing_given_is_a_formatted_node(tmp_path: Path) -> None:
    port, controller = free_port(), free_port()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "odradek",
            "broker",
            "--override",
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "--override",
            f"controller.quorum.voters=1@127.0.0.1:{controller}",
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        printed = ""
        while f"127.0.0.1:{port}" not in printed:
            line = process.stdout.readline()
            assert line, f"ended without a bootstrap address:\n{printed}"
            printed += line
        produce_all(f"127.0.0.1:{port}", "first", [(None, b"v")])
        assert (tmp_path / "odradek-data" / "meta.properties").exists()
        assert (tmp_path / "odradek-data" / "first-0").is_dir()
    finally:
        process.terminate()
        assert process.wait(30) == 0
        process.stdout.close()
