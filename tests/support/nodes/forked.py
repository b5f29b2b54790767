"""Nodes that are forked from a process that has imported them: most of the time of a start is that of imports.

A quarter of what all tests take of the processors went into imports of nodes, by the hundred. A forked node is a real
process all the same (tests/support/nodes/fork_server.py); tests of the command line and of starts have real commands.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from odradek.testing.processes import RunningProcess, run_command
from tests.support.nodes.fork_server import LENGTH_BYTES

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "odradek")
# Variables that the interpreter, the loader and the C library read once, before there is anything to fork.
READ_AT_START = ("PYTHON", "LD_", "DYLD_", "MALLOC_", "GLIBC_", "LC_", "LANG")
WRITES_NOTHING = "PYTHONDONTWRITEBYTECODE"
LOOK_S = 0.1
LIMITS = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})


class ForkedProcess:
    """A process like a subprocess.Popen; its parent is the fork server, which writes its exit code into a pipe."""

    def __init__(self, pid: int, command: Sequence[str], end: BinaryIO) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._command = list(command)
        self._end = end
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code when it has ended; raises subprocess.TimeoutExpired."""
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self._command, timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        """Send a signal; do nothing if the process has ended."""
        if self.poll() is None:
            try:
                os.kill(self.pid, sig)
            except ProcessLookupError:
                return  # It has ended since we looked.

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended_within(self, timeout: float | None) -> int | None:
        """Another thread may wait too: each looks again after a short time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = LOOK_S if deadline is None else max(0.0, deadline - time.monotonic())
            with self._lock:
                if self.returncode is None and _readable(self._end, min(left, LOOK_S)):
                    self._read_end()
            if not left:
                break
        return self.returncode

    def _read_end(self) -> None:
        code = self._end.read()
        self._end.close()
        assert len(code) == LENGTH_BYTES, "the process that forks nodes has died"
        self.returncode = int.from_bytes(code, "big", signed=True)


class Forks:
    """One fork server, for as long as this process lives."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._environment = node_environment()
        self._requests, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "tests.support.nodes.fork_server", str(theirs.fileno())]
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                env=self._environment,
            )
        atexit.register(self.close)

    def can_start(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Whether a forked process is the same as the one that this command would be."""
        ours = _read_at_start(self._environment)
        return tuple(command[: len(COMMAND)]) == COMMAND and _read_at_start(environment) == ours

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        output: BinaryIO,
        *,
        folder: Path | None = None,
        own_group: bool = False,
    ) -> ForkedProcess:
        """Start a command, here or in `folder`; its output goes to `output`. It has no input."""
        request = {
            "command": ["odradek", *command[len(COMMAND) :]],
            "environment": dict(environment),
            "folder": str(folder or Path.cwd()),
            "own_group": own_group,
            "limits": [(kind, resource.getrlimit(kind)) for kind in LIMITS],
        }
        text = json.dumps(request).encode()
        ours, theirs = os.pipe()
        end = open(ours, "rb", buffering=0)  # noqa: SIM115 - open until the process has ended
        try:
            with self._lock:
                socket.send_fds(self._requests, [len(text).to_bytes(LENGTH_BYTES, "big")], [output.fileno(), theirs])
                self._requests.sendall(text)
                answer = self._requests.recv(LENGTH_BYTES, socket.MSG_WAITALL)
            assert len(answer) == LENGTH_BYTES, "the process that forks nodes has died"
        except BaseException:
            end.close()
            raise
        finally:
            os.close(theirs)
        return ForkedProcess(int.from_bytes(answer, "big"), command, end)

    def close(self) -> None:
        """Close the socket of requests, which ends the server; forked processes live on."""
        self._requests.close()
        self._server.wait()


@functools.cache
def forks() -> Forks:
    """The one of this process, started when the first node is."""
    return Forks()


def node_environment() -> dict[str, str]:
    """The variables of a node."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.pop(WRITES_NOTHING, None)  # compiled files, as where pip installed it
    return environment


def begin_in_a_group(command: Sequence[str], environment: Mapping[str, str], output: BinaryIO) -> RunningProcess:
    """Start a process as NodeProcess does; fork it if that has the same result."""
    if forks().can_start(command, environment):
        return forks().start(command, environment, output, own_group=True)
    return run_command(command, environment, output)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Whether compiled files are written makes no difference to what has been imported."""
    return {
        name: environment[name] for name in environment if name.startswith(READ_AT_START) and name != WRITES_NOTHING
    }


def _readable(end: BinaryIO, timeout: float) -> bool:
    poll = select.poll()
    poll.register(end, select.POLLIN)
    return bool(poll.poll(timeout * 1000))
