"""`odradek broker` as a process: its imports, and its errors for a wrong command line."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nodes.node import free_port


def test_a_node_does_not_import_the_command_line_framework() -> None:
    script = "import sys, odradek.cli.node, odradek.server.startup.process; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"typer", "rich", "pydantic", "re2", "confluent_kafka"} & set(loaded)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("--config nowhere.properties", 5, "odradek: nowhere.properties: cannot be read"),
        ("--override process.roles=x", 5, "odradek: "),
        ("--confg x", 2, "odradek broker: No such option: --confg"),
    ],
)
def test_a_wrong_setting_is_reported_in_one_line(line: str, code: int, said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "odradek", "broker", *line.split()]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == code
    assert ended.stderr.startswith(said)
    assert "Traceback" not in ended.stderr


def test_a_log_in_json_says_in_json_why_a_node_ended(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "odradek", "broker", "--override", listeners]
        command += ["--override", "odradek.log.format=json"]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 1
    last = [json.loads(line) for line in ended.stderr.splitlines()][-1]
    assert (last["level"], last["event"]) == ("ERROR", "the node ended")
    assert f", {port})" in last["reason"]
