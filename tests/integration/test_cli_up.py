"""`odradek up`: a cluster of processes on this machine, and failures from another terminal."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.cli.app import run
from odradek.testing.control_socket import STATE_FILE, RefusedActionError, request
from odradek.testing.processes import NodeFailedError, ProcessCluster, await_all_ready
from tests.support.clients.cli import Ran
from tests.support.clients.confluent import produce_all, read_all
from tests.support.waiting import eventually


class Up:
    """A running `odradek up`."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.data = data
        self.output = data.parent / "up.out"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "odradek", "up", "--data", str(data), "--port", "0", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                # A shell that starts the tests in the background has them, and all below, ignore Ctrl-C.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    @property
    def text(self) -> str:
        return self.output.read_text()

    @property
    def bootstrap(self) -> str:
        line = next(line for line in self.text.splitlines() if "ready at" in line)
        return line.rpartition(" ")[2]

    def await_ready(self) -> None:
        eventually(lambda: "ready at" in self.text or self.process.poll() is not None)
        assert self.process.poll() is None, self.text

    def do(self, *words: object, code: int = 0) -> Ran:
        """A command from another terminal."""
        done = subprocess.run(
            [sys.executable, "-m", "odradek", "up", *map(str, words), "--data", str(self.data)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def states(self) -> dict[int, str]:
        return {node["node"]: node["state"] for node in self.do("status", "--json").json}

    def pids(self) -> list[int]:
        return [node["pid"] for node in self.do("status", "--json").json if node["pid"]]

    def interrupt(self) -> int:
        """Ctrl-C; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=120)


@contextmanager
def listening() -> Iterator[int]:
    """A port on which somebody listens; one that --port takes, which are not all that a system gives out."""
    for port in range(21_000, 30_000):
        with socket.socket() as taken:
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
            taken.listen()
            yield port
            return


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("up") / "cluster", "-n", "3", "--racks", "a,b,c")
    try:
        running.await_ready()
        yield running
    finally:
        if running.process.poll() is None:
            running.interrupt()


def test_three_nodes_are_up_each_on_its_rack(up: Up) -> None:
    nodes = up.do("status", "--json").json
    assert [(node["node"], node["rack"], node["state"]) for node in nodes] == [
        (1, "a", "up"),
        (2, "b", "up"),
        (3, "c", "up"),
    ]
    assert all(node["memory_bytes"] > 1_000_000 for node in nodes)
    table = up.do("status").rows
    assert table[0][:3] == ["NODE", "ROLES", "RACK"] and len(table) == 4


def test_clients_survive_a_killed_node_which_comes_back(up: Up) -> None:
    pairs: list[tuple[bytes | None, bytes | None]] = [(None, f"{number}".encode()) for number in range(100)]
    produce_all(up.bootstrap, "made-by-itself", pairs, acks="all")
    assert up.do("kill", 2).out == "node 2 was killed with -9\n"
    assert up.states() == {1: "up", 2: "down", 3: "up"}
    # A new leader may learn a moment later of the high watermark that the old one had given to readers.
    eventually(lambda: len(read_all(up.bootstrap, "made-by-itself")) == 100)
    assert "serves again" in up.do("restart", 2).out
    assert up.states()[2] == "up"
    eventually(lambda: "node 2 was killed with -9" in up.text)


def test_a_paused_node_goes_on_when_resumed(up: Up) -> None:
    up.do("pause", 3)
    assert up.states()[3] == "paused"
    up.do("resume", 3)
    assert up.states()[3] == "up"


def test_a_node_that_dies_by_itself_is_reported(up: Up) -> None:
    (pid,) = [node["pid"] for node in up.do("status", "--json").json if node["node"] == 1]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: "node 1 ended by itself" in up.text)
    assert up.states()[1] == "down"
    up.do("restart", 1)


def test_an_impossible_command_is_an_error_of_one_line(up: Up) -> None:
    assert "there is no node 9" in up.do("kill", 9, code=1).err
    up.do("kill", 3)
    refused = up.do("kill", 3, code=1)
    assert refused.err.count("\n") == 1 and "odradek up restart 3" in refused.err
    up.do("restart", 3)


def test_only_the_owner_may_send_commands(up: Up) -> None:
    state = up.data / STATE_FILE
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    text = state.read_text()
    state.write_text(json.dumps(json.loads(text) | {"token": "guessed"}))
    try:
        with pytest.raises(RefusedActionError, match="the token is wrong"):
            request(up.data, "kill", 1)
    finally:
        state.write_text(text)
    assert up.states()[1] == "up"


def test_ctrl_c_stops_all_and_another_start_finds_the_data(tmp_path: Path) -> None:
    first = Up(tmp_path / "cluster", "-n", "1")
    first.await_ready()
    produce_all(first.bootstrap, "kept", [(None, b"here")])
    pids = first.pids()
    assert first.interrupt() == 0
    assert first.text.endswith("stopped\n")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert "no cluster runs" in first.do("status", code=1).err
    again = Up(tmp_path / "cluster", "-n", "1")
    again.await_ready()
    try:
        assert [message.value() for message in read_all(again.bootstrap, "kept")] == [b"here"]
    finally:
        again.process.send_signal(signal.SIGTERM)
        assert again.process.wait(timeout=120) == 0


def test_a_port_in_use_is_reported_before_any_node_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be taken for the node that cannot have it, and the others would wait for that node."""
    with listening() as port:
        assert run(["up", "-n", "2", "--data", str(tmp_path / "cluster"), "--port", str(port)]) == 1
    said = capsys.readouterr().err.splitlines()[1:]
    assert said == [
        f"odradek: port {port}, which node 1 needs, is taken: stop who listens there, "
        "or choose others with --port (0 takes free ones)"
    ]
    assert not list(tmp_path.glob("cluster/node-*/node.log")), "no process was started"


def test_a_node_that_ends_at_start_ends_all_at_once_with_its_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening() as port:
        page = f"odradek.metrics.listener=127.0.0.1:{port}"
        data = tmp_path / "cluster"
        assert run(["up", "-n", "1", "--data", str(data), "--port", "0", "--override", page]) == 1
    (said,) = capsys.readouterr().err.splitlines()[1:]
    assert said.startswith("odradek: node 1 ended at start: error while attempting to bind") and "node.log" in said
    assert said.count("odradek:") == 1


def test_a_node_that_ends_is_noticed_during_the_wait_for_another(tmp_path: Path) -> None:
    """The last node cannot start while the first one is paused: the failure does not wait for the paused node."""
    cluster = ProcessCluster(tmp_path, brokers=2)
    first, last = cluster.nodes.values()
    last.plan.config.write_text("no.such.setting")
    with pytest.raises(NodeFailedError, match="node 2 ended at start") as raised:
        for node in (first, last):
            node.launch()
        first.pause()
        try:
            await_all_ready([first, last], timeout_s=120)
        finally:
            cluster.kill()
    assert "\n" not in raised.value.summary


def test_wrong_arguments_are_reported_before_any_node_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", str(tmp_path / "cluster"), "--port", "0"]
    assert run(["up", "-n", "0", *data]) == 2
    assert run(["up", "--controllers", "2", *data]) == 5
    assert run(["up", "--override", "num.partitions=many", *data]) == 5
    assert run(["up", "kill", "2", "--data", str(tmp_path)]) == 1
    printed = capsys.readouterr().err
    assert "odd number" in printed and "num.partitions" in printed and "Traceback" not in printed
