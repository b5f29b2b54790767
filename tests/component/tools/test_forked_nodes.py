"""A forked process is one as a command starts it: its own pid, limits and output, and its exit code."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nodes.forked import COMMAND, ForkedProcess, Forks, node_environment
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S

NO_LISTENER = [*COMMAND, "broker", "--override", "listeners=x://"]


@pytest.fixture
def own_forks() -> Iterator[Forks]:
    forks = Forks()
    yield forks
    forks.close()


def started(forks: Forks, output: Path, command: list[str]) -> ForkedProcess:
    with output.open("ab") as file:
        return forks.start(command, node_environment(), file)


def test_a_forked_node_ends_as_the_command_does(own_forks: Forks, tmp_path: Path) -> None:
    forked = started(own_forks, tmp_path / "forked.txt", NO_LISTENER).wait(PATIENCE_S)
    done = subprocess.run(NO_LISTENER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=node_environment())
    assert (forked, (tmp_path / "forked.txt").read_bytes()) == (done.returncode, done.stdout)
    assert done.stdout.startswith(b"odradek: listeners:")


def test_a_forked_node_has_its_own_pid_folder_and_output(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        process = Path(f"/proc/{node.pid}")
        assert b"fork_server" in (process / "cmdline").read_bytes()
        assert process.joinpath("cwd").readlink() == Path.cwd()
        files = {entry.readlink() for entry in process.joinpath("fd").iterdir() if entry.name in ("0", "1", "2")}
        assert files == {Path("/dev/null"), node.output}
        assert f"NSpid:\t{node.pid}" in (process / "status").read_text() and node.pid != os.getpid()


def test_a_forked_node_is_killed_and_stopped(tmp_path: Path) -> None:
    node = Node(tmp_path).start()
    process = node.process
    assert isinstance(process, ForkedProcess) and process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert node.kill() == -signal.SIGKILL
    assert process.poll() == -signal.SIGKILL
    process.kill()
    assert node.start().stop() == 0


def test_limits_are_those_of_the_test(own_forks: Forks, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, before[1]))
    node = Node(tmp_path)
    node.directory.mkdir(exist_ok=True)
    try:
        process = started(own_forks, tmp_path / "out.txt", node.command())
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    try:
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        assert next(line for line in limits.splitlines() if "core file" in line).split()[4] == "0"
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def test_variables_read_at_the_start_of_python_need_a_command(own_forks: Forks) -> None:
    assert own_forks.can_start(NO_LISTENER, node_environment())
    assert not own_forks.can_start(NO_LISTENER, {**node_environment(), "PYTHONHASHSEED": "7"})
    assert not own_forks.can_start([sys.executable, "-c", "pass"], node_environment())


def test_a_dead_fork_server_is_an_error(tmp_path: Path) -> None:
    forks = Forks()
    process = started(forks, tmp_path / "out.txt", NO_LISTENER)
    process.wait(PATIENCE_S)
    forks.close()
    with pytest.raises(OSError):
        started(forks, tmp_path / "out.txt", NO_LISTENER)
