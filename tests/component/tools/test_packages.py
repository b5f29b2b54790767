"""tools/packages.sh: root on Debian has what is missing installed in one call; nothing that goes wrong ends a run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "packages.sh"
RELEASE = Path("/etc/os-release")
pytestmark = pytest.mark.skipif(
    not RELEASE.exists() or "ID=debian" not in RELEASE.read_text().split(), reason="the script is for Debian"
)


class Machine:
    """Programs that stand in for Debian's, first on the path, and what was said to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.program("id", "echo 0")
        self.program("dpkg-query", 'case "$*" in *there*) echo installed ;; *) exit 1 ;; esac')
        self.program("apt-cache", 'case "$*" in *unknown*) exit 100 ;; esac')
        self.program("apt-get", f'echo "$*" >> {self.calls}')

    def program(self, name: str, script: str) -> None:
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def run(self, *packages: str) -> str:
        """What the script says; it never fails."""
        path = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        done = subprocess.run([SCRIPT, *packages], env=os.environ | path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr

    @property
    def installed(self) -> list[str]:
        """The packages of each call that installs, in one text."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line.partition(" install ")[2] for line in lines if " install " in line]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_is_missing_is_installed_in_one_call(machine: Machine) -> None:
    said = machine.run("first", "is-there", "second", "unknown")
    assert machine.installed == ["first second"]
    assert said.splitlines()[0] == "Installing with apt-get what tests need: first second unknown"
    assert "does not know unknown" in said


def test_nothing_is_asked_of_apt_where_all_is_there(machine: Machine) -> None:
    assert machine.run("is-there") == ""
    assert not machine.calls.exists()


def test_only_root_installs(machine: Machine) -> None:
    machine.program("id", "echo 1000")
    assert machine.run("first") == ""
    assert not machine.calls.exists()


def test_packages_that_cannot_be_had_end_no_run(machine: Machine) -> None:
    machine.program("apt-get", "exit 100")
    assert "tests that need what is missing are skipped" in machine.run("first")
