"""Kafka's command-line tools in one virtual machine: each costs a start of its own otherwise."""

from __future__ import annotations

import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

from tests.support.nodes.apache_kafka import java_command

PROGRAM = Path(__file__).with_name("java") / "ToolRunner.java"


class Ran(NamedTuple):
    """The exit code and the output of a tool."""

    code: int
    printed: str


class ToolRunner:
    """A virtual machine that runs tools, one at a time."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            java_command(str(PROGRAM)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self._commands, self._answers):
            stream.close()
        self._process.kill()
        self._process.wait()

    def run(self, tool: str, *arguments: object, typed: str = "") -> Ran:
        """Run a tool by its class, with what is typed while it runs."""
        parts = [typed, tool, *map(str, arguments)]
        self._commands.write(b" ".join(b64encode(each.encode()) for each in parts) + b"\n")
        self._commands.flush()
        code, _, printed = self._answers.readline().strip().partition(b" ")
        return Ran(int(code), b64decode(printed).decode())

    @property
    def _commands(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _answers(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout
