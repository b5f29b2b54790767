"""The command line as a process: its imports, the completion of shells, closed pipes, unreachable brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cli import errors
from odradek.cli.app import COMMANDS, run

HEAVY = ("confluent_kafka", "uvloop", "asyncio.base_events", "ssl", "cramjam", "odradek.server.broker", "rich.progress")


def python(*code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *code], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )


def test_help_needs_no_heavy_module() -> None:
    """Each command shows its help without further imports than those with which the command line begins."""
    script = f"""
import os, sys
from odradek.cli.app import COMMANDS, run
for name in COMMANDS:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = run([name, "--help"])
        print("ENDED", name, code, [module for module in {HEAVY!r} if module in sys.modules], flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage") >= len(COMMANDS)
    ended = [line for line in done.stdout.splitlines() if line.startswith("ENDED")]
    assert ended == [f"ENDED {name} 0 []" for name in COMMANDS]


def complete(*words: str) -> list[str]:
    """The completions that bash would offer behind these words; the last one is being typed."""
    done = python(
        "-m", "odradek", _ODRADEK_COMPLETE="complete_bash", COMP_WORDS=" ".join(["odradek", *words]),
        COMP_CWORD=str(len(words)),
    )  # fmt: skip
    assert not done.stderr
    return done.stdout.split()


def test_the_shell_completes_commands_and_options() -> None:
    assert set(complete("")) >= COMMANDS.keys()
    assert complete("top") == ["topics"]
    assert set(complete("topics", "")) == {"create", "list", "describe", "alter", "delete"}
    assert "--replication-factor" in complete("topics", "create", "--re")
    assert complete("produce", "--topic", "t", "--compression-codec", "l") == ["lz4"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell(shell: str) -> None:
    done = python("-m", "odradek", _ODRADEK_COMPLETE=f"source_{shell}")
    assert "_ODRADEK_COMPLETE" in done.stdout, done.stderr


def test_output_into_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    lines = [f"{epoch} {epoch}" for epoch in range(50_000)]
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    command = f"{sys.executable} -m odradek dump-log {path} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Dumping ")
    assert not done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "list"],
        ["topics", "create", "--topic", "t"],
        ["groups", "list"],
        ["configs", "describe", "--topic", "t"],
        ["cluster", "id"],
        ["consume", "--topic", "t"],
        ["produce", "--topic", "t"],
    ],
    ids=" ".join,
)
def test_a_port_without_a_listener(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--bootstrap-server", "127.0.0.1:1"]) == errors.UNREACHABLE
    shown = capfd.readouterr()
    assert not shown.out
    assert shown.err == (
        "odradek: cannot connect to 127.0.0.1:1: connection refused; is a broker running there? "
        "Start one with `odradek broker` or set --bootstrap-server\n"
    )


def test_an_unreachable_broker_is_reported_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "list", "--bootstrap-server", "127.0.0.1:1", "--json"]) == errors.UNREACHABLE
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.count("\n") == 1
    found = json.loads(shown.err)
    assert "connection refused" in found.pop("error")
    assert found == {"name": None, "exit_code": errors.UNREACHABLE}
