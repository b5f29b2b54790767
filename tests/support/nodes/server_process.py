"""A server in a process of its own: start, wait for its port, stop, kill, pause, and read its output."""

from __future__ import annotations

import abc
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, ClassVar, Self

from odradek.testing.processes import RunningProcess

LOG_TAIL_CHARS = 4000
POLL_S = 0.02


class ServerProcess(abc.ABC):
    """One server over a directory that outlives its process; its port stays the same over restarts.

    Attributes:
        what: its name in errors.
        output: the output of the process, over all its starts.
        stop_timeout_s: the seconds after which a process that was asked to stop is killed.
    """

    what: ClassVar[str]
    start_timeout_s: ClassVar[float] = 120.0
    stop_timeout_s: float = 120.0

    def __init__(self, directory: Path, output: str, port: int) -> None:
        self.directory = Path(directory)
        self.output = self.directory / output
        self.port = port
        self.process: RunningProcess | None = None

    @abc.abstractmethod
    def command(self) -> list[str]:
        """The command line of the process."""

    def environment(self) -> dict[str, str]:
        """The variables of the process."""
        return dict(os.environ)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.what} does not run"
        return self.process.pid

    def start(self) -> Self:
        """Start the process and wait until it answers on its port."""
        self.launch()
        self.await_port()
        return self

    def launch(self) -> None:
        """Start the process and do not wait for it."""
        assert self.process is None, f"{self.what} runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.output.open("ab") as output:
            self.process = self.begin(output)

    def begin(self, output: BinaryIO) -> RunningProcess:
        """A process that runs the command and prints to `output`."""
        return subprocess.Popen(
            self.command(),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=self.environment(),
        )

    def await_port(self) -> None:
        """Wait until the port accepts; fails with the output of the process where it ends or takes too long."""
        assert self.process is not None
        deadline = time.monotonic() + self.start_timeout_s
        while time.monotonic() < deadline:
            code = self.process.poll()
            if code is not None:
                self.process = None
                raise AssertionError(f"{self.what} ended with {code} at start:\n{self.log_tail()}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(POLL_S)
        self.kill()
        raise AssertionError(f"{self.what} did not answer in {self.start_timeout_s:g} s:\n{self.log_tail()}")

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
        """The output of the process, over all its starts."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def log_tail(self) -> str:
        """The end of it, for errors."""
        return self.log_text()[-LOG_TAIL_CHARS:]

    def __enter__(self) -> Self:
        return self if self.process is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            if self.process.poll() is not None:
                sys.stderr.write(f"{self.what} ended by itself with {self.process.poll()}:\n{self.log_tail()}\n")
            else:
                self.resume()
            self.stop()

    def _end(self, how: signal.Signals) -> int:
        assert self.process is not None, f"{self.what} does not run"
        process, self.process = self.process, None
        process.send_signal(how)
        try:
            return process.wait(timeout=self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return self._killed(process.wait())

    def _killed(self, code: int) -> int:
        """It did not stop in time, and was killed: an error, but where a subclass knows better."""
        raise AssertionError(f"{self.what} did not stop in {self.stop_timeout_s:g} s:\n{self.log_tail()}")
