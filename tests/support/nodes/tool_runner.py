"""Kafka's command-line tools in one virtual machine: each costs a start of its own otherwise."""

from __future__ import annotations

import atexit
import contextlib
import select
import subprocess
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

PROGRAM = Path(__file__).with_name("ToolRunner.java")


class Ran(NamedTuple):
    """What a tool came to: its exit code and all that it printed."""

    code: int
    printed: str


class ToolRunner:
    """A virtual machine that runs tools, one at a time; `command` is that of PROGRAM."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._commands, self._answers):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def run(self, tool: str, *arguments: object, typed: str = "") -> Ran:
        """Run a tool by its class, with what is typed while it runs."""
        done, printed = self._answer(tool, arguments, typed, None)
        return Ran(done.returncode, printed)

    def completed(
        self, tool: str, arguments: Sequence[object], typed: str, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """As `run`, with what came on standard output and on standard error apart; raises TimeoutExpired."""
        return self._answer(tool, arguments, typed, timeout_s)[0]

    def _answer(
        self, tool: str, arguments: Sequence[object], typed: str, timeout_s: float | None
    ) -> tuple[subprocess.CompletedProcess[str], str]:
        parts = [typed, tool, *map(str, arguments)]
        self._commands.write(b" ".join(b64encode(each.encode()) for each in parts) + b"\n")
        self._commands.flush()
        if not select.select([self._answers], [], [], timeout_s)[0]:
            raise subprocess.TimeoutExpired(parts[1:], timeout_s or 0)
        answer = self._answers.readline().rstrip(b"\r\n").split(b" ")
        assert len(answer) > 1, f"the virtual machine ended while it ran {tool}"
        code, (output, errors, printed) = int(answer[0]), (b64decode(each).decode() for each in answer[1:])
        return subprocess.CompletedProcess(parts[1:], code, output, errors), printed

    @property
    def _commands(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _answers(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout


class SharedRunner:
    """A runner for all tests of this process; another one is started after a tool that did not end."""

    def __init__(self, command: Callable[[], Sequence[str]]) -> None:
        self._command = command
        self._runner: ToolRunner | None = None
        self._lock = threading.Lock()
        atexit.register(self.close)

    def completed(
        self, tool: str, arguments: Sequence[object], typed: str, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """As ToolRunner has it."""
        with self._lock:
            runner = self._runner = self._runner or ToolRunner(self._command()).__enter__()
            try:
                return runner.completed(tool, arguments, typed, timeout_s)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.__exit__(None, None, None)
