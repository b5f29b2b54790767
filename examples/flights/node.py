"""The broker of the demo: one node in a process of its own, which can be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

START_TIMEOUT_S = 60.0


def free_port() -> int:
    """A TCP port that nobody listened on a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Node:
    """`odradek broker` over a directory; its ports stay the same over restarts.

    Args:
        directory: holds the node's data and what it prints.
        port: for clients; a free one by default.
    """

    def __init__(self, directory: Path, port: int | None = None) -> None:
        self.directory = directory
        self.output = directory / "node.log"
        self.port = port or free_port()
        self.controller_port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start and wait until it listens; returns the seconds that took. Raises SystemExit where it does not start."""
        began = time.monotonic()
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "log.dirs": self.directory / "data",
            "offsets.topic.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
        }
        command = [sys.executable, "-m", "odradek", "broker"]
        for key, value in settings.items():
            command += ["--override", f"{key}={value}"]
        with self.output.open("ab") as output:
            # A session of its own: Ctrl-C in the terminal is for the demo, which then stops the node.
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
            )
        while True:
            if self.process.poll() is not None:
                raise SystemExit(f"the node ended at start, see {self.output}:\n{self._last_lines()}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return time.monotonic() - began
            except OSError:
                if time.monotonic() - began > START_TIMEOUT_S:
                    self.kill()
                    raise SystemExit(f"the node did not listen in {START_TIMEOUT_S:g} s, see {self.output}") from None
                time.sleep(0.02)

    def kill(self) -> None:
        """kill -9: nothing of the process gets to run."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """A clean stop; harmless where it does not run."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        os.kill(process.pid, how)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _last_lines(self) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-15:])
