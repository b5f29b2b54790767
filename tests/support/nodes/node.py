"""One real Odradek node in a process of its own, for tests that need sockets, files and kill -9."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek.testing.layout import free_ports

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0


def free_port() -> int:
    """A TCP port that nobody listens on, and that nobody else is given before who listens there with SO_REUSEADDR."""
    return next(free_ports())


@contextmanager
def silent_port() -> Iterator[int]:
    """A port where nobody listens, and that nobody else is given, for as long as the block lasts."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


class Node:
    """`odradek broker` over a directory; ports stay the same over restarts, as clients expect.

    Args:
        directory: holds the data directory and the log of the process.
        overrides: settings by Kafka's keys, on top of a single combined node with small internal topics.
    """

    def __init__(self, directory: Path, overrides: dict[str, object] | None = None) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.output = directory / "node.log"
        self.port = free_port()
        self.controller_port = free_port()
        self.overrides: dict[str, object] = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "log.dirs": self.data_dir,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
        } | (overrides or {})
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the node does not run"
        return self.process.pid

    def start(self) -> Self:
        """Start the process and wait until it answers on its port."""
        self.launch()
        self.await_port()
        return self

    def launch(self) -> None:
        """Start the process and do not wait for it."""
        assert self.process is None, "the node runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled files, as where pip installed it
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.command(), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment
            )

    def command(self) -> list[str]:
        """The command line of the process."""
        command = [sys.executable, "-m", "odradek", "broker"]
        for key, value in self.overrides.items():
            command += ["--override", f"{key}={value}"]
        return command

    def stop(self) -> int:
        """Ask for a clean stop and wait for it; returns the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """kill -9: no handler of the process runs."""
        return self._end(signal.SIGKILL)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def log_text(self) -> str:
        """All that the process has printed, over all its starts."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def memory_bytes(self) -> int:
        """Resident memory of the process now."""
        with open(f"/proc/{self.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """Seconds of a processor that the process has had so far; who waits for one has none."""
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        return self if self.process is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.resume()
            self.stop()

    def _end(self, how: signal.Signals) -> int:
        assert self.process is not None, "the node does not run"
        process, self.process = self.process, None
        process.send_signal(how)
        try:
            return process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the node did not stop in {STOP_TIMEOUT_S:g} s:\n{self.log_text()[-4000:]}") from None

    def await_port(self) -> None:
        """Wait until the port accepts; fails with the output of the process where it ends or takes too long."""
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                code, self.process = self.process.returncode, None
                raise AssertionError(f"the node ended with {code} at start:\n{self.log_text()[-4000:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        self.kill()
        raise AssertionError(f"the node did not answer in {START_TIMEOUT_S} s:\n{self.log_text()[-4000:]}")
