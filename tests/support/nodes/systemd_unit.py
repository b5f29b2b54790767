"""A systemd unit of `deploy/systemd`, and its commands run as systemd runs them, with other folders."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek.cli.app import run
from tests.support.waiting import PATIENCE_S

UNITS = Path(__file__).resolve().parents[3] / "deploy" / "systemd"
BIN = Path(sys.executable).parent


def settings_of(text: str) -> dict[str, list[str]]:
    """All values of each setting of a unit, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[key].append(value)
    return found


class Unit:
    """A service: its commands, with `/etc/odradek` and `/var/lib/odradek` in a folder, and `/opt/odradek` here.

    Args:
        root: contains `etc` and `var`.
        file: the name of the unit's file.
        instance: the value of `%i`.
        probes: HOST:PORT instead of the one in the unit.
        quick: commands beside the node's run in this process, for tests that are about something else.
    """

    def __init__(self, root: Path, file: str, probes: str, instance: str = "", *, quick: bool = False) -> None:
        self.root = root
        self.quick = quick
        text = (UNITS / file).read_text().replace("%i", instance)
        for path, here in (("/opt/odradek/bin", BIN), ("/etc/odradek", root / "etc"), ("/var/lib", root / "var")):
            text = text.replace(path, str(here))
        self.settings = settings_of(text)
        self.environment = {"PATH": os.environ["PATH"]}
        for line in self.settings["Environment"]:
            self._set(line)
        for name in self.settings["EnvironmentFile"]:
            if not name.startswith("-") or Path(name[1:]).exists():
                for line in Path(name.removeprefix("-")).read_text().splitlines():
                    self._set(line)
        assert "ODRADEK_PROBES" in self.environment
        self.environment["ODRADEK_PROBES"] = probes
        self.output = root / f"{file}.{instance}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def _set(self, line: str) -> None:
        key, _, value = line.partition("=")
        self.environment[key] = value

    def command(self, name: str) -> list[str]:
        """The words of a command: variables are put in, and `$$` is a dollar."""
        (line,) = self.settings[name]
        words = shlex.split(line.removeprefix("-"))
        return [re.sub(r"\$\{(\w+)\}|\$\$", self._variable, word) for word in words]

    def _variable(self, found: re.Match[str]) -> str:
        return self.environment[found[1]] if found[1] else "$"

    def start(self) -> None:
        """Start the node as `systemctl start` does; return when the node has notified that it serves."""
        formatted = self._run(self.command("ExecStartPre"), self.environment)
        assert formatted == 0 or self.settings["ExecStartPre"][0].startswith("-")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices, self.output.open("ab") as output:
            notices.bind("\0" + str(self.root / self.output.name))  # a name without a file, as systemd's may be
            notices.settimeout(PATIENCE_S)
            notified = {"NOTIFY_SOCKET": f"@{self.root / self.output.name}"}
            command = self.command("ExecStart")
            self.process = subprocess.Popen(
                command, env=self.environment | notified, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                said = notices.recv(100)
            except TimeoutError:
                self._kill()
                said = b""
            assert said == b"READY=1", self.output.read_text()

    def exec_stop(self, *, main_pid: str | None = None) -> int:
        """Run ExecStop alone; returns its exit code."""
        assert self.process is not None
        pid = str(self.process.pid) if main_pid is None else main_pid
        environment = self.environment | {"MAINPID": pid}
        # A machine with far too much to do needs longer than the unit waits.
        command = [word.replace("--timeout 30", f"--timeout {PATIENCE_S:.0f}") for word in self.command("ExecStop")]
        if self.quick:
            words = shlex.split(command[-1].rpartition("exec ")[2])
            command = [environment.get(word.removeprefix("$"), word) for word in words]
        return self._run(command, environment)

    def _run(self, command: list[str], environment: dict[str, str]) -> int:
        if self.quick:
            return run(command[1:])
        return subprocess.run(command, env=environment, timeout=2 * PATIENCE_S).returncode

    def terminate(self) -> int:
        """Send KillSignal, as systemd does after ExecStop; return the exit code of the node."""
        assert self.process is not None
        self.process.send_signal(getattr(signal, self.settings["KillSignal"][0]))
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def _kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
