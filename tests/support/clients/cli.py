"""Running `odradek` as a user does: in a process of its own, or in this one where only its answers matter."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from odradek.cli.app import run


@dataclass(frozen=True, slots=True)
class Ran:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a table, headings first."""
        return [line.split() for line in self.out.splitlines()]


def odradek(bootstrap: str, *arguments: object, code: int | None = 0) -> Ran:
    """Run a command in this process against a cluster; fails where it ends with another code than `code`."""
    return run_here(*arguments, "--bootstrap-server", bootstrap, code=code)


def run_here(*arguments: object, code: int | None = 0) -> Ran:
    """Run a command in this process; fails where it ends with another code than `code`."""
    out, err = io.StringIO(), io.StringIO()
    words = [str(argument) for argument in arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        ended = run(words)
    ran = Ran(ended, out.getvalue(), err.getvalue())
    assert code in (None, ran.code), f"odradek {' '.join(words)} ended with {ran.code}:\n{ran.out}\n{ran.err}"
    assert "Traceback" not in ran.err
    return ran


def odradek_process(
    bootstrap: str, *arguments: object, stdin: bytes = b"", code: int | None = 0, timeout_s: float = 120.0
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own, as bytes in and out."""
    words = [str(argument) for argument in arguments]
    command = [sys.executable, "-m", "odradek", *words, "--bootstrap-server", bootstrap]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout_s)
    said = f"odradek {' '.join(words)} ended with {done.returncode}:\n{done.stdout!r}\n{done.stderr.decode()}"
    assert code in (None, done.returncode), said
    assert b"Traceback" not in done.stderr, said
    return done


def on_terminal(bootstrap: str, *arguments: object, columns: int = 80, timeout_s: float = 120.0) -> str:
    """The output of a command on a terminal of so many columns; fails where it does not end well."""
    master, terminal = os.openpty()
    command = [sys.executable, "-m", "odradek", *map(str, arguments), "--bootstrap-server", bootstrap]
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(columns)}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=terminal, env=environment)
    os.close(terminal)
    try:
        shown = all_shown(master)
        assert process.wait(timeout_s) == 0, shown
    finally:
        os.close(master)
        process.kill()
        process.wait()
    return shown.replace("\r\n", "\n")


def asked_on_terminal(bootstrap: str, *arguments: object, typed: str, timeout_s: float = 120.0) -> tuple[str, int]:
    """The output and the exit code of a command that asks a person something on a terminal."""
    master, terminal = os.openpty()
    command = [sys.executable, "-m", "odradek", *map(str, arguments), "--bootstrap-server", bootstrap]
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "200"}
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    try:
        os.write(master, typed.encode())
        shown = all_shown(master)
        return shown.replace("\r\n", "\n"), process.wait(timeout_s)
    finally:
        os.close(master)
        process.kill()
        process.wait()


def all_shown(master: int) -> str:
    """The text written to a terminal until no process has it open: a slow writer draws more than a terminal holds."""
    shown = b""
    with contextlib.suppress(OSError):  # EIO is its end
        while data := os.read(master, 1 << 16):
            shown += data
    return shown.decode()
