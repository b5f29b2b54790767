"""`odradek broker` without a file: with another port, with listeners of one's own, and where a port is taken."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.testing.layout import free_ports
from tests.integration.test_bad_start import start_and_fail
from tests.support.clients.cli import odradek, odradek_process
from tests.support.clients.confluent import produce_all, read_all
from tests.support.nodes.node import Node


def free_pair() -> int:
    """A port that is free, as is the next."""
    ports = free_ports()
    while True:
        port = next(ports)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


class PlainNode(Node):
    """`odradek broker` with these arguments alone."""

    def __init__(self, directory: Path, port: int, *arguments: str) -> None:
        super().__init__(directory)
        self.port = port
        self.arguments = arguments
        self.data_dir = directory / "odradek-data"

    def command(self) -> list[str]:
        return ["env", "-C", str(self.directory), sys.executable, "-m", "odradek", "broker", *self.arguments]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "{port}"],
        pytest.param(["--override", "listeners=PLAINTEXT://127.0.0.1:{port}"], marks=pytest.mark.slow),
        ["--override", "listeners=PLAINTEXT://:{port}", "--override", "node.id=7"],
    ],
)
def test_a_port_is_all_that_is_said(arguments: list[str], tmp_path: Path) -> None:
    port = free_pair()
    with PlainNode(tmp_path, port, *(each.format(port=port) for each in arguments)) as node:
        produce_all(node.bootstrap, "hello", [(b"k", b"v")])
        words = ["consume", "--topic", "hello", "--from-beginning", "--group", "readers", "--max-messages", 1]
        assert odradek_process(node.bootstrap, *words).stdout == b"v\n"
        quorum = odradek(node.bootstrap, "cluster", "quorum", "--json").json
        assert str(port + 1) in str(quorum)
        assert "WARNING" not in node.log_text()
        assert (node.data_dir / "hello-0").is_dir()


def test_the_data_stays_when_the_port_changes(tmp_path: Path) -> None:
    first, second = free_pair(), free_pair()
    with PlainNode(tmp_path, first, "--port", str(first)) as node:
        produce_all(node.bootstrap, "hello", [(b"k", b"v")])
    with PlainNode(tmp_path, second, "--port", str(second)) as node:
        assert [message.value() for message in read_all(node.bootstrap, "hello", 1)] == [b"v"]


@pytest.mark.parametrize("taken_offset", [0, 1])
def test_a_taken_port_says_how_to_take_another(taken_offset: int, tmp_path: Path) -> None:
    port = free_pair()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port + taken_offset))
        taken.listen()
        printed = start_and_fail("--port", str(port), cwd=tmp_path, code=1)
        (line,) = [line for line in printed.splitlines() if line.startswith("odradek: ")]
        assert f", {port + taken_offset})" in line
        assert (
            f"; stop who listens there, or take other ports with `odradek broker --port {port % 60_000 + 200}`" in line
        )
        given = start_and_fail("--override", f"listeners=PLAINTEXT://127.0.0.1:{port}", cwd=tmp_path, code=1)
        assert "or choose other ports with `listeners`" in given


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--override", "listeners=here"], 5, "listeners: 'here' must be NAME://host:port"),
        (
            ["--override", "process.roles=broker"],
            5,
            "controller.quorum.voters or controller.quorum.bootstrap.servers is missing: name the quorum",
        ),
        (["--override", "node.id=x"], 5, "node.id=x: must be a number"),
        (
            [
                *("--override", "process.roles=broker", "--override", "listeners=PLAINTEXT://:1"),
                *("--override", "controller.quorum.bootstrap.servers=127.0.0.1:1"),
            ],
            5,
            "process.roles=broker: a node without the controller role joins a cluster that exists",
        ),
        (["--override", "process.roles=king"], 5, "process.roles=king: must be one of broker, controller"),
        (["--port", "9292", "--override", "listeners=A://:1"], 2, "--port is for a node without a file"),
        (["--port", "9292", "--config", "a.properties"], 2, "--port is for a node without a file"),
        (["--port", "70000"], 2, "Input should be less than or equal to 65535"),
    ],
)
def test_a_wrong_argument_is_one_line_about_that_alone(
    arguments: list[str], code: int, said: str, tmp_path: Path
) -> None:
    printed = start_and_fail(*arguments, cwd=tmp_path, code=code, forked="--port" in arguments)
    (line,) = printed.splitlines()
    assert said in line


def test_the_help_names_the_port() -> None:
    done = subprocess.run([sys.executable, "-m", "odradek", "broker", "--help"], capture_output=True, text=True)
    assert "--port" in done.stdout
