"""One real Odradek node in a process of its own, for tests that need sockets, files and kill -9."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, ClassVar

from odradek.testing.layout import free_ports
from odradek.testing.processes import RunningProcess
from tests.support.nodes.forked import forks, node_environment
from tests.support.nodes.server_process import ServerProcess

START_TIMEOUT_S = 120.0


def free_port() -> int:
    """A free TCP port, which no other process is given before one listens there with SO_REUSEADDR."""
    return next(free_ports())


@contextmanager
def silent_port() -> Iterator[int]:
    """A port without a listener, which no other process is given for as long as the block lasts."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def accepts(port: int) -> bool:
    """Whether a process of this machine accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), 10).close()
    except ConnectionRefusedError:
        return False
    return True


class Node(ServerProcess):
    """`odradek broker` over a directory; ports stay the same over restarts, as clients expect.

    Args:
        directory: holds the data directory and the log of the process.
        overrides: settings by Kafka's keys, on top of a single combined node with small internal topics.

    Attributes:
        forked: whether its process is forked from one that has imported it, as in tests; benchmarks have real starts.
    """

    forked: ClassVar[bool] = False
    what = "the node"
    start_timeout_s = START_TIMEOUT_S

    def __init__(self, directory: Path, overrides: Mapping[str, object] | None = None) -> None:
        super().__init__(directory, "node.log", free_port())
        self.data_dir = directory / "data"
        self.controller_port = free_port()
        self.overrides: dict[str, object] = {
            # Bound in this order: when the last one accepts, which the start waits for, all do.
            "listeners": f"CONTROLLER://127.0.0.1:{self.controller_port},PLAINTEXT://127.0.0.1:{self.port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "log.dirs": self.data_dir,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
        } | dict(overrides or {})

    def environment(self) -> dict[str, str]:
        return node_environment()

    def command(self) -> list[str]:
        """The command line of the process."""
        command = [sys.executable, "-m", "odradek", "broker"]
        for key, value in self.overrides.items():
            command += ["--override", f"{key}={value}"]
        return command

    def begin(self, output: BinaryIO) -> RunningProcess:
        """Forked, where that is the same."""
        if self.forked:
            command, environment = self.command(), self.environment()
            if forks().can_start(command, environment):
                return forks().start(command, environment, output)
        return super().begin(output)

    def memory_bytes(self) -> int:
        """Resident memory of the process now."""
        with open(f"/proc/{self.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """Seconds of processor time that the process has had so far; waiting for a processor does not count."""
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
