"""A socket or transport that a test leaves open fails that test or the last of its file, and no other test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PLANTED = """
import asyncio, socket

class Loop:
    def __init__(self, held):
        self.held, self.me = held, self  # the collector alone finds it

async def test_that_leaves_a_socket():
    Loop(socket.socket())

async def test_that_leaves_a_transport():
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    transport, _ = await asyncio.get_running_loop().create_connection(
        asyncio.Protocol, *server.sockets[0].getsockname()
    )
    Loop(transport)
    server.close()

async def test_that_leaves_nothing():
    socket.socket().close()

def test_that_has_no_loop():
    Loop(socket.socket())

def test_that_is_the_last():
    pass
"""
OTHER = """
import gc

def test_of_another_file():
    gc.collect()
"""


def test_an_open_file_fails_its_test_or_the_last_of_its_module(tmp_path: Path) -> None:
    (tmp_path / "test_a_planted.py").write_text(PLANTED)
    (tmp_path / "test_b_planted.py").write_text(OTHER)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-c",
        "pyproject.toml",
        "-p",
        "tests.conftest",
        "-q",
        "-n",
        "0",
        "-rA",
    ]
    ran = subprocess.run([*command, tmp_path], cwd=ROOT, capture_output=True, text=True, check=False)
    said = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", ran.stdout, re.MULTILINE)
    errors = {name for outcome, name in said if outcome == "ERROR"}
    assert errors == {"test_that_leaves_a_socket", "test_that_leaves_a_transport", "test_that_is_the_last"}, ran.stdout
    assert len([name for outcome, name in said if outcome == "PASSED"]) == 6, ran.stdout
