"""`odradek host` in a process of its own, on ports that no other process is given while it lasts."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.clients.cli import run_here
from tests.support.nodes.node import free_port
from tests.support.waiting import PATIENCE_S, eventually

MOST_BROKERS = 4
KINDS = ("PLAINTEXT", "CONTROLLER", "pages")


@contextmanager
def ports_in_a_row(count: int) -> Iterator[int]:
    """The first of as many free ports: each is bound, which keeps it for who listens there with SO_REUSEADDR."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as kept:
            if _bind(kept, range(first + 1, first + count)):
                yield first
                return


def _bind(kept: contextlib.ExitStack, ports: range) -> bool:
    """Whether all of these ports are bound now, for as long as they are kept."""
    with contextlib.suppress(OSError, OverflowError):
        for port in ports:
            sock = kept.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", port))
        return True
    return False


class HostProcess:
    """A host with its configuration file and its disks below a folder; leaves nothing running.

    Args:
        first_port: of `MOST_BROKERS` for clients, as many for controllers, as many for pages, and the host's own.
    """

    def __init__(self, root: Path, first_port: int, disks: int = 2, **settings: object) -> None:
        self.disks = [root / f"disk-{number}" for number in range(1, disks + 1)]
        self.config = root / "host.properties"
        self.output = root / "host.log"
        self.bootstrap = f"127.0.0.1:{first_port}"
        self.pages = f"127.0.0.1:{first_port + 2 * MOST_BROKERS}"
        self.process: subprocess.Popen[bytes] | None = None
        root.mkdir(exist_ok=True)
        properties = {
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{first_port + MOST_BROKERS}",
            "odradek.metrics.listener": self.pages,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 2,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    def start(self, *arguments: object) -> None:
        """Start it and wait until it is ready."""
        self.launch(*arguments)
        eventually(lambda: b"The host is ready" in self.said() or self._ended(), self.said)
        assert not self._ended(), self.said().decode()

    def launch(self, *arguments: object) -> None:
        """Start it."""
        data = [word for disk in self.disks for word in ("--data", str(disk))]
        self.run([sys.executable, "-m", "odradek", "host", *map(str, arguments), "--config", str(self.config), *data])

    def run(self, command: Sequence[str], **environment: str) -> None:
        """Start it by a command of one's own, with variables of its environment."""
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # it leaves one that is ignored as it is
        try:
            with self.output.open("wb") as output:
                self.process = subprocess.Popen(
                    command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=os.environ | environment
                )
        finally:
            signal.signal(signal.SIGHUP, before)

    def said(self) -> bytes:
        """The output of the host since its start, with the lines of its brokers."""
        return self.output.read_bytes()

    def do(self, action: str, *arguments: str, code: int = 0) -> Any:
        """Run `odradek host ACTION`, as from another terminal; return its output."""
        return run_here("host", action, "--data", str(self.disks[0]), *arguments, code=code)

    def brokers(self) -> list[dict[str, Any]]:
        """The brokers of the host, as `odradek host status` lists them."""
        found: list[dict[str, Any]] = self.do("status", "--json").json["brokers"]
        return found

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; returns the exit code."""
        assert self.process is not None
        process, self.process = self.process, None
        process.send_signal(number)
        return process.wait(PATIENCE_S)

    def _ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def __enter__(self) -> HostProcess:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process is not None:
            self.end()
